"""The command line: a command per instrument, made from its settings, and eight more.

Exit codes: 0 done, 1 error (or the model is refused), 3 abstained, 130 interrupted. With ``--json``
one JSON document is on standard output and nothing else; progress and warnings go to stderr.
"""

import os
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from flowscope import __version__
from flowscope.cli.completion import complete_run
from flowscope.cli.errors import ABSTAINED, DEBUG, DONE, ERROR
from flowscope.cli.outcome import Outcome, ended, reported
from flowscope.cli.parameters import (
    ConfigFile,
    Json,
    Open,
    Overrides,
    RunFolder,
    command_help,
    only_parameter,
    resolved_settings,
    setting_parameters,
    with_parameters,
)
from flowscope.cli.reproducing import reproduce
from flowscope.cli.sharing import (
    Engaged,
    engine_parameters,
    merge,
    planned_outcome,
    planned_settings,
    work,
)
from flowscope.cli.terminal import (
    print_comparison,
    print_examination,
    print_runs,
    starting,
)
from flowscope.lab.registry import instruments
from flowscope.lab.running.selection import only_names, selected
from flowscope.models.config import DoctorConfig

if TYPE_CHECKING:
    from flowscope.lab.config import Config
    from flowscope.lab.instrument import Instrument
    from flowscope.lab.result import Result

__all__ = ["app", "main"]

