"""The engine: prepares the subject, walks the stages, judges, closes the run. Knows no instrument.

A stage whose ``measure`` raises `Abstention` gives no number: the reason is written as a
measurement of its name, and every claim of the stage abstains for it. A ``judge`` may abstain too:
the numbers stand and the claims abstain. An error of any other kind ends the run; what was finished
is in the folder, and the same call resumes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowscope.evidence import not_measured
from flowscope.lab.bench import Bench, Subject
from flowscope.lab.claim import Abstention, Claim, Missing
from flowscope.lab.config import Config
from flowscope.lab.engines.choice import LOCAL, EngineChoice
from flowscope.lab.engines.driving import (
    driver_of,
    refuse_alone,
    refuse_objects,
    refuse_unreachable,
)
from flowscope.lab.engines.plan import Plan
from flowscope.lab.instrument import Instrument, Stage
from flowscope.lab.running.clock import StageClock
from flowscope.lab.running.lock import FolderLock
from flowscope.lab.running.modes import evaluation
from flowscope.lab.running.progress import Progress
from flowscope.lab.running.selection import only_names, selected
from flowscope.lab.view import Records
from flowscope.records import Run, Unavailable, Verdict
from flowscope.records.manifest import JUDGING
from flowscope.records.verdict_text import verdict_label

if TYPE_CHECKING:
    from flowscope.lab.result import Result
    from flowscope.lab.study import Study

__all__ = ["judged", "opened_bench", "planned", "prepared", "rejudge", "run", "walk"]

_HOST = "cpu"
"""Where the subject is prepared, before its device is decided."""


def run(
    instrument: Instrument,
    config: Config,
    *,
    given: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
    study: tuple[Study, Config] | None = None,
    only: str | Sequence[str] = (),
    choice: EngineChoice = LOCAL,
) -> Result:
    """Measure one subject with one instrument into one run folder.

    Parameters
    ----------
    instrument, config
        What measures, and its resolved settings.
    given
        Objects by the names of `Instrument.arguments`; what is absent or None comes from the
        settings.
    folder
        Run folder; by default one below ``config.out`` named after instrument, model and data. An
        unfinished run in it is resumed.
    progress
        Called with (stage, done, total).
    study
        A study and its settings: its stages follow those of the instrument, or stand alone where
        the study makes its own subject.
    only
        Names of claims or stages: only their stages, and those that they build on, are run. All
        are run when it is empty.
    choice
        Engine that makes the shards, by default this process alone.
    """
    more = study[0] if study is not None else None
    with _opened(instrument, config, given, folder, progress, study, only, choice) as opened:
        bench, plan = opened
        with driver_of(choice, bench.records.folder, plan, bench.subject.device) as driver:
            if driver is not None:
                bench.share(driver.crew)
            for stage in bench.stages:
                with bench.clock.part(stage.name, bench.subject.device):
                    walk(stage, bench)
                if driver is not None:
                    driver.walked(stage, bench.stages)
            work = None if driver is None else driver.record
            finished = bench.close(partial(_state, more), work)
            if driver is not None:
                driver.finish()
    result: Result = instrument.resolve(instrument.result)(run=finished)
    return result


def planned(
    instrument: Instrument,
    config: Config,
    *,
    folder: Path | None = None,
    study: tuple[Study, Config] | None = None,
    only: str | Sequence[str] = (),
) -> Path:
    """Make the folder of a run for workers, measure nothing, and return it.

    The parameters are those of `run`, which finishes the folder.
    """
    refuse_alone(instrument)
    with _opened(instrument, config, {}, folder, None, study, only, LOCAL) as (bench, plan):
        plan.write(bench.records.folder)
        return bench.records.folder


@contextmanager
def opened_bench(
    instrument: Instrument, config: Config, folder: Path
) -> Iterator[tuple[Bench[Any, Any], Plan]]:
    """Bench of a run that is prepared and not measured, and its plan."""
    with _opened(instrument, config, {}, folder, None, None, (), LOCAL) as opened:
        yield opened


@contextmanager
def _opened(
    instrument: Instrument,
    config: Config,
    given: Mapping[str, Any] | None,
    folder: Path | None,
    progress: Progress | None,
    study: tuple[Study, Config] | None,
    only: str | Sequence[str],
    choice: EngineChoice,
) -> Iterator[tuple[Bench[Any, Any], Plan]]:
    """Bench of a run in its folder, locked, and the plan for workers."""
    more, settings = study if study is not None else (None, None)
    names = only_names(only)
    stages = selected(instrument.stages if more is None else more.walk, names)
    objects = {name: value for name, value in (given or {}).items() if value is not None}
    refuse_objects(choice, objects)
    if choice.name != "local":
        refuse_alone(instrument)
    refuse_unreachable(choice)  # before the model is loaded
    plan = Plan.of(instrument, config, names, more, settings)
    with evaluation(objects.values()) as mode:
        clock = StageClock()
        with clock.part("loading", _HOST):
            config, subject = prepared(instrument, config, objects, study)
        if mode:
            subject = replace(subject, facts={**subject.facts, "mode": mode})
        bench: Bench[Any, Any] = Bench(
            instrument,
            config,
            subject,
            folder=folder,
            progress=progress,
            study=settings,
            only=names,
            clock=clock,
        )
        bench.stages = stages
        try:
            yield bench, plan
        finally:
            bench.release()


def prepared(
    instrument: Instrument,
    config: Config,
    objects: Mapping[str, Any],
    study: tuple[Study, Config] | None,
) -> tuple[Config, Subject]:
    """Settings and subject: those of the instrument, or the subject that its study makes."""
    if study is not None and study[0].prepare:
        return config, study[0].resolve(study[0].prepare)(study[1])
    prepared: tuple[Config, Subject] = instrument.resolve(instrument.prepare)(config, objects)
    return prepared


def _state(study: Study | None, run: Run) -> None:
    """Write the table of claims of a study."""
    if study is not None:
        run.write_table(study.name, study.resolve(study.statements)(run))


def rejudge(result: Result) -> None:
    """Judge a finished run again from its folder, and state the claims of its study again.

    A verdict stays as it is where its stage has no judge, or where the run lacks the table that the
    judge reads.

    Raises
    ------
    RecordError
        Another process writes the folder.
    """
    run = result.run
    with FolderLock.take(run.folder):
        files, before = run.read_manifest().files, run.file_hashes()
        run.update_manifest(files=JUDGING)
        _rejudge(result)
        run.update_manifest(files=_relisted(files, before, run.file_hashes()))


def _relisted(
    files: Mapping[str, str] | Unavailable, before: Mapping[str, str], after: Mapping[str, str]
) -> Mapping[str, str] | Unavailable:
    """Files of a run after some were written again; a strange one among the others stays so."""
    if isinstance(files, Unavailable):
        return after if files.reason == JUDGING.reason else files
    same = {name: files[name] for name in files if before.get(name) == after.get(name)}
    return same | {name: after[name] for name in after if before.get(name) != after[name]}


def _rejudge(result: Result) -> None:
    instrument, records = result.instrument, Records(run=result.run)
    verdicts = {verdict.name: verdict for verdict in result.verdicts}
    every = (instrument.study(reference) for reference in instrument.studies)
    studies = [study for study in every if study.name in result.run.tables()]
    stages = selected(instrument.stages, result.settings.get("only", ()))
    for stage in (*stages, *(stage for study in studies for stage in study.stages)):
        if stage.judge:
            with suppress(Missing):
                verdicts |= {verdict.name: verdict for verdict in judged(stage, records)}
    result.run.write_verdicts([verdicts[name] for name in sorted(verdicts)])
    for study in studies:
        _state(study, result.run)


def walk(stage: Stage, bench: Bench[Any, Any]) -> None:
    """Measure and judge one stage, or let it abstain."""
    bench.begin(stage)
    try:
        _require(stage.needs, bench)
        stage.resolve(stage.measure)(bench)
    except Abstention as reason:
        bench.abstain(stage.name, str(reason))
        verdicts = [not_measured(claim, str(reason)) for claim in stage.claims]
    else:
        verdicts = judged(stage, Records(run=bench.records)) if stage.judge else bench.decided
        _check(stage, verdicts)
    bench.verdicts |= {verdict.name: verdict for verdict in verdicts}


def _require(claims: Iterable[Claim], bench: Bench[Any, Any]) -> None:
    for claim in claims:
        verdict = bench.verdicts[claim.name]
        if verdict.decision != "holds":
            label = verdict_label(claim.name, claim.title)
            raise Abstention(f"{label} does not hold: {verdict.because}")


def judged(stage: Stage, records: Records) -> list[Verdict]:
    """Verdicts of a stage from the records alone."""
    try:
        return list(stage.resolve(stage.judge)(records))
    except Abstention as reason:
        return [not_measured(claim, str(reason)) for claim in stage.claims]


def _check(stage: Stage, verdicts: Iterable[Verdict]) -> None:
    names = {verdict.name for verdict in verdicts}
    expected = {claim.name for claim in stage.claims}
    if names != expected:
        raise RuntimeError(
            f"The stage {stage.name!r} declares the claims {sorted(expected)} and judged "
            f"{sorted(names)}."
        )
