"""What every command shares: the application, its options, errors as sentences, progress bars."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

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

from flowscope.errors import FlowscopeError

if TYPE_CHECKING:
    from flowscope.runs import Audit, Heads, Image, Reproduction, Sync

__all__ = [
    "ABSTAINED",
    "DONE",
    "ERROR",
    "INTERRUPTED",
    "ConfigFile",
    "Device",
    "Dtype",
    "Json",
    "Model",
    "Out",
    "Overrides",
    "Seed",
    "Text",
    "Tokens",
    "app",
    "progress",
    "reported",
    "starting",
    "told",
]

DONE, ERROR, ABSTAINED, INTERRUPTED = 0, 1, 3, 130
Found = TypeVar("Found", "Audit", "Heads", "Image", "Reproduction", "Sync")
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
Model = Annotated[
    str | None,
    typer.Argument(help="A folder, a hub id, or a .gguf file; the bundled model if none."),
]
Out = Annotated[str | None, typer.Option(help="Folder for runs (default: out).")]
Device = Annotated[str | None, typer.Option(help="Where to load it, e.g. cuda:0.")]
Dtype = Annotated[str | None, typer.Option(help="Precision of the weights.")]
Text = Annotated[
    str | None, typer.Option(help="A text file, a .jsonl of prompts, or - for standard input.")
]
Tokens = Annotated[int | None, typer.Option(help="How many tokens of each (default: 128).")]
Seed = Annotated[int | None, typer.Option(help="Seed of resampling and controls (default: 0).")]


@contextmanager
def told(as_json: bool) -> Iterator[None]:
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


@contextmanager
def starting() -> Iterator[None]:
    """Torch takes seconds to import; a loader's bars belong on a screen, not in a log."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    with Console(stderr=True).status("starting torch …"):
        yield


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
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


def reported(job: Callable[[Callable[[str, int, int], None]], Found]) -> Found:
    """Run a job under progress bars and write its report."""
    with progress() as advance:
        found = job(advance)
        advance("report", 0, 1)
        found.report()
        advance("report", 1, 1)
    return found
