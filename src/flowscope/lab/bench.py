"""The bench: all that a stage may touch while it measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.lab.config import Config
from flowscope.lab.instrument import Instrument, Stage
from flowscope.lab.running.clock import StageClock
from flowscope.lab.running.progress import Counter, Progress, silent
from flowscope.lab.running.writing import (
    RunWriter,
    commit,
    default_folder,
    lending_folders,
    manifest_of,
    places_of,
)
from flowscope.records import (
    Crew,
    Measurement,
    Run,
    Shards,
    Unavailable,
    Verdict,
    library_versions,
)

if TYPE_CHECKING:
    import torch

__all__ = ["Bench", "Counter", "Progress", "Subject", "seeded_generator", "shard_fingerprint"]

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What is measured. Instruments extend it with the model and its inputs.

    Attributes
    ----------
    source, device, weight_hash
        Where the model comes from, where it is, and the sha256 of its weights.
    marks
        What decides the numbers besides the settings: hashes of weights and data, schedules.
    facts
        How much is read, for the manifest and the head of the report.
    hashes
        Sha256 of the data by name, for the manifest.
    """

    source: str
    device: str
    weight_hash: str | Unavailable
    marks: Mapping[str, Any]
    facts: Mapping[str, Any]
    hashes: Mapping[str, str] = field(default_factory=dict)


S = TypeVar("S", bound=Subject)
C = TypeVar("C", bound=Config)


