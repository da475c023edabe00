"""What a run about the cloud of tokens says in plain sentences."""

from flowscope.errors import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, numeral

__all__ = ["findings"]


def findings(records: Records) -> list[Finding]:
    """Findings about the layers, from their table."""
    return collected(records, (_collapse,))


def _collapse(records: Records) -> Finding:
    """Whether tokens collapse: the layer with the most alike tokens."""
    names = ("layer", "sample", "mean_cosine", "mean_cosine_low", "mean_cosine_high")
    rows = [
        row
        for row in complete_rows(records, "layers", names, ("sample",))
        if row["sample"] == "all" and row["layer"] > 0
    ]
    if not rows:
        raise Missing("layers")
    row = max(rows, key=lambda row: row["mean_cosine"])
    low, high = float(row["mean_cosine_low"]), float(row["mean_cosine_high"])
    return Finding(
        text=f"Tokens are most alike after block {int(row['layer'])}: their mean cosine is "
        f"{numeral(float(row['mean_cosine']))} {bounds(low, high)}.",
        value=float(row["mean_cosine"]),
        interval=(low, high),
        table="layers",
        figure="likeness",
        next="Look at the effective rank beside it: only where that falls, too, tokens collapse.",
    )
