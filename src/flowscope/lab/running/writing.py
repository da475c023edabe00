"""A run folder while it is written: opened or resumed, filled, cleared of another run's tables."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.lab.config import Config
from flowscope.records import Manifest, Measurement, Run, Unavailable, Verdict, library_versions
from flowscope.records.files import remove_file

if TYPE_CHECKING:
    from flowscope.lab.bench import Subject
    from flowscope.lab.instrument import Instrument

__all__ = ["RunWriter", "default_folder", "manifest_of"]

_KEPT = ("config_given", "config_resolved", "weight_hashes", "data_hashes", "created_at")


class RunWriter:
    """Writes one run and resumes an unfinished one in the same folder.

    Shards of other weights, texts or library versions have another fingerprint and are not used.
    Tables and arrays that another run left in the folder are removed at the end.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._started = time.monotonic()
        self._tables: set[str] = set()
        self._arrays: set[str] = set()
        self._measurements: list[Measurement] = []
        self._passes: dict[str, int] = {}
        self.run = _opened(folder, manifest)

    def put(self, name: str, table: pd.DataFrame) -> None:
        """Write a table."""
        self._tables.add(name)
        self.run.write_table(name, table)

    def put_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays."""
        self._arrays.add(name)
        self.run.write_arrays(name, arrays)

    def note(self, measurement: Measurement) -> None:
        """Record a measurement; `finish` writes it."""
        self._measurements.append(measurement)

    def list_pass(self, name: str, inputs: int) -> None:
        """Record a pass over some prompts; `finish` writes it into the manifest."""
        self._passes[name] = inputs

    def finish(self, verdicts: list[Verdict]) -> Run:
        """Write measurements and verdicts, remove what another run left, close the manifest."""
        self.run.write_measurements(self._measurements)
        self.run.write_verdicts(verdicts)
        for name in set(self.run.tables()) - self._tables:
            for ending in ("csv", "parquet", "json"):
                remove_file(self.run.folder / "tables" / f"{name}.{ending}")
        for name in set(self.run.arrays()) - self._arrays:
            remove_file(self.run.folder / "arrays" / f"{name}.safetensors")
        resolved = self.run.read_manifest().config_resolved
        if self._passes and not isinstance(resolved, Unavailable):
            self.run.update_manifest(config_resolved={**resolved, "passes": self._passes})
        self.run.update_manifest(wall_time=time.monotonic() - self._started)
        return self.run


def _opened(folder: Path, manifest: Manifest) -> Run:
    if not (folder / "manifest.json").is_file():
        return Run.create(folder, manifest)
    run = Run.open(folder)
    run.remove_leftovers()
    parts = {part: getattr(manifest, part) for part in _KEPT}
    run.update_manifest(**parts, wall_time=manifest.wall_time)
    return run


def default_folder(out: str, instrument: Instrument, subject: Subject, key: str) -> Path:
    """Folder of this instrument on this model and these data, so that runs do not overwrite."""
    model = Path(subject.source).name.replace(" ", "-") or "model"
    return Path(out) / f"{instrument.name}-{model}-{key[:6]}"


def manifest_of(
    instrument: Instrument, config: Config, subject: Subject, only: Sequence[str] = ()
) -> Manifest:
    """Where a run comes from, before it has finished.

    The resolved settings name the instrument as ``command``, and the selected claims and stages as
    ``only`` where the run does not walk all stages.
    """
    weights, seed = subject.weight_hash, int(getattr(config, "seed", 0))
    more = {"command": instrument.name, "model": subject.source, "measured": dict(subject.facts)}
    more |= {"only": list(only)} if only else {}
    return Manifest(
        config_given=config.model_dump(mode="json", exclude_defaults=True),
        config_resolved={**config.model_dump(mode="json"), **more},
        seeds={"bootstrap": seed, "random_weights": seed},
        versions=library_versions(),
        device=subject.device,
        weight_hashes=weights if isinstance(weights, Unavailable) else {"model": weights},
        data_hashes=dict(subject.hashes),
        wall_time=Unavailable("the run has not finished"),
        commit=_commit(),
        created_at=datetime.now(UTC).isoformat(),
    )


def _commit() -> str | Unavailable:
    """Commit of flowscope's checkout, when it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Unavailable("git did not answer")
    return done.stdout.strip() or Unavailable("flowscope is installed, not checked out")