class Bench(Generic[S, C]):
    """One run on its way: the subject, the settings, and where a stage puts its results.

    Attributes
    ----------
    subject, config
        What is measured, and the resolved settings.
    study
        Settings of the study that the run belongs to; None outside a study.
    records
        The run folder.
    verdicts
        Verdicts of the stages that are finished, by name.
    decided
        Verdicts that the running stage made while it measured.
    stages
        Stages of the run, in the order in which they run.
    clock
        Time of each stage.
    """

    def __init__(
        self,
        instrument: Instrument,
        config: C,
        subject: S,
        *,
        folder: Path | None = None,
        progress: Progress | None = None,
        study: Config | None = None,
        only: Sequence[str] = (),
        clock: StageClock | None = None,
    ) -> None:
        self.clock = clock or StageClock()
        self.subject, self.config, self.study = subject, config, study
        self.verdicts: dict[str, Verdict] = {}
        self.progress: Progress = progress or silent
        self.decided: list[Verdict] = []
        self.stages: tuple[Stage, ...] = instrument.stages
        self._shared: dict[str, Any] = {}
        self._fingerprint = self._stage = ""
        manifest = manifest_of(instrument, config, subject, only, study)
        self._lenders: tuple[Path, ...] = ()
        self._crew: Crew | None = None
        self._store: Run | None = None
        if folder is None:
            out = str(getattr(config, "out", "out"))
            folder = default_folder(out, instrument, subject, manifest)
            self._lenders = lending_folders(folder, instrument)
        self._writer = RunWriter(folder, manifest, places_of(instrument))
        self.records: Run = self._writer.run

    def put(self, name: str, table: pd.DataFrame) -> None:
        """Write a table."""
        self._writer.put(name, table)

    def put_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays that the report shows."""
        self._writer.put_arrays(name, arrays)

    def note(self, measurement: Measurement) -> None:
        """Record a measurement; it is written when the run closes."""
        self._writer.note(measurement)

    def abstain(self, name: str, reason: str) -> None:
        """Record that one part of a stage gave no number, and why; the stage goes on."""
        self.note(Measurement.abstained(name, reason))

    def decide(self, *verdicts: Verdict) -> None:
        """Hand over verdicts that a stage without a judge made while it measured."""
        self.decided += verdicts

    def list_pass(self, name: str, inputs: int) -> None:
        """List a pass over some prompts of the subject in the manifest, under ``passes``."""
        self._writer.list_pass(name, inputs)

    def timed(self, name: str, device: str = "") -> AbstractContextManager[None]:
        """Time a part of the running stage apart from it; on the subject's device by default."""
        return self.clock.part(name, device or self.subject.device)

    def begin(self, stage: Stage) -> None:
        """Start a stage: from here on shards belong to it."""
        self._stage = stage.name
        self._fingerprint = self.fingerprint_of(stage)
        self.decided = []

    def fingerprint_of(self, stage: Stage) -> str:
        """Sha256 of what decides the shards of a stage."""
        config = self.config if self.study is None else _joined(self.config, self.study)
        return self._hash(config, stage.settings)

    def probes(self) -> tuple[dict[str, Any], dict[str, Shards]]:
        """Probes of all stages of this run by name, and the shards of the stage of each.

        The stage that runs first makes one pass over all inputs for all of them.
        """
        probes: dict[str, Any] = {}
        shards: dict[str, Shards] = {}
        for stage in self.stages:
            made = stage.resolve(stage.probes)(self) if stage.probes else {}
            store = self._shards_of(self.fingerprint_of(stage))
            for name in (name for name in made if name not in probes):
                probes[name], shards[name] = made[name], store
        return probes, shards

    @property
    def fingerprint(self) -> str:
        """Sha256 of what decides the shards of the stage that is running."""
        return self._fingerprint

    @property
    def shards(self) -> Shards:
        """Shards of the stage that is running."""
        return self._shards_of(self._fingerprint)

    def _shards_of(self, fingerprint: str) -> Shards:
        run = self.records if self._store is None else self._store
        return Shards(run=run, fingerprint=fingerprint, lenders=self._lenders, crew=self._crew)

    def share(self, crew: Crew, store: Run | None = None) -> None:
        """Make shards together with other processes.

        Parameters
        ----------
        crew
            This process among them.
        store
            Run folder of the shards, where tables are written into another one.
        """
        self._crew, self._store = crew, store

    def spread(self, makers: Mapping[str, Callable[[], Mapping[str, NDArray[Any]]]]) -> None:
        """Have several processes make pieces that do not need each other (`Shards.spread`).

        Where this process is alone nothing happens: `shard` makes each piece when it is asked for.
        """
        self.shards.spread(makers)

    def sharing_ends(self) -> None:
        """Say that the next pieces are the last of the stages that run: a worker leaves then."""
        later = self.stages[[stage.name for stage in self.stages].index(self._stage) + 1 :]
        probed = all(stage.probes for stage in later if stage.settings)
        if self._crew is not None and probed:
            self._crew.last = True

    def shard(
        self, name: str, make: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Arrays of a finished piece; made and written if the folder does not have them yet."""
        return self.shards.arrays(name, make)

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """Value that several stages share; the stage that asks first makes it."""
        if name not in self._shared:
            self._shared[name] = make()
        value: Value = self._shared[name]
        return value

    def shared(self, name: str) -> Any:
        """Value that an earlier stage made with `once`."""
        return self._shared[name]

    def counter(self, name: str, total: int = 1) -> Counter:
        """Progress bar of a part of a stage."""
        return Counter(self.progress, name, total)

    def generator(self, *key: int) -> torch.Generator:
        """Random numbers that depend on the seed of the run and this key alone."""
        return seeded_generator(int(getattr(self.config, "seed", 0)), *key)

    def close(
        self,
        last: Callable[[Run], object] = lambda run: None,
        work: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Run:
        """Write verdicts and measurements, call ``last`` on the run, close the manifest.

        ``work`` says which processes made the shards, where several may have.
        """
        verdicts = [self.verdicts[name] for name in sorted(self.verdicts)]
        return self._writer.finish(verdicts, last, self.clock.parts, work)

    def release(self) -> None:
        """Let other processes write the run folder; a finished run has done so."""
        self._writer.release()

    def _hash(self, config: Config | Mapping[str, Any], names: tuple[str, ...]) -> str:
        known = config if isinstance(config, Mapping) else config.model_dump(mode="json")
        settings = {name: known[name] for name in names}
        return shard_fingerprint(settings, self.subject.marks, self.subject.device)


def shard_fingerprint(settings: Mapping[str, Any], marks: Any, device: str) -> str:
    """Sha256 of what decides the shards of a stage, with the versions and the commit of now."""
    decides = {
        "settings": dict(settings),
        "marks": marks,
        "versions": {name: str(version) for name, version in library_versions().items()},
        "commit": str(commit()),
        "device": device.partition(":")[0],
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def seeded_generator(*key: int) -> torch.Generator:
    """Random numbers that depend on this key alone, the same on every machine."""
    import torch

    state = int(np.random.SeedSequence(list(key)).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def _joined(config: Config, study: Config) -> dict[str, Any]:
    """Settings of a study and of its instrument; a study has no setting of the same name."""
    return {**study.model_dump(mode="json"), **config.model_dump(mode="json")}
