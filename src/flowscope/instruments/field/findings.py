"""What a run about the field says in plain sentences."""

from flowscope.errors import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, numeral

__all__ = ["findings"]


def findings(records: Records) -> list[Finding]:
    """Findings about the blocks, from their table."""
    return collected(records, (_rounding, _turning))


def _rounding(records: Records) -> Finding:
    """Which block costs most, and which least, when its weights are rounded."""
    names = ("layer", "bits", "predicted", "low", "high", "measured")
    rows = complete_rows(records, "forecast", names, ("kind", "trust"))
    rows = [row for row in rows if row["kind"] == "quantise"]
    if not rows:
        raise Missing("forecast")
    dear, cheap = (pick(rows, key=lambda row: row["predicted"]) for pick in (max, min))
    low, high = float(dear["low"]), float(dear["high"])
    return Finding(
        text=f"Rounding to {int(dear['bits'])} bits costs most in block {int(dear['layer'])}, "
        f"{numeral(float(dear['predicted']))} {bounds(low, high)} nats per token by the forecast "
        f"({numeral(float(dear['measured']))} measured on other prompts), and least in block "
        f"{int(cheap['layer'])} ({numeral(float(cheap['predicted']))}).",
        value=float(dear["predicted"]),
        interval=(low, high),
        table="forecast",
        figure="rounding",
        next=f"Keep more bits in block {int(dear['layer'])}, round the cheapest blocks first, and "
        "measure the model with all of them rounded: costs of single blocks do not add up.",
    )


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
