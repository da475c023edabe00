"""What a run of coupled replicas says in plain sentences: when what is decided, in which order."""

import math
from typing import Any

from flowscope.instruments.sync.commitment import ORDER
from flowscope.instruments.sync.config import ENOUGH_PAIRS
from flowscope.instruments.sync.internal_gap import GAP
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.records import Unavailable, Verdict
from flowscope.report.escaping import shortened
from flowscope.report.numerals import bounds, count, numeral

__all__ = ["findings"]

_LONGEST_NAME = 40


def findings(records: Records) -> list[Finding]:
    """Findings about coupled replicas, from their tables."""
    return collected(records, (_content, _order, _beyond, _modes, _coupling, _amount))


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
        following = f"Run again with at least {ENOUGH_PAIRS} pairs before you use an order."
    return Finding(
        text=text,
        value=gap,
        interval=(low, high),
        table="commitment_gap",
        figure="sync_scales",
        next=following,
    )


def _decided(records: Records, name: str) -> tuple[Verdict, float, float, float]:
    """A verdict of the run with its effect and interval."""
    verdict = records.verdicts.get(name)
    if verdict is None:
        raise Missing(f"this run has no verdict {name}")
    effect, interval = verdict.effect, verdict.interval
    if isinstance(effect, Unavailable) or isinstance(interval, Unavailable):
        raise Missing(f"the verdict {name} has no interval")
    return verdict, float(effect), float(interval.low), float(interval.high)


def _beyond(records: Records) -> Finding:
    """Whether the order of the scales is more than the covariance of the images makes."""
    records.table("commitment_order", "excess")
    verdict, effect, low, high = _decided(records, ORDER.name)
    size = f"{numeral(effect)} steps {bounds(low, high)}{_steps(records)}"
    if verdict.outcome == "holds":
        text = (
            "Coarse structure leads fine detail by more than in Gaussian images with the same "
            f"covariance: the lead is {size} longer."
        )
        following = "Compare this number with that of another model, not the plain gap."
    elif verdict.outcome == "fails":
        size = f"{numeral(-effect)} steps {bounds(-high, -low)}{_steps(records)}"
        text = (
            "Fine detail follows coarse structure sooner than in Gaussian images with the same "
            f"covariance: the lead of coarse structure is {size} shorter."
        )
        following = (
            "Do not take “layout first” for something that the model learned: images alone make "
            "it, and here detail is decided early."
        )
    else:
        text = (
            "It cannot be told whether the order of coarse and fine is more than the covariance "
            f"of the images makes: the difference from Gaussian images is {size}."
        )
        following = f"Run again with at least {ENOUGH_PAIRS} pairs before you speak of an order."
    return Finding(
        text=text,
        value=effect,
        interval=(low, high),
        table="commitment_order",
        figure="sync_scales",
        next=following,
    )


def _modes(records: Records) -> Finding:
    """Whether weak or strong modes of a difference keep their energy inside the network."""
    verdict, effect, low, high = _decided(records, GAP.name)
    records.table("internal_gap", "log_gap")
    if verdict.outcome not in ("holds", "fails"):
        raise Missing("the internal gap is not decided")
    side = "more" if effect > 0 else "less"
    return Finding(
        text="Without coupling, weak differences between two generations keep "
        f"{abs(math.expm1(effect)):.0%} {side} of their energy inside the network than strong "
        "ones, compared with the same weights in random order: mean log ratio over layers "
        f"{numeral(effect)} {bounds(low, high)}.",
        value=effect,
        interval=(low, high),
        table="internal_gap",
        figure="sync_gap",
        next="Look at the figure for the layers in which this happens.",
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
        next=f"Run again with --pairs {ENOUGH_PAIRS}, which narrows the intervals."
        if pairs < ENOUGH_PAIRS
        else "Report these numbers with their intervals.",
    )
