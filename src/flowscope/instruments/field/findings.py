"""What a run about the field says in plain sentences."""

import math

from flowscope.errors import Missing
from flowscope.instruments.field.forecast import RANK_ONLY
from flowscope.instruments.field.jacobians.stiff import STIFF
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, numeral

__all__ = ["findings"]

_NAMED = 6
_KINDS = {
    "skip": "leaving a block out",
    "scale": "scaling its writes",
    "quantise": "rounding its weights",
}


def findings(records: Records) -> list[Finding]:
    """Findings about the blocks, from their table."""
    return collected(records, (_overflow, _rounding, _large_changes, _stiff, _turning))


def _overflow(records: Records) -> Finding | None:
    """Where the model overflows."""
    notes = [m.because for m in records.run.read_measurements() if m.name == "overflow"]
    if not notes:
        return None
    text = notes[-1]
    return Finding(
        text=f"{text[0].upper()}{text[1:].rstrip('.')}.",
        table="blocks",
        figure="budget",
        next="Load the model in a wider precision, e.g. with --dtype float32, and run again.",
    )


def _large_changes(records: Records) -> Finding | None:
    """Which kinds of change are too large for the size of their forecast."""
    rows = complete_rows(records, "forecast_kinds", ("ratio", "ratio_total"), ("kind", "trust"))
    large = [row for row in rows if row["trust"] == RANK_ONLY]
    if not large:
        return None
    worst = max(large, key=lambda row: _distance(float(row["ratio_total"])))
    listed = " and ".join(_KINDS.get(str(row["kind"]), str(row["kind"])) for row in large)
    return Finding(
        text=f"The forecast of {listed} is good for the rank alone: "
        f"all blocks together cost {numeral(float(worst['ratio_total']))} times the forecast.",
        value=float(worst["ratio_total"]),
        table="forecast_kinds",
        figure="agreement",
        next="Use this forecast to choose candidates, and measure those that you would change.",
    )


def _distance(ratio: float) -> float:
    """How far a ratio is from 1, in logarithms."""
    return abs(math.log(ratio)) if ratio > 0 else math.inf


def _stiff(records: Records) -> Finding | None:
    """Blocks that react strongly to small changes, by name."""
    names = ("layer", "sigma_max", "sigma_max_twin")
    rows = complete_rows(records, "jacobians", names[:2])
    stiff = sorted((row for row in rows if row["sigma_max"] >= STIFF),
                   key=lambda row: -row["sigma_max"])  # fmt: skip
    if not stiff:
        return None
    named = ", ".join(f"{int(row['layer'])} ({numeral(float(row['sigma_max']))})"
                      for row in stiff[:_NAMED])  # fmt: skip
    verb = "is" if len(stiff) == 1 else "are"
    more = f" and {len(stiff) - _NAMED} more" if len(stiff) > _NAMED else ""
    twins = [float(row[names[2]]) for row in rows if row.get(names[2]) == row.get(names[2])]
    beside = f" In random networks the largest is {numeral(max(twins))}." if twins else ""
    return Finding(
        text=f"{len(stiff)} of {len(rows)} blocks {verb} stiff (largest gain of at least {STIFF:g} "
        f"at the first prompt): block {named}{more}.{beside}",
        value=float(stiff[0]["sigma_max"]),
        table="jacobians",
        figure="jacobians",
        next="Keep what enters these blocks in full precision, or measure first: some small change "
        "of it grows by this factor.",
    )


def _rounding(records: Records) -> Finding | None:
    """Which block costs most, and which least, when its weights are rounded."""
    names = ("layer", "bits", "predicted", "low", "high", "measured")
    rows = complete_rows(records, "forecast", names, ("kind", "trust"))
    rows = [row for row in rows if row["kind"] == "quantise"]
    if not rows:
        raise Missing("forecast")
    dear, cheap = (pick(rows, key=lambda row: row["predicted"]) for pick in (max, min))
    if not dear["predicted"] > 0:
        return None
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
