"""Print the result of ``image``: verdicts, distances of the samplers, U-turns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope.report.terminal import (
    evenly_spaced,
    number_or_dash,
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts on the samplers, and how the state forgets its class."""
    measured = document["measured"]
    facts = [f"{measured['images']} images", f"{measured['steps']} steps", measured["space"]]
    print_heading(document, facts, console)
    if document["warning"]:
        console.print(f"[yellow]warning[/] {escape(document['warning'])}")
    print_verdicts(document, console)
    if isinstance(document["parity"], list):
        console.print(_parity(document["parity"]))
    for name in ("parity", "rotation", "information", "uturn"):
        if isinstance(document[name], dict):
            console.print(f"{name}: {escape(document[name]['abstained'])}")
    if isinstance(document["uturn"], list):
        console.print(_uturns(document["uturn"]))
    if document["could_have_seen"]:
        console.print(escape(document["could_have_seen"]))
    print_report_path(document, console)


def _parity(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = ("step", "time", "TV", "95 % interval", "null", "up to", "KS", "null", "up to")
    table = plain_table(names)
    for row in evenly_spaced(rows):
        low, high = row["tv_interval"]
        null = row["null"]
        after = (null["tv_null"], null["tv_null_high"], row["ks"])
        numbers = (f"{x:.3f}" for x in (*after, null["ks_null"], null["ks_null_high"]))
        distance = (f"{row['tv']:.3f}", f"{low:.3f} … {high:.3f}")
        table.add_row(str(row["step"]), str(row["time"]), *distance, *numbers)
    return table


def _uturns(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = ("noised to", "log snr", "same class", "95 % interval", "exact", "correlation")
    table = plain_table(names)
    for row in evenly_spaced(rows):
        known = row["same_class"] is not None
        table.add_row(
            str(row["time"]),
            f"{row['log_snr']:.1f}",
            number_or_dash(row["same_class"], ".3f"),
            f"{row['low']:.3f} … {row['high']:.3f}" if known else "–",
            number_or_dash(row["exact"], ".3f"),
            number_or_dash(row["correlation"], ".2f"),
        )
    return table
