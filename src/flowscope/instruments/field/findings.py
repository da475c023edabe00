"""What a run about the field says in plain sentences."""

from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, numeral

__all__ = ["findings"]


def findings(records: Records) -> list[Finding]:
    """Findings about the blocks, from their table."""
    return collected(records, (_turning,))


def _turning(records: Records) -> Finding:
    """Which block turns the tokens least by attention."""
    name = "angular_attention"
    rows = complete_rows(records, "blocks", ("layer", name, f"{name}_low", f"{name}_high"))
    row = min(rows, key=lambda row: row[name])
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    return Finding(
        text=f"Attention turns the tokens least in block {int(row['layer'])}: by "
        f"{numeral(float(row[name]))} {bounds(low, high)} of their length.",
        value=float(row[name]),
        interval=(low, high),
        table="blocks",
        figure="budget",
        next=f"Measure the loss without the attention of block {int(row['layer'])} before you "
        "remove it: a small turn is no proof that it costs little.",
    )
