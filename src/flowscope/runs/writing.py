"""A run folder on its way: opened or taken up again, filled, cleared of what is not its own."""

import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.records import Manifest, Measurement, Run, Unavailable, Verdict, library_versions
from flowscope.records.files import remove_file
from flowscope.runs.config import Config
from flowscope.runs.loading import Loaded

__all__ = ["Origin", "RunWriter", "manifest_of", "own_folder"]

_KEPT = ("config_given", "config_resolved", "weight_hashes", "data_hashes", "created_at")


class RunWriter:
    """Writes one run; an unfinished one in the folder is taken up where it was.

    A run of other weights, texts or library versions there is simply not this run: its shards are
    not used, and tables that it left are removed at the end.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._started = time.monotonic()
        self._written: set[str] = set()
        self._noted: list[Measurement] = []
        self.run = _opened(folder, manifest)

    def put(self, name: str, table: pd.DataFrame) -> None:
        """Write a table."""
        self._written.add(name)
        self.run.write_table(name, table)

    def note(self, measurement: Measurement) -> None:
        """Keep a measurement for the end."""
        self._noted.append(measurement)

    def finish(self, verdicts: list[Verdict]) -> Run:
        """Write measurements and verdicts, remove tables of another run, close the manifest."""
        self.run.write_measurements(self._noted)
        self.run.write_verdicts(verdicts)
        for name in set(self.run.tables()) - self._written:
            for ending in ("csv", "parquet", "json"):
                remove_file(self.run.folder / "tables" / f"{name}.{ending}")
        self.run.update_manifest(wall_time=time.monotonic() - self._started)
        return self.run


def _opened(folder: Path, manifest: Manifest) -> Run:
    if not (folder / "manifest.json").is_file():
        return Run.create(folder, manifest)
    run = Run.open(folder)
    run.remove_leftovers()
    kept = {part: getattr(manifest, part) for part in _KEPT}
    run.update_manifest(**kept, wall_time=manifest.wall_time)
    return run


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where numbers come from, for what is no loaded model."""

    source: str
    weight_hash: str | Unavailable
    device: str


def own_folder(out: str, command: str, loaded: Loaded | Origin, fingerprint: str) -> Path:
    """A folder of this model on these data, so that other runs are not overwritten."""
    name = Path(loaded.source).name.replace(" ", "-") or "model"
    return Path(out) / f"{command}-{name}-{fingerprint[:6]}"


def manifest_of(
    loaded: Loaded | Origin,
    config: Config,
    *,
    hashes: dict[str, str],
    measured: dict[str, Any],
    seed: int,
    **more: Any,
) -> Manifest:
    """Where a run comes from, before it has finished.

    Parameters
    ----------
    loaded, config
        The model, and the settings as they were resolved.
    hashes, measured
        Hashes of the data, and how much of them was read.
    seed
        Of resampling and of the random-weights control.
    **more
        Further entries of the resolved settings.
    """
    weights = loaded.weight_hash
    resolved = config.model_dump(mode="json")
    return Manifest(
        config_given=config.model_dump(mode="json", exclude_defaults=True),
        config_resolved={**resolved, **more, "model": loaded.source, "measured": measured},
        seeds={"bootstrap": seed, "random_weights": seed},
        versions=library_versions(),
        device=_device(loaded),
        weight_hashes=weights if isinstance(weights, Unavailable) else {"model": weights},
        data_hashes=hashes,
        wall_time=Unavailable("the run has not finished"),
        commit=_commit(),
        created_at=datetime.now(UTC).isoformat(),
    )


def _device(loaded: Loaded | Origin) -> str:
    if isinstance(loaded, Origin):
        return loaded.device
    return str(next(loaded.model.parameters()).device)


def _commit() -> str | Unavailable:
    """The commit of flowscope's own checkout, when it runs from one."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Unavailable("git did not answer")
    return done.stdout.strip() or Unavailable("flowscope is installed, not checked out")
