"""How every command ends: a document or a view, a page to open, an exit code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from flowscope.cli.console import Terminal
from flowscope.cli.errors import DONE, error_sentences
from flowscope.cli.terminal import open_in_browser, print_json
from flowscope.lab.running.bars import displayed_progress

if TYPE_CHECKING:
    from flowscope.lab.running.progress import Progress

__all__ = ["Outcome", "ended", "reported"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command ends with: its document, how a terminal shows it, its exit code, a page."""

    document: Mapping[str, Any]
    show: Callable[[Console], None]
    code: int = DONE
    page: Path | None = None


def ended(as_json: bool, command: Callable[[], Outcome], *, open_page: bool = False) -> NoReturn:
    """Run a command, print its document or its view, open its page, and exit with its code."""
    with error_sentences(as_json):
        outcome = command()
    if as_json:
        print_json(outcome.document)
    else:
        outcome.show(Terminal())
    if open_page and outcome.page is not None:
        open_in_browser(outcome.page)
    raise typer.Exit(outcome.code)


def reported(job: "Callable[[Progress], Any]") -> Any:
    """Run a job under progress bars and write its report."""
    with displayed_progress() as advance:
        result = job(advance)
        advance("report", 0, 1)
        result.report()
        advance("report", 1, 1)
    return result
