"""A worker: measures what a run needs, writes shards into its folder, and nothing else.

It walks the stages as the driver does, in a folder of its own that is thrown away, because a stage
may read what an earlier one wrote. Judging, tables and the end of the run belong to the driver.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flowscope.errors import FlowscopeError, RecordError, RecordWarning, WorkerError
from flowscope.lab import engine, registry
from flowscope.lab.bench import Bench
from flowscope.lab.engines.choice import Share
from flowscope.lab.engines.crew import NothingLeft, WorkCrew
from flowscope.lab.engines.driving import shared_stages
from flowscope.lab.engines.plan import Plan, read_plan
from flowscope.lab.running.identity import differences
from flowscope.lab.running.modes import evaluation
from flowscope.lab.running.progress import Progress
from flowscope.lab.running.selection import selected
from flowscope.lab.running.writing import manifest_of, places_of
from flowscope.records import Run

__all__ = ["Worked", "work"]

_NAMED = 3


@dataclass(frozen=True)
class Worked:
    """How many tasks a worker made, and where."""

    run: Path
    made: int


def work(
    folder: Path,
    share: Share = Share(),  # noqa: B008 - frozen
    *,
    device: str | None = None,
    progress: Progress | None = None,
) -> Worked:
    """Make shards of a planned run until nothing is left.

    Parameters
    ----------
    folder
        The run folder.
    share
        Where to begin.
    device
        Device of this worker's model, of the same kind as that of the run; None for the same.
    progress
        Called with (stage, done, total).

    Raises
    ------
    RecordError
        The folder holds no plan, or cannot be written; or this worker would measure another run:
        other versions, weights, data or settings. Nothing was written then.
    WorkerError
        A shard failed for the third time.
    """
    run, plan = planned(folder)
    place = chdir(plan.folder) if Path(plan.folder).is_dir() else nullcontext()
    with place, evaluation(()) as mode:
        bench_of = _prepared_bench(run, plan, device, mode)
        crew = WorkCrew(run.folder, share, helps=True)
        with tempfile.TemporaryDirectory(prefix="flowscope-worker-") as scratch:
            bench = bench_of(Path(scratch) / "run", crew, progress)
            try:
                for stage in shared_stages(bench.stages):
                    engine.walk(stage, bench)
            except NothingLeft:
                pass
            finally:
                bench.release()
    return Worked(run.folder, crew.made)


def planned(folder: Path) -> tuple[Run, Plan]:
    """A run folder and its plan.

    Raises
    ------
    RecordError
        It is no run folder, or was not planned.
    """
    run = Run.open(folder)
    plan = read_plan(run.folder)
    if plan is None:
        raise RecordError(
            f"{run.folder} has no plan, so that a worker does not know what to measure. Run the "
            "command that made it once more with --plan, then give the folder that it prints."
        )
    return run, plan


def _prepared_bench(run: Run, plan: Plan, device: str | None, mode: str) -> Any:
    """Load what is measured, and refuse what would not be the same run."""
    instrument, config, settings = registry.instrument(plan.instrument), plan.config, None
    more = registry.study(plan.study) if plan.study else None
    if more is not None:
        settings = plan.study_config
    if device is not None and "device" in type(config).model_fields:
        config = config.model_copy(update={"device": device})
    study = (more, settings) if more is not None and settings is not None else None
    config, subject = engine.prepared(instrument, config, {}, study)
    if mode:
        subject = replace(subject, facts={**subject.facts, "mode": mode})
    mine = manifest_of(instrument, config, subject, plan.only, settings)
    _refuse_stranger(run, mine, places_of(instrument))
    stages = selected(instrument.stages if more is None else more.walk, plan.only)

    def made(folder: Path, crew: WorkCrew, progress: Progress | None) -> Bench[Any, Any]:
        bench: Bench[Any, Any] = Bench(
            instrument,
            config,
            subject,
            folder=folder,
            progress=progress,
            study=settings,
            only=plan.only,
        )
        bench.stages = stages
        bench.share(crew, run)
        return bench

    return made


def _refuse_stranger(run: Run, mine: Any, places: Any) -> None:
    found = differences(run.read_manifest(), mine, places)
    if found:
        named = "; ".join(
            f"{name} is {there} in the run and {here} here" for name, there, here in found[:_NAMED]
        )
        raise RecordError(
            f"This worker would not measure what {run.folder} holds: {named}. Nothing was written. "
            "Give every worker the same versions, weights and texts."
        )


def _main(arguments: Sequence[str]) -> int:
    """``python -m flowscope.lab.engines.working RUN SHARE [DEVICE]``, a worker of ``processes``.

    It ends when its standard input does, which is when the driver has ended in any way.
    """
    # All temporary files lie in one folder, so that none stays when the driver ends.
    tempfile.tempdir = tempfile.mkdtemp(prefix="flowscope-worker-")
    threading.Thread(target=_end_with_driver, args=(tempfile.tempdir,), daemon=True).start()
    run, share, *device = arguments
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordWarning)
            done = work(Path(run), Share.of(share), device=device[0] if device else None)
    except FlowscopeError as error:
        sys.stderr.write(f"{error}\n")
        return 3 if isinstance(error, WorkerError) else 1
    finally:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    sys.stderr.write(f"{done.made} shards made\n")
    return 0


def _end_with_driver(temporary: str) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    shutil.rmtree(temporary, ignore_errors=True)
    os._exit(4)


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
