"""Print the result of ``field``: verdicts, one line per block, forecasts and interventions."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from flowscope.report.terminal import (
    number_or_dash,
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]

Rows = Sequence[Mapping[str, Any]]

_SHOWN = {
    "angular_attention": "turn att.", "angular_feed_forward": "turn ff.", "part_sink": "sink",
    "spread_attention": "spread att.", "mean_cosine": "cosine", "effective_rank": "rank",
    "sigma_max": "gain ≥",
}  # fmt: skip
_RANKS = {
    "ratio": "ratio", "rank": "rank", "rank_relative_error": "output error",
    "rank_turn": "turn", "rank_weight_error": "weights",
}  # fmt: skip
_CHANGES = ("writes × 0.5", "residual × 0.97", "attention × 0", "feed-forward × 0", "residual × 0",
            "norms frozen", "norms removed")  # fmt: skip


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts, the budget of every block, and what changes cost."""
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
    _show_kinds(document.get("forecast_kinds", ()), console)
    _show_interventions(document["interventions"], console)
    print_report_path(document, console)


def _show_kinds(rows: Rows, console: Console) -> None:
    """Print how each kind of forecast agrees with what was measured, beside its peers."""
    if not rows:
        return
    console.print(
        "\n[bold]Forecast of a change of one block[/]: measured over forecast, rank correlations"
    )
    table = plain_table(tuple(_RANKS.values()), left=("change",))
    table.add_column("trust")
    for row in rows:
        numbers = (number_or_dash(row.get(name), ".2f") for name in _RANKS)
        table.add_row(escape(str(row["kind"])), *numbers, escape(row["trust"] or "–"))
    console.print(table, highlight=False)


def _show_interventions(rows: Rows, console: Console) -> None:
    """Print what some changes of all blocks cost; the others are in the table."""
    shown = [row for row in rows if row["subject"] == "model" and row["change"] in _CHANGES]
    if not shown:
        return
    console.print("\n[bold]Changes of all blocks[/]: nats added, mean cosine at the end")
    table = plain_table(("loss", "KL", "cosine"), left=("change",))
    table.add_column("")
    for row in shown:
        numbers = (number_or_dash(row.get(name), ".3g") for name in ("added", "kl", "cosine_last"))
        table.add_row(escape(row["change"]), *numbers, _remark(row))
    console.print(table, highlight=False)


def _remark(row: Mapping[str, Any]) -> str:
    words = []
    if row["collapsed"]:
        words.append(f"tokens alike from block {int(row['collapsed'])}")
    if row["overflow"]:
        words.append(f"overflow in block {int(row['overflow'])}")
    return ", ".join(words)
