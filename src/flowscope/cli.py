"""The command line: arguments in, runs started, results shown. No logic of its own.

Exit codes: 0 done, 1 error (or the model is refused), 3 abstained, 130 interrupted. With ``--json``
one JSON document is on standard output and nothing else; progress and warnings go to stderr.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from flowscope import __version__
from flowscope.errors import FlowscopeError

if TYPE_CHECKING:
    from flowscope.runs import Audit, Examination

__all__ = ["app", "main"]

DONE, ERROR, ABSTAINED, INTERRUPTED = 0, 1, 3, 130
app = typer.Typer(
    name="flowscope",
    help="Read any transformer or diffusion model as a discretised entropic-transport flow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override one setting; repeatable."),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings as a YAML file.")
]


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
) -> None:
    pass


@contextmanager
def _told(as_json: bool) -> Iterator[None]:
    """Errors become one sentence (or one JSON document) and exit code 1; output stays clean."""
    stdout = sys.stdout
    if as_json:
        sys.stdout = sys.stderr  # libraries that print must not spoil the document
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout = stdout
        again = "interrupted; what was finished is kept, the same command goes on from there"
        Console(stderr=True).print(again)
        raise typer.Exit(INTERRUPTED) from None
    except FlowscopeError as error:
        sys.stdout = stdout
        if as_json:
            print(json.dumps({"error": str(error), "kind": type(error).__name__}))
        else:
            Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}")
        raise typer.Exit(ERROR) from error
    finally:
        sys.stdout = stdout


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="A folder, a hub id, or a .gguf file.")],
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    device: Annotated[str | None, typer.Option(help="Where to load it, e.g. cuda:0.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Precision of the weights.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a hub id.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let code beside the weights run.")
    ] = False,
) -> None:
    """Show what can be measured on MODEL, what cannot, and why.

    The model is run on two short rows, bare and under the tap; what is shown is what was seen.
    Exit code 1 when the model is refused.
    """
    with _told(as_json):
        given = {"model": model, "device": device, "dtype": dtype, "revision": revision}
        found = _examined(
            {**given, "trust_remote_code": trust_remote_code or None}, overrides, config
        )
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _show(found)
    raise typer.Exit(ERROR if found.refused else DONE)


def _examined(
    given: dict[str, Any], overrides: list[str] | None, file: Path | None
) -> "Examination":
    if not sys.stderr.isatty():  # a loader's bars belong on a screen, not in a log
        os.environ.setdefault("TQDM_DISABLE", "1")
    with Console(stderr=True).status("starting torch …"):
        from flowscope.runs import DoctorConfig, examined

        config = DoctorConfig.resolved(given, overrides or (), file)
    return examined(config)


Model = Annotated[
    str | None,
    typer.Argument(help="A folder, a hub id, or a .gguf file; the bundled model if none."),
]


@app.command()
def audit(
    model: Model = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    text: Annotated[
        str | None, typer.Option(help="A text file, a .jsonl of prompts, or - for standard input.")
    ] = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts [64].")] = None,
    tokens: Annotated[int | None, typer.Option(help="How many tokens of each [128].")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for runs [out].")] = None,
    device: Annotated[str | None, typer.Option(help="Where to load it, e.g. cuda:0.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Precision of the weights.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of resampling and controls [0].")] = None,
) -> None:
    """Show where along depth MODEL moves its probability mass, and where it has made up its mind.

    Writes a run folder with tables, verdicts P0 to P4 and report.html. A run that was
    interrupted is taken up where it stopped. Exit code 3 when every verdict abstains.
    """
    given = {
        "model": model,
        "text": text,
        "prompts": prompts,
        "tokens": tokens,
        "out": out,
        "device": device,
        "dtype": dtype,
        "seed": seed,
    }
    with _told(as_json):
        found = _audited(given, overrides, config)
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        _show_audit(found)
    abstained = all(v["decision"] == "abstains" for v in document["verdicts"])
    raise typer.Exit(ABSTAINED if abstained else DONE)


def _audited(given: dict[str, Any], overrides: list[str] | None, file: Path | None) -> "Audit":
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    with Console(stderr=True).status("starting torch …"):
        from flowscope.runs import AuditConfig, audited

        config = AuditConfig.resolved(given, overrides or (), file)
    with _progress() as advance:
        found = audited(config, advance)
        advance("report", 0, 1)
        found.report()
        advance("report", 1, 1)
    return found


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage with the time left, on standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield advance


def _show_audit(found: "Audit") -> None:
    console = Console()
    document = found.to_json()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['model'])}[/]  {measured['prompts']} prompts, "
        f"{measured['tokens']} tokens"
    )
    colours = {"holds": "green", "fails": "red", "abstains": "yellow"}
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in document["verdicts"]:
        colour = colours[verdict["decision"]]
        because = escape(verdict["because"])
        table.add_row(f"[bold]{verdict['name']}[/]", f"[{colour}]{verdict['decision']}[/]", because)
    console.print(table)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="Which experiment, e.g. track_t.")],
    model: Model = None,
    as_json: Json = False,
    overrides: Overrides = None,
    config: ConfigFile = None,
    text: Annotated[str | None, typer.Option(help="A text file, or a .jsonl of prompts.")] = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts.")] = None,
    tokens: Annotated[int | None, typer.Option(help="How many tokens of each.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for runs [out].")] = None,
    device: Annotated[str | None, typer.Option(help="Where to load it, e.g. cuda:0.")] = None,
) -> None:
    """Run one experiment of the sources on MODEL and show what agrees with them.

    Settings come from the study's YAML; --config takes another one, --set audit.seed=1 changes
    one. The table of claims, every table behind it and report.html are in the run folder.
    """
    audit = {"text": text, "prompts": prompts, "tokens": tokens, "out": out, "device": device}
    with _told(as_json):
        with Console(stderr=True).status("starting torch …"):
            from flowscope.runs import reproduce as run
        with _progress() as advance:
            found = run(
                study, model, progress=advance, file=config, overrides=overrides or (), **audit
            )
            advance("report", 0, 1)
            found.audit.report()
            advance("report", 1, 1)
        document = found.to_json()
    if as_json:
        print(json.dumps(document, ensure_ascii=False))
    else:
        _show_claims(document)


def _show_claims(document: dict[str, Any]) -> None:
    console = Console()
    measured = document["measured"]
    console.print(
        f"[bold]{escape(document['study'])}[/] on [bold]{escape(document['model'])}[/]  "
        f"{measured['prompts']} prompts, {measured['tokens']} tokens"
    )
    colours = {"yes": "green", "no": "red"}
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("000 says", overflow="fold", ratio=3)
    table.add_column("we measure", overflow="fold", ratio=4)
    table.add_column("agrees?", overflow="fold", min_width=7)
    for claim in document["claims"]:
        colour = colours.get(claim["agrees"], "yellow")
        says = (
            f"[bold]{escape(claim['item'])}[/] ({escape(claim['where'])}): {escape(claim['says'])}"
        )
        table.add_row(says, escape(claim["measured"]), f"[{colour}]{claim['agrees']}[/]")
        table.add_section()
    console.print(table)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Rebuild report.html and the figures of RUN from its tables; no model is needed."""
    with _told(False):
        from flowscope.runs import rebuilt

        page = rebuilt(run)
    Console().print(f"report: {escape(str(page))}", soft_wrap=True)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another run folder.")],
    as_json: Json = False,
) -> None:
    """Show what changed from the run FIRST to the run SECOND, with intervals.

    Differences are taken within prompts when both runs read the same texts.
    """
    with _told(as_json):
        from flowscope.runs import compared_folders

        found = compared_folders(first, second)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
        return
    console = Console()
    how = "paired by prompt" if found.paired else "unpaired: the texts differ"
    console.print(f"second − first, {how}; 95 % intervals")
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("statistic", "depth", "first", "second", "difference", "interval"):
        table.add_column(name, justify="left" if name == "statistic" else "right", no_wrap=True)
    for row in found.to_json()["changes"]:
        numbers = (f"{row[name]:.3g}" for name in ("first", "second", "difference"))
        interval = f"{row['low']:.2g} … {row['high']:.2g}"
        table.add_row(row["statistic"], f"{row['depth']:.1f}", *numbers, interval)
    console.print(table if table.row_count else "no difference outside its interval")
    for row in found.to_json()["verdicts"]:
        if row["first"] != row["second"]:
            console.print(f"{row['name']}: {row['first']} → {row['second']}")


