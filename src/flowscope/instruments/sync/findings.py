"""What a run of coupled replicas says in plain sentences: when what is decided, in which order."""

import math
from typing import Any

from flowscope.instruments.sync.config import SMALL_RUN
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.escaping import shortened
from flowscope.report.numerals import bounds, count, numeral

__all__ = ["findings"]

_LONGEST_NAME = 40
_MORE_PAIRS = 32


def findings(records: Records) -> list[Finding]:
    """Findings about coupled replicas, from their tables."""
    return collected(records, (_content, _order, _coupling, _amount))


Row = dict[str, Any]


def _read(records: Records, table: str, number: str, *others: str) -> list[Row]:
    """Coupled rows with a number and an interval, the first class first, by coupling."""
    names = ("class", "control", "status", *others)
    rows = complete_rows(records, table, ("label", "g", number, "low", "high"), names)
    rows = [row for row in rows if row["status"] == "ok" and not row["control"]]
    if not rows:
        raise Missing(f"the table “{table}” has no number of coupled replicas")
    return sorted(rows, key=lambda row: (row["label"], row["g"]))


def _steps(records: Records) -> str:
    steps = records.settings.get("steps")
    return f" of {steps}" if steps else ""


def _class(row: Row) -> str:
    return f"“{shortened(row['class'], _LONGEST_NAME)}”"


def _content(records: Records) -> Finding:
    """From which coupling on replicas end alike, and at which step that is decided."""
    rows = _read(records, "commitment", "midpoint", "measure")
    rows = [row for row in rows if row["measure"] == "feature"]
    if not rows:
        raise Missing("no coupling makes replicas end alike")
    row = rows[0]
    low, high = float(row["low"]), float(row["high"])
    others = len({row["label"] for row in rows}) - 1
    more = f"; the table has {others} more class{'es' * (others > 1)}" if others else ""
    return Finding(
        text=f"From coupling g = {row['g']:g} on, two generations of {_class(row)} end up showing "
        f"the same: this is decided at step {numeral(float(row['midpoint']))}{_steps(records)} "
        f"{bounds(low, high)}{more}.",
        value=float(row["midpoint"]),
        interval=(low, high),
        table="commitment",
        figure="sync_agreement",
        next=f"Change the prompt, the class or the guidance before step {math.floor(low):d} if the "
        "image is to show something else.",
    )


def _order(records: Records) -> Finding:
    """Whether coarse structure or fine detail is decided first."""
    row = _read(records, "commitment_gap", "gap")[0]
    gap, low, high = float(row["gap"]), float(row["low"]), float(row["high"])
    where = f"for {_class(row)} at g = {row['g']:g}"
    if low > 0:
        text = f"Coarse structure is decided {_size(gap, low, high)} before fine detail {where}."
        following = "Set the layout in the early steps and the detail in the later ones."
    elif high < 0:
        text = f"Fine detail is decided {_size(-gap, -high, -low)} before coarse structure {where}."
        following = "Do not build on “layout first” for this model: it decides detail first."
    else:
        text = (
            "It cannot be told whether coarse structure or fine detail is decided first "
            f"{where}: fine detail follows after {_size(gap, low, high)}."
        )
        following = f"Run again with at least {_MORE_PAIRS} pairs before you use an order."
    return Finding(
        text=text,
        value=gap,
        interval=(low, high),
        table="commitment_gap",
        figure="sync_scales",
        next=following,
    )


def _size(gap: float, low: float, high: float) -> str:
    return f"{numeral(gap)} {bounds(low, high)} steps"


def _coupling(records: Records) -> Finding:
    """How many steps the coupling moves the decision."""
    names = ("difference", "low", "high")
    row = complete_rows(records, "coupling_effect", names, ("class", "kind"))[0]
    low, high = float(row["low"]), float(row["high"])
    moved = low > 0 or high < 0
    return Finding(
        text=f"The strength of the coupling {'moves' if moved else 'does not measurably move'} the "
        f"step of the decision for {_class(row)}: {shortened(row['kind'], _LONGEST_NAME)} is "
        f"{numeral(float(row['difference']))} steps {bounds(low, high)}.",
        value=float(row["difference"]),
        interval=(low, high),
        table="coupling_effect",
        figure="sync_agreement",
        next="Compare models at one and the same coupling."
        if moved
        else "Set the weakest coupling of this run: a stronger one decides nothing earlier.",
    )


def _amount(records: Records) -> Finding | None:
    """On how many pairs all of this rests."""
    pairs = records.settings.get("measured", {}).get("pairs")
    if not pairs:
        return None
    records.table("commitment")
    return Finding(
        text=f"All of this rests on {count(pairs, 'pair')} of generations for each class.",
        value=float(pairs),
        table="commitment",
        next=f"Run again with --pairs {_MORE_PAIRS}, which narrows the intervals."
        if pairs < SMALL_RUN
        else "Report these numbers with their intervals.",
    )
