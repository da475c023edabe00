"""The driver of a run: starts workers, takes part in making the shards, says how the work went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowscope.errors import InvalidInputError
from flowscope.lab.engines import processes
from flowscope.lab.engines.beside import Helpers, fewer_threads
from flowscope.lab.engines.choice import EngineChoice, Share
from flowscope.lab.engines.claims import forget_claims
from flowscope.lab.engines.crew import WorkCrew
from flowscope.lab.engines.journal import Journal
from flowscope.lab.engines.plan import Plan, read_plan

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument, Stage

__all__ = [
    "Driver",
    "driver_of",
    "refuse_alone",
    "refuse_objects",
    "refuse_unreachable",
    "shared_stages",
]


@dataclass(kw_only=True)
class Driver:
    """The process that finishes a run which others may work on.

    Attributes
    ----------
    run, choice, crew
        The run folder, the engine, and this process among those that make the shards.
    helpers
        Workers that this process started, or none.
    """

    run: Path
    choice: EngineChoice
    crew: WorkCrew
    helpers: Helpers
    started: float

    def record(self) -> Mapping[str, Any]:
        """How the work went, for the manifest."""
        makings = self.crew.journal.makings()
        counts = Counter(made.task for made in makings)
        parallel = sum(made.seconds for made in makings)  # also by workers before this process
        serial = max(time.time() - self.started - self.crew.seconds, 0.0)
        return {
            "engine": self.choice.name,
            "workers": 1 + self.helpers.count,
            "shards": len(counts),
            "made_twice": sorted(name for name, count in counts.items() if count > 1),
            "made_by": dict(sorted(Counter(made.by for made in makings).items())),
            "failures": dict(self.crew.journal.failed_tasks()),
            "shard_seconds": parallel,
            "serial_seconds": serial,
            "serial_share": serial / (serial + parallel) if serial + parallel else 0.0,
        }

    def walked(self, stage: Stage, stages: Sequence[Stage]) -> None:
        """Hear that a stage is done: after the last one that gives shards the workers are gone."""
        shared = shared_stages(stages)
        if shared and stage is shared[-1]:
            self.crew.over()

    def finish(self) -> None:
        """Forget what only a run under way needs."""
        forget_claims(self.run)
        self.crew.journal.forget_failures()


@contextmanager
def driver_of(choice: EngineChoice, run: Path, plan: Plan, device: str) -> Iterator[Driver | None]:
    """Driver of a run; None where this process is alone and no worker knows the run.

    Parameters
    ----------
    choice
        Engine and workers.
    run
        The run folder, which this process has locked.
    plan
        What workers are to measure.
    device
        Kind of device of the run.
    """
    alone = choice.name == "local" or choice.workers == 1
    known = read_plan(run) is not None
    if alone and not known:
        yield None
        return
    started = time.time()
    plan.write(run)
    Journal(run).forget_failures()  # whoever calls again wants them tried again
    with _helpers(choice, run, device) as helpers, fewer_threads(1 + helpers.count) as over:
        share = Share(1, 1 + helpers.count)
        crew = WorkCrew(run, share, helps=False, ended=helpers.look, over=over)
        yield Driver(run=run, choice=choice, crew=crew, helpers=helpers, started=started)


def shared_stages(stages: Sequence[Stage]) -> Sequence[Stage]:
    """Stages up to the last one that gives shards, which is where workers leave."""
    last = max((place for place, stage in enumerate(stages) if stage.settings), default=-1)
    return stages[: last + 1]


def _helpers(choice: EngineChoice, run: Path, device: str) -> AbstractContextManager[Helpers]:
    if choice.name == "ray":
        from flowscope.lab.engines import ray_actors

        return ray_actors.started(choice, run, device)
    return processes.started(choice, run, device)


def refuse_objects(choice: EngineChoice, objects: Mapping[str, Any]) -> None:
    """Refuse objects of this process where others are to measure the same.

    Raises
    ------
    InvalidInputError
        Something was given that no other process can load.
    """
    if choice.name != "local" and objects:
        names = ", ".join(objects)
        raise InvalidInputError(
            f"The engine {choice.name} measures in several processes, and each must load what is "
            f"measured: give a folder or a hub id and a file of texts; got objects ({names}). "
            "Or leave the engine out."
        )


def refuse_alone(instrument: Instrument) -> None:
    """Refuse several processes where an instrument must be measured by one.

    Raises
    ------
    InvalidInputError
        The instrument says why.
    """
    if instrument.alone:
        raise InvalidInputError(
            f"{instrument.name} is measured by one process: {instrument.alone}. Leave the engine "
            "out."
        )


def refuse_unreachable(choice: EngineChoice) -> None:
    """Refuse an engine that is not there, before anything is loaded.

    Raises
    ------
    WorkerError
        Ray is not installed, or nobody listens at the address of the cluster.
    """
    if choice.name == "ray":
        from flowscope.lab.engines import ray_actors

        ray_actors.refuse_unreachable(choice)