@app.command()
def models() -> None:
    """List the models that ship with flowscope."""
    with _told(False):
        from flowscope.runs import bundled_models

        for model in bundled_models():
            print(
                f"{model.name}: {model.layers} layers, {model.parameters:,} parameters, held-out "
                f"perplexity {model.perplexity:.1f}"
            )


def _show(found: "Examination") -> None:
    console = Console()
    verdict = "[bold red]refused[/]" if found.refused else "[bold green]readable[/]"
    console.print(f"[bold]{escape(found.model)}[/]  {found.kind}  {verdict}")
    table = Table(show_header=False, box=None, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for chain in found.chains:
        table.add_row(
            "chain", f"{escape(chain.name)}: {len(chain)} blocks ({', '.join(chain.streams)})"
        )
    if not found.refused:
        table.add_row("depth", f"{found.blocks} blocks, {found.attention_calls} attention calls")
        table.add_row("writes", " + ".join(found.writes) or "none can be told apart")
        table.add_row("tail", found.tail_words)
    for number, line in enumerate(found.can):
        table.add_row("[green]can[/]" if number == 0 else "", escape(line))
    for number, obstacle in enumerate(found.cannot):
        label = "[yellow]cannot[/]" if number == 0 else ""
        table.add_row(label, f"[bold]{escape(obstacle.what)}[/]: {escape(obstacle.because)}")
    console.print(table)


if __name__ == "__main__":
    main()
