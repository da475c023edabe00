"""The command line: arguments in, runs started, results shown. No logic of its own.

Exit codes: 0 done, 1 error (or the model is refused), 3 abstained. With ``--json`` one JSON
document is on standard output and nothing else; progress and warnings go to standard error.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope import __version__
from flowscope.errors import FlowscopeError

if TYPE_CHECKING:
    from flowscope.runs import Examination

__all__ = ["app", "main"]

DONE, ERROR, ABSTAINED = 0, 1, 3
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
