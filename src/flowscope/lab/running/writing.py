"""A run folder while it is written: locked, opened or resumed, filled, closed."""

from __future__ import annotations

import subprocess
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import RecordWarning
from flowscope.lab.config import Config
from flowscope.lab.running.identity import refuse_another, run_key
from flowscope.lab.running.lock import FolderLock
from flowscope.records import Manifest, Measurement, Run, Unavailable, Verdict, library_versions
from flowscope.records.files import is_file, remove_file
from flowscope.records.manifest import ALONE, UNFINISHED
from flowscope.records.run import has_remains
from flowscope.records.tables import remove_table

if TYPE_CHECKING:
    from flowscope.lab.bench import Subject
    from flowscope.lab.instrument import Instrument

__all__ = ["RunWriter", "commit", "default_folder", "lending_folders", "manifest_of", "places_of"]


_LONGEST_NAME = 50
"""Characters of a model's name in that of a run folder; four bytes each still make a file name."""


class RunWriter:
    """Writes one run and resumes an unfinished one in the same folder; no other process may.

    Tables and arrays that a longer run with the same settings left are removed at the end.

    Raises
    ------
    RecordError
        Another process writes the folder; or it holds a run of other settings, or something else.
    """

    def __init__(self, folder: Path, manifest: Manifest, places: Collection[str] = ()) -> None:
        self._started = time.monotonic()
        self._tables: set[str] = set()
        self._arrays: set[str] = set()
        self._measurements: list[Measurement] = []
        self._passes: dict[str, int] = {}
        self._lock = FolderLock.take(folder)
        try:
            self.run = _opened(folder, manifest, places)
        except BaseException:
            self.release()
            raise

    def put(self, name: str, table: pd.DataFrame) -> None:
        """Write a table."""
        self._lock.check()
        self._tables.add(name)
        self.run.write_table(name, table)

    def put_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays."""
        self._lock.check()
        self._arrays.add(name)
        self.run.write_arrays(name, arrays)

    def note(self, measurement: Measurement) -> None:
        """Record a measurement; `finish` writes it."""
        self._measurements.append(measurement)

    def list_pass(self, name: str, inputs: int) -> None:
        """Record a pass over some prompts; `finish` writes it into the manifest."""
        self._passes[name] = inputs

    def finish(
        self,
        verdicts: list[Verdict],
        last: Callable[[Run], object] = lambda run: None,
        stages: Callable[[], Mapping[str, Any]] = dict,
        work: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Run:
        """Write measurements and verdicts, remove what a longer run left, close the manifest.

        Parameters
        ----------
        verdicts
            Verdicts of the run.
        last
            Called before the manifest is closed, to write what is made of the finished run.
        stages
            Returns the time of each stage, for the manifest.
        work
            Returns which processes made the shards; None where this one made them.
        """
        self._lock.check()
        self.run.write_measurements(self._measurements)
        self.run.write_verdicts(verdicts)
        for name in set(self.run.tables()) - self._tables:
            remove_table(self.run.folder / "tables", name)
        for name in set(self.run.arrays()) - self._arrays:
            remove_file(self.run.folder / "arrays" / f"{name}.safetensors")
        last(self.run)
        self._lock.check()
        resolved = self.run.read_manifest().config_resolved
        if self._passes and not isinstance(resolved, Unavailable):
            resolved = {**resolved, "passes": self._passes}
        self.run.update_manifest(
            config_resolved=resolved,
            wall_time=time.monotonic() - self._started,
            files=self.run.file_hashes(),
            stages=stages(),
            work=ALONE if work is None else work(),
        )
        self.release()
        return self.run

    def release(self) -> None:
        """Let other processes write the folder."""
        self._lock.release()


def _opened(folder: Path, manifest: Manifest, places: Collection[str]) -> Run:
    """Run in a folder that this process has locked."""
    if is_file(folder / "manifest.json"):
        run = Run.open(folder)
        refuse_another(folder, run.read_manifest(), manifest, places)
        run.update_manifest(
            **{part.name: getattr(manifest, part.name) for part in fields(manifest)}
        )
    elif has_remains(folder):
        run = Run.recreate(folder, manifest)
        warnings.warn(
            f"{folder} had no manifest.json, so that nothing said how its tables were made: they "
            "are measured again, and finished pieces that fit are used.",
            RecordWarning,
            stacklevel=5,
        )
    else:
        run = Run.create(folder, manifest)
    run.remove_leftovers()
    return run


def default_folder(out: str, instrument: Instrument, subject: Subject, manifest: Manifest) -> Path:
    """Folder of this run alone: its name holds a hash of everything that decides the numbers."""
    model = Path(subject.source).name.replace(" ", "-")[:_LONGEST_NAME] or "model"
    key = run_key(manifest, places_of(instrument))
    return Path(out) / f"{instrument.name}-{model}-{key[:6]}"


def lending_folders(folder: Path, instrument: Instrument) -> tuple[Path, ...]:
    """Shards of other runs of an instrument beside a folder; their names say what decides them."""
    try:
        beside = sorted(folder.absolute().parent.glob(f"{instrument.name}-*/shards"))
    except OSError:  # a name that is too long; who writes the folder says so
        return ()
    return tuple(shards for shards in beside if shards.parent != folder.absolute())


def places_of(instrument: Instrument) -> frozenset[str]:
    """Settings that record where an object lies that the caller may give instead."""
    return frozenset(argument.setting for argument in instrument.arguments if argument.setting)


def manifest_of(
    instrument: Instrument,
    config: Config,
    subject: Subject,
    only: Sequence[str] = (),
    study: Config | None = None,
) -> Manifest:
    """Where a run comes from, before it has finished.

    The resolved settings name the instrument as ``command``, the selected claims and stages as
    ``only`` where the run does not walk all stages, and the settings that a study adds as
    ``study``.
    """
    weights, seed = subject.weight_hash, int(getattr(config, "seed", 0))
    more = {"command": instrument.name, "model": subject.source, "measured": dict(subject.facts)}
    more |= {"only": list(only)} if only else {}
    more |= {"study": _additions(study, config)} if study is not None else {}
    return Manifest(
        config_given=config.model_dump(mode="json", exclude_defaults=True),
        config_resolved={**config.model_dump(mode="json"), **more},
        seeds={"bootstrap": seed, "random_weights": seed},
        versions=library_versions(),
        device=subject.device,
        weight_hashes=weights if isinstance(weights, Unavailable) else {"model": weights},
        data_hashes=dict(subject.hashes),
        wall_time=UNFINISHED,
        commit=commit(),
        created_at=datetime.now(UTC).isoformat(),
        marks=_strict(subject.marks),
        files=UNFINISHED,
        stages=UNFINISHED,
        work=UNFINISHED,
    )


def _additions(study: Config, config: Config) -> dict[str, Any]:
    """Settings of a study without those of its instrument."""
    groups = {name for name in type(study).model_fields if _same_kind(study, name, config)}
    return study.model_dump(mode="json", exclude=groups)


def _same_kind(study: Config, name: str, config: Config) -> bool:
    return isinstance(config, type(getattr(study, name)))


def _strict(value: Any) -> Any:
    """Marks with text for every key and for what JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else _clean(value)


def _clean(value: Any) -> str:
    """Text that a manifest can hold."""
    return str(value).replace("\0", "␀").encode("utf-8", "backslashreplace").decode()


@cache
def commit() -> str | Unavailable:
    """Commit of flowscope's checkout, when it runs from one."""
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    # A repository that only holds the environment in which flowscope is installed does not count.
    for command in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
        try:
            done = subprocess.run(
                [*git, *command], capture_output=True, text=True, timeout=5, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return Unavailable("git did not answer")
        if done.returncode:
            return Unavailable("flowscope is installed, not checked out")
    return done.stdout.strip()
