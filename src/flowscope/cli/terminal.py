"""What a command prints: JSON, settings, and tables eighty columns wide."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope.cli.console import Terminal, json_text

if TYPE_CHECKING:
    from flowscope.lab.config import Config
    from flowscope.lab.display.compare import Comparison
    from flowscope.lab.display.listing import RunSummary
    from flowscope.models.examination import Examination

__all__ = [
    "open_in_browser",
    "print_claims",
    "print_comparison",
    "print_examination",
    "print_json",
    "print_runs",
    "print_settings",
    "starting",
]

_AGREEMENT = {"yes": "green", "no": "red"}
_STATES = {"finished": "green", "unfinished": "yellow", "damaged": "red"}


@contextmanager
def starting() -> Iterator[None]:
    """Say that torch is being imported, which takes seconds; keep loaders' bars out of logs."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    with Terminal(stderr=True).status("starting torch …"):
        yield


def open_in_browser(page: Path) -> None:
    """Open a page in the browser, or print on standard error that there is none."""
    import webbrowser

    try:
        shown = webbrowser.open(page.absolute().as_uri())
    except webbrowser.Error:
        shown = False
    if not shown:
        sentence = f"No browser could be started; open {escape(str(page))} by hand."
        Terminal(stderr=True).print(sentence, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output."""
    print(json_text(document))


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
    console = Terminal()
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
    console.print(document["by_chance"]["sentence"], highlight=False)
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def print_comparison(comparison: "Comparison", console: Console) -> None:
    """Print what changed from one run to another, and what to do next."""
    from flowscope.lab.display.compare import verdict_words
    from flowscope.lab.result import plain_rows
    from flowscope.records.verdict_text import verdict_label

    console.print(comparison.title, highlight=False)
    for sentence in comparison.summary:
        console.print(escape(sentence), highlight=False)
    document = comparison.to_json()
    table = _plain_table()
    for name in ("statistic", "depth", "first", "second", "difference", "simultaneous"):
        table.add_column(name, justify="left" if name == "statistic" else "right", no_wrap=True)
    for row in document["changes"]:
        numbers = (f"{row[name]:.3g}" for name in ("first", "second", "difference"))
        interval = f"{row['joint_low']:.2g} … {row['joint_high']:.2g}"
        table.add_row(row["statistic"], f"{row['depth']:.1f}", *numbers, interval)
    if table.row_count:
        console.print(table)
    for row in plain_rows(comparison.changed_verdicts):
        label = verdict_label(row["name"], row["title"])
        sides = (verdict_words(row, side) for side in ("first", "second"))
        console.print(escape(f"{label}: {' → '.join(sides)}"), highlight=False)
    console.print(f"Next: {escape(comparison.next_step)}", highlight=False)


def print_runs(runs: "Sequence[RunSummary]", folder: Path, console: Console) -> None:
    """Print a line for each run, or a sentence where there is none."""
    if not runs:
        what = f"run in {folder}" if folder.is_dir() else f"folder {folder}"
        sentence = f"There is no {what}. Commands write runs to the folder of --out (default: out)."
        console.print(escape(sentence), soft_wrap=True, highlight=False)
        return
    table = _plain_table()
    for name in ("folder", "instrument", "model", "date (UTC)", "state", "verdicts"):
        fold = name not in ("instrument", "date (UTC)")
        table.add_column(name, overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for run in runs:
        state = f"[{_STATES[run.state]}]{run.state}[/]"
        table.add_row(
            escape(_shown_path(run.folder)),
            escape(run.instrument),
            escape(Path(run.model).name),
            _date(run.created_at),
            f"{state}: {escape(run.because)}" if run.because else state,
            escape(run.brief),
        )
    console.print(table)


def _shown_path(path: Path) -> str:
    """The path relative to the working folder where it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _date(created_at: str) -> str:
    if not created_at:
        return "–"
    return datetime.fromisoformat(created_at).astimezone(UTC).strftime("%Y-%m-%d %H:%M")


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
    for name, words in examination.remarks:
        table.add_row(name, escape(words))
    for number, line in enumerate(examination.can):
        table.add_row("[green]can[/]" if number == 0 else "", escape(line))
    for number, obstacle in enumerate(examination.cannot):
        label = "[yellow]cannot[/]" if number == 0 else ""
        table.add_row(label, f"[bold]{escape(obstacle.what)}[/]: {escape(obstacle.because)}")
    console.print(table)
