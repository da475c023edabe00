"""What a command prints: progress bars, JSON, settings, and tables eighty columns wide."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from flowscope.lab.compare import Comparison
    from flowscope.lab.config import Config
    from flowscope.models.doctor import Examination

__all__ = [
    "print_claims",
    "print_comparison",
    "print_examination",
    "print_json",
    "print_settings",
    "progress_bars",
    "starting",
]

_AGREEMENT = {"yes": "green", "no": "red"}


@contextmanager
def starting() -> Iterator[None]:
    """Say that torch is being imported, which takes seconds; keep loaders' bars out of logs."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    with Console(stderr=True).status("starting torch …"):
        yield


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
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


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, ensure_ascii=False))


def print_settings(config: "type[Config]") -> None:
    """Print the settings that have no option of their own: name, default, description."""
    from flowscope.lab.config import default_words, description_of, marks

    table = _plain_table()
    table.add_column("setting", no_wrap=True)
    table.add_column("default", overflow="fold", max_width=24)
    table.add_column("description", overflow="fold")
    for name, field in config.model_fields.items():
        if not (marks(field).get("option") or marks(field).get("argument")):
            description = f"{description_of(field)}."
            table.add_row(name, escape(default_words(field)), escape(description))
    console = Console()
    console.print(table)
    console.print("Change one with --set NAME=VALUE, several with --config FILE.", highlight=False)


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 1), pad_edge=False)


def print_claims(document: Mapping[str, Any], console: Console) -> None:
    """Print each claim of a source and what was measured."""
    amounts = [f"{n} {name}" for name, n in document["measured"].items() if isinstance(n, int)][:2]
    study, model = escape(document["study"]), escape(document["model"])
    console.print(f"[bold]{study}[/] on [bold]{model}[/]  {', '.join(amounts)}")
    table = _plain_table()
    table.add_column(f"{document['source']} says", overflow="fold", ratio=3)
    table.add_column("we measure", overflow="fold", ratio=4)
    table.add_column("agrees?", overflow="fold", min_width=7)
    for claim in document["claims"]:
        colour = _AGREEMENT.get(claim["agrees"], "yellow")
        place = f"[bold]{escape(claim['item'])}[/] ({escape(claim['where'])})"
        says = f"{place}: {escape(claim['says'])}"
        table.add_row(says, escape(claim["measured"]), f"[{colour}]{claim['agrees']}[/]")
        table.add_section()
    console.print(table)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def print_comparison(comparison: "Comparison", console: Console) -> None:
    """Print what changed from one run to another."""
    from flowscope.records.verdict_text import verdict_label

    how = "paired by prompt" if comparison.paired else "unpaired: the texts differ"
    console.print(f"second − first, {how}; 95 % intervals")
    document = comparison.to_json()
    table = _plain_table()
    for name in ("statistic", "depth", "first", "second", "difference", "interval"):
        table.add_column(name, justify="left" if name == "statistic" else "right", no_wrap=True)
    for row in document["changes"]:
        numbers = (f"{row[name]:.3g}" for name in ("first", "second", "difference"))
        interval = f"{row['low']:.2g} … {row['high']:.2g}"
        table.add_row(row["statistic"], f"{row['depth']:.1f}", *numbers, interval)
    console.print(table if table.row_count else "No difference is significant.")
    for row in document["verdicts"]:
        if row["first"] != row["second"]:
            label = verdict_label(row["name"], row["title"])
            console.print(f"{label}: {row['first'].upper()} → {row['second'].upper()}")


def print_examination(examination: "Examination", console: Console) -> None:
    """Print what can be measured on a model, what cannot, and why."""
    verdict = "[bold red]refused[/]" if examination.refused else "[bold green]readable[/]"
    console.print(f"[bold]{escape(examination.model)}[/]  {examination.kind}  {verdict}")
    table = _plain_table()
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for chain in examination.chains:
        blocks = f"{len(chain)} blocks ({', '.join(chain.streams)})"
        table.add_row("chain", f"{escape(chain.name)}: {blocks}")
    if not examination.refused:
        depth = f"{examination.blocks} blocks, {examination.attention_calls} attention calls"
        table.add_row("depth", depth)
        table.add_row("writes", " + ".join(examination.writes) or "none can be separated")
        table.add_row("tail", examination.tail_words)
    for number, line in enumerate(examination.can):
        table.add_row("[green]can[/]" if number == 0 else "", escape(line))
    for number, obstacle in enumerate(examination.cannot):
        label = "[yellow]cannot[/]" if number == 0 else ""
        table.add_row(label, f"[bold]{escape(obstacle.what)}[/]: {escape(obstacle.because)}")
    console.print(table)
