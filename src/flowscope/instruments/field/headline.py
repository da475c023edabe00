"""Print the result of ``field``: verdicts and one line per block."""

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

_SHOWN = {
    "angular_attention": "turn att.", "angular_feed_forward": "turn ff.", "part_sink": "sink",
    "spread_attention": "spread att.", "mean_cosine": "cosine", "effective_rank": "rank",
}  # fmt: skip


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts and the budget of every block."""
    measured = document["measured"]
    facts = [f"{measured['prompts']} prompts", f"{measured['tokens']} tokens"]
    print_heading(document, facts, console)
    print_verdicts(document, console)
    if document["blocks"]:
        table = plain_table(("block", *_SHOWN.values()))
        for row in document["blocks"]:
            table.add_row(
                str(row["layer"]), *(number_or_dash(row.get(name), ".3g") for name in _SHOWN)
            )
        console.print(table)
    print_report_path(document, console)
