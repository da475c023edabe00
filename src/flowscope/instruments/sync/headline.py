"""Print the result of ``sync``: verdicts and the steps at which replicas commit."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope.report.terminal import (
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts on the replicas, and when they commit."""
    measured = document["measured"]
    facts = [f"{measured['pairs']} pairs", f"{measured['steps']} steps", *measured["classes"]]
    print_heading(document, facts, console)
    print_verdicts(document, console)
    console.print(_commitment(document))
    console.print(f"Times are steps out of {measured['steps']}, with 95 % intervals over pairs.")
    print_report_path(document, console)


def _commitment(document: Mapping[str, Any]) -> Table:
    table = plain_table()
    table.add_column("class", overflow="fold")
    table.add_column("coupling", no_wrap=True)
    for name in ("features", "coarse", "fine"):
        table.add_column(f"τ {name}", justify="right", overflow="fold")
    columns = (document["tau_spec"], document["tau_coarse"], document["tau_fine"])
    for row, *others in zip(*columns, strict=True):
        coupling = "shared noise" if row["control"] else f"g = {row['g']:g}"
        times = (escape(_time(time)) for time in (row, *others))
        table.add_row(escape(row["class"]), coupling, *times)
    return table


def _time(time: Mapping[str, Any]) -> str:
    if time["interval"] is None:
        return str(time["midpoint"])
    low, high = time["interval"]
    return f"{time['midpoint']:.1f} [{low:.1f}, {high:.1f}]"
