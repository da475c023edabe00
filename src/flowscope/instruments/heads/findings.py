"""What a run about the heads says in plain sentences: focus, direction, cost of the dials."""

import math
from statistics import median
from typing import Any

from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.escaping import shortened
from flowscope.report.numerals import bounds, count, numeral

__all__ = ["findings"]

_ONE_KEY = 2.0  # effective keys below which a head looks at one key
_CHEAP = 0.05  # nats per token that a user may accept
_ENOUGH_PROMPTS = 32
_LONGEST_NAME = 40


def findings(records: Records) -> list[Finding]:
    """Findings about the heads, from their tables."""
    return collected(records, (_focus, _direction, _dials, _amount))


Row = dict[str, Any]


def _measured(records: Records, name: str) -> list[Row]:
    """Heads that have a number and an interval in a column of the geometry."""
    names = ("layer", "head", name, f"{name}_low", f"{name}_high")
    return complete_rows(records, "geometry", names)


def _ends(row: Row, name: str) -> tuple[float, float]:
    return float(row[f"{name}_low"]), float(row[f"{name}_high"])


def _place(row: Row) -> str:
    return f"layer {int(row['layer'])} head {int(row['head'])}"


def _focus(records: Records) -> Finding:
    """How many heads look at one key."""
    name = "effective_keys"
    rows = _measured(records, name)
    narrow = sum(row[f"{name}_high"] < _ONE_KEY for row in rows)
    row = min(rows, key=lambda row: row[name])
    low, high = _ends(row, name)
    middle = median(row[name] for row in rows)
    return Finding(
        text=f"{narrow} of {count(len(rows), 'head')} attend mostly to one key (fewer than "
        f"{_ONE_KEY:g} effective keys with the whole interval); the narrowest is {_place(row)} "
        f"with {numeral(float(row[name]))} keys {bounds(low, high)}, the median of all heads is "
        f"{numeral(middle)}.",
        value=float(row[name]),
        interval=(low, high),
        table="geometry",
        figure="geometry",
        next=f"Look at {_place(row)} in the report: one key stands for all that it reads."
        if narrow
        else "Do not replace a head by a fixed pattern: each spreads over several keys.",
    )


def _direction(records: Records) -> Finding:
    """Which head is furthest from equilibrium, and how many exceed shuffled keys."""
    name = "entropy_production"
    rows = _measured(records, name)
    row = max(rows, key=lambda row: row[name])
    low, high = _ends(row, name)
    shuffled = f"{name}_permuted"
    compared = [row for row in rows if math.isfinite(row.get(shuffled, math.nan))]
    beyond = ""
    if row in compared:
        above = sum(row[f"{name}_low"] > row[shuffled] for row in compared)
        beyond = (
            f"; with its keys shuffled {numeral(row[shuffled])}. {above} of "
            f"{count(len(compared), 'head')} are above their shuffled keys with the whole "
            f"interval (by chance about {0.025 * len(compared):.0f})"
        )
    return Finding(
        text=f"The strongest direction is that of {_place(row)}: a walk along its attention "
        f"produces {numeral(float(row[name]))} {bounds(low, high)} nat per step{beyond}.",
        value=float(row[name]),
        interval=(low, high),
        table="geometry",
        figure="geometry",
        next=f"Open the portrait of {_place(row)} in the report and read from which tokens to "
        "which its arrows run.",
    )


def _dials(records: Records) -> Finding:
    """Which part of the scores the loss depends on most, and which least."""
    numbers = ("change", "change_low", "change_high")
    rows = complete_rows(records, "dials", numbers, ("dial", "setting"))
    rows = sorted((row for row in rows if row["dial"] != "none"), key=lambda row: row["change"])
    if not rows:
        raise Missing("no dial was turned")
    best, worst = rows[0], rows[-1]
    random = float(worst.get("random_change", math.nan))
    twin = f" (a random change of the same size: {numeral(random)})"
    beside = twin if math.isfinite(random) else ""
    low, high = _ends(worst, "change")
    cheap = float(best["change_high"]) < _CHEAP
    return Finding(
        text=f"Turning {_dial(worst)} costs most: {numeral(float(worst['change']))} "
        f"{bounds(low, high)} nat per token{beside}. Turning {_dial(best)} costs least: "
        f"{numeral(float(best['change']))} {bounds(*_ends(best, 'change'))}.",
        value=float(worst["change"]),
        interval=(low, high),
        table="dials",
        figure="dials",
        next=f"Turn {_dial(best)} if you need it: the cost is below {_CHEAP:g} nat with its whole "
        "interval."
        if cheap
        else f"Leave the dials alone: each costs {_CHEAP:g} nat or more, or may do so.",
    )


def _dial(row: Row) -> str:
    setting = shortened(str(row["setting"]).strip(), _LONGEST_NAME)
    layers = str(row.get("layers", "all"))
    where = "" if layers == "all" else f" in layer {shortened(layers, _LONGEST_NAME)}"
    return f"the dial “{shortened(row['dial'], _LONGEST_NAME)}” to {setting}{where}"


def _amount(records: Records) -> Finding | None:
    """On how much data all of this rests, and how many heads gave no number."""
    measured = records.settings.get("measured", {})
    prompts, tokens = measured.get("prompts"), measured.get("tokens_measured")
    if not prompts:
        return None
    frame = records.table("geometry", "entropy_production")
    silent = int(frame["entropy_production"].isna().sum())
    few = prompts < _ENOUGH_PROMPTS
    return Finding(
        text=f"All of this rests on {count(prompts, 'prompt')}"
        f"{f' with {tokens} tokens' if tokens else ''}; {silent} of {count(len(frame), 'head')} "
        "gave no number.",
        value=float(prompts),
        table="geometry",
        next=f"Run again with {_ENOUGH_PROMPTS} prompts or more, which narrows every interval."
        if few
        else "Report these numbers with their intervals.",
    )
