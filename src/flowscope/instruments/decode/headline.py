"""Print the result of ``decode``: verdicts, policies, windows."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from flowscope.report.terminal import (
    number_or_dash,
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]

_MARKS = {"strict": "strict", "calibrated": "calibrated", "none": "–"}


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts and one line for every policy."""
    measured = document["measured"]
    facts = [
        str(measured["task"]), f"{measured['prompts']} fresh prompts",
        f"{measured['calibration_prompts']} for calibration",
    ]  # fmt: skip
    print_heading(document, facts, console)
    print_verdicts(document, console)
    rows = [row for row in document["policies"] if row["kind"] != "frontier"]
    if rows:
        table = plain_table(("policy", "threshold", "passes", "saved", "same", "right", "promise"))
        for row in rows:
            table.add_row(
                row["name"], f"{row['threshold']:g}", number_or_dash(row["passes"], ".1f"),
                number_or_dash(row["saved"], ".0%"), number_or_dash(row["same"], ".1%"),
                number_or_dash(row["accuracy"], ".1%"), _MARKS[row["certified"]],
            )  # fmt: skip
        console.print(table)
    for row in rows:
        if row["name"] == "draft":
            console.print(_cost(row))
    reasons: dict[str, list[str]] = {}
    for row in document["thresholds"]:
        if row["because"]:
            reasons.setdefault(row["because"], []).append(row["policy"])
    for reason, names in reasons.items():
        console.print(f"No calibrated threshold for {', '.join(names)}: {reason}.")
    print_report_path(document, console)


def _cost(row: Mapping[str, Any]) -> str:
    """What verification costs: it makes fewer rounds, and runs more sequences in each."""
    seconds, before = (
        "" if row[name] is None else f" in {row[name]:.2g} s"
        for name in ("seconds", "reference_seconds")
    )
    return (
        f"{row['name']} runs {row['rows']:.1f} sequences a prompt{seconds}; the reference "
        f"{row['reference_passes']:.1f}{before}."
    )
