"""Pieces of what a finished command prints in a terminal, eighty columns wide."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope.records.verdict_text import GATE_WORDS, decision_text, reason_text, verdict_label
from flowscope.report.escaping import visible

__all__ = [
    "evenly_spaced",
    "number_or_dash",
    "plain_table",
    "print_findings",
    "print_heading",
    "print_report_path",
    "print_stages",
    "print_verdicts",
]

_COLOURS = {"holds": "green", "fails": "red", "uninformative": "magenta", "abstains": "yellow"}
_SHOWN_ROWS = 8
_SHOWN_STAGES = 5


def print_findings(document: Mapping[str, Any], console: Console) -> None:
    """Print the findings of a document, numbered, each with what to do next; nothing if none."""
    findings = document.get("findings", ())
    if not findings:
        return
    console.print("[bold]Findings[/]")
    table = plain_table()
    table.show_header = False
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for number, finding in enumerate(findings, 1):
        table.add_row(f"{number}.", escape(visible(finding["text"])))
        table.add_row("", _hanging("→", escape(visible(finding["next"]))))
    console.print(table, highlight=False)
    console.print()


def _hanging(mark: str, text: str) -> Table:
    """Text beside a mark, so that wrapped lines stand below the text."""
    table = plain_table()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(mark, text)
    return table


def print_heading(document: Mapping[str, Any], facts: Sequence[str], console: Console) -> None:
    """Print the model in bold, what was measured on it, and what was left out."""
    amount = escape(", ".join(facts))
    console.print(f"[bold]{escape(document['model'])}[/]  {amount}")
    left_out = document["measured"].get("left_out")
    if left_out:
        console.print(f"Prompts left out: {escape(left_out)}.")


def print_verdicts(document: Mapping[str, Any], console: Console) -> None:
    """Print each verdict with its outcome, its strength and its reason."""
    table = plain_table()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in document["verdicts"]:
        label = verdict_label(verdict["name"], verdict["title"])
        outcome = verdict.get("outcome", verdict["decision"])
        gate = (verdict.get("gate_words") or GATE_WORDS) if verdict.get("gate") else None
        decision = decision_text(outcome, verdict.get("strength", ""), gate)
        colour = "cyan" if gate else _COLOURS[outcome]
        reason = f"[{colour}]{decision}[/] {escape(reason_text(verdict['because']))}"
        table.add_row(f"[bold]{escape(label)}[/]", reason)
    console.print(table)


def print_report_path(document: Mapping[str, Any], console: Console) -> None:
    """Print where the report is, on one line that can be copied."""
    console.print(f"report: {escape(document['report'])}", soft_wrap=True)


def print_stages(document: Mapping[str, Any], console: Console) -> None:
    """Print where the time of a run went, the longest stages first; nothing if not recorded."""
    stages = document.get("stages", {})
    total = sum(part["seconds"] for part in stages.values())
    longest = sorted(stages.items(), key=lambda item: -item[1]["seconds"])[:_SHOWN_STAGES]
    if not total:
        return
    words = [
        f"{name} {part['seconds']:.1f} s ({part['share']:.0%}, {part['device']})"
        for name, part in longest
    ]
    console.print(f"time: {total:.1f} s; {escape('; '.join(words))}", highlight=False)


def plain_table(right: Sequence[str] = (), *, left: Sequence[str] = ()) -> Table:
    """A table without lines; columns named in ``left`` come first, both kinds do not wrap."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def evenly_spaced(rows: Sequence[Any], count: int = _SHOWN_ROWS) -> list[Any]:
    """At most ``count`` rows from the first to the last.

    >>> evenly_spaced(range(10), 4)
    [0, 3, 6, 9]
    """
    shown = min(count, len(rows))
    places = {round(k * (len(rows) - 1) / max(1, shown - 1)) for k in range(shown)}
    return [rows[place] for place in sorted(places)]


def number_or_dash(value: float | None, digits: str) -> str:
    """A number in a format like ``".3g"``; a dash where there is none.

    >>> number_or_dash(0.12345, ".3g"), number_or_dash(None, ".3g")
    ('0.123', '–')
    """
    return "–" if value is None else format(value, digits)