_EXIT_CODES = "Exit codes: 0 done, 1 error, 3 every verdict abstains, 130 interrupted."
app = typer.Typer(
    name="flowscope",
    help="Measure how a transformer or a diffusion model reaches its output, layer by layer or "
    "step by step, with intervals and controls.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """Entry point of the ``flowscope`` command."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"flowscope {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if debug:
        os.environ[DEBUG] = "1"


def _add_command(
    name: str, config: "type[Config]", run: Callable[..., None], epilog: str, *more: Parameter
) -> None:
    """Add a command whose parameters are the settings of ``config``, then ``more``."""
    made = with_parameters(run, [*setting_parameters(config), *more])
    app.command(name, help=command_help(config), epilog=epilog)(made)


def _doctor(
    *,
    overrides_: Overrides = None,
    file_: ConfigFile = None,
    json_: Json = False,
    settings_: bool = False,
    **values: Any,
) -> None:
    def command() -> Outcome:
        return _examined(resolved_settings(DoctorConfig, values, overrides_, file_))

    ended(json_, command)


def _examined(settings: DoctorConfig) -> Outcome:
    with starting():
        from flowscope.models.doctor import examined
    examination = examined(settings)
    return Outcome(
        document=examination.to_json(),
        show=lambda console: print_examination(examination, console),
        code=ERROR if examination.refused else DONE,
    )


def _measured(
    instrument: "Instrument",
    settings: "Config",
    only: str | None,
    engaged: Engaged,
    folder: Path | None,
) -> Outcome:
    names = only_names(only)
    selected(instrument.stages, names)  # an unknown name is refused before torch loads
    with starting():
        from flowscope.lab import engine

        instrument.resolve(instrument.prepare)
    if engaged.plan:
        made = engine.planned(instrument, settings, folder=folder, only=names)
        return planned_outcome(made, instrument.name)
    result: Result = reported(
        lambda progress: engine.run(
            instrument,
            settings,
            folder=folder,
            progress=progress,
            only=names,
            choice=engaged.choice,
        )
    )
    document = result.to_json()
    show = instrument.resolve(instrument.headline)
    return Outcome(
        document=document,
        show=lambda console: _shown(document, show, console),
        code=ABSTAINED if result.abstained else DONE,
        page=Path(document["report"]),
    )


def _shown(
    document: Mapping[str, Any],
    headline: Callable[[Mapping[str, Any], Console], None],
    console: Console,
) -> None:
    """Print the findings of a run, the headline of its instrument, and where the time went."""
    # They load pandas, which --help does not need.
    from flowscope.report.terminal import print_findings, print_stages

    print_findings(document, console)
    headline(document, console)
    print_stages(document, console)
    if document.get("work"):
        console.print(escape(document["work"]["sentence"]), highlight=False)


def _add_instrument(instrument: "Instrument") -> None:
    config = instrument.config

    def run(
        *,
        overrides_: Overrides = None,
        file_: ConfigFile = None,
        only_: str | None = None,
        open_: Open = False,
        json_: Json = False,
        settings_: bool = False,
        **values: Any,
    ) -> None:
        def command() -> Outcome:
            engaged = Engaged.taken(values)
            folder, planned, chosen = planned_settings(str(values.get("out") or ""))
            settings = resolved_settings(config, values, overrides_, file_, planned)
            only = chosen if only_ is None else only_
            return _measured(instrument, settings, only, engaged, folder)

        ended(json_, command, open_page=open_)

    _add_command(
        instrument.name, config, run, _EXIT_CODES, only_parameter(instrument), *engine_parameters()
    )


_add_command("doctor", DoctorConfig, _doctor, "Exit code 1 when the model is refused.")
for _instrument in instruments():
    _add_instrument(_instrument)


def _added(function: Callable[..., None]) -> Callable[..., None]:
    """Add a command that no instrument has; its docstring is its help."""
    return app.command(help=command_help(function))(function)


_added(reproduce)
_added(work)
_added(merge)


@_added
def report(
    run: RunFolder,
    judge: Annotated[
        bool, typer.Option("--judge", help="Judge again from the tables first (default: no).")
    ] = False,
    png: Annotated[
        bool, typer.Option("--png", help="Write each figure as figures/NAME.png (default: no).")
    ] = False,
    open_page: Open = False,
) -> None:
    """Write report.html of RUN again from its tables; no model is needed.

    With --judge the verdicts are made again from the tables, by the rules of this version. The
    verdicts of an audit are made while it measures and stay as they are.
    """

    def command() -> Outcome:
        from flowscope.lab.result import open_run

        result = open_run(run)
        if judge:
            result.judge()
        page = result.report(png=png)
        return Outcome(
            document={"report": str(page)},
            show=lambda console: console.print(f"report: {escape(str(page))}", soft_wrap=True),
            page=page,
        )

    ended(False, command, open_page=open_page)


@_added
def compare(
    first: RunFolder,
    second: Annotated[
        Path, typer.Argument(help="Another run folder.", autocompletion=complete_run)
    ],
    as_json: Json = False,
) -> None:
    """Show what changed from the run FIRST to the run SECOND, with intervals.

    Differences are taken within prompts when both runs read the same texts. A change is reported
    only if its interval, which covers all statistics and depths at once, leaves zero out; each run
    needs 8 prompts for that.
    """

    def command() -> Outcome:
        from flowscope.lab.display.compare import compare as compared

        comparison = compared(first, second)
        return Outcome(
            document=comparison.to_json(),
            show=lambda console: print_comparison(comparison, console),
        )

    ended(as_json, command)


@_added
def runs(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """List the runs below FOLDER, newest first: instrument, model, date, state and verdicts.

    A run is unfinished while it is measured or after it was interrupted, and damaged if a file was
    changed since it was written.
    """

    def command() -> Outcome:
        from flowscope.lab.display.listing import runs_below

        summaries = runs_below(folder)
        return Outcome(
            document={"runs": [summary.to_json() for summary in summaries]},
            show=lambda console: print_runs(summaries, folder, console),
        )

    ended(as_json, command)


@_added
def models() -> None:
    """List the models that ship with flowscope."""

    def command() -> Outcome:
        from flowscope.nets import bundled_models

        bundled = bundled_models()
        lines = [
            f"{model.name}: {model.layers} layers, {model.parameters:,} parameters, {model.quality}"
            for model in bundled
        ]
        return Outcome(
            document={"models": [model.name for model in bundled]},
            show=lambda console: print("\n".join(lines)),
        )

    ended(False, command)
