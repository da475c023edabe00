"""What a run about the heads says in plain sentences: focus, direction, looks, cost of dials."""

import math
from statistics import median
from typing import Any

from flowscope.instruments.heads.geometry import ONE_WAY, SHARPNESS
from flowscope.lab.claim import Claim, Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict
from flowscope.report.escaping import shortened
from flowscope.report.numerals import bounds, count, numeral

__all__ = ["findings"]

_ONE_KEY = 2.0  # effective keys below which a head looks at one key
_CHEAP = 0.05  # nats per token that a user may accept
_ENOUGH_PROMPTS = 32
_LONGEST_NAME = 40


def findings(records: Records) -> list[Finding]:
    """Findings about the heads, from their tables."""
    return collected(records, (_focus, _sharpness, _looks, _direction, _dials, _amount))


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
    """Which head is furthest from equilibrium, and what its null gives."""
    name = "entropy_production"
    rows = _measured(records, name)
    row = max(rows, key=lambda row: row[name])
    low, high = _ends(row, name)
    shuffled = float(row.get(f"{name}_permuted", math.nan))
    beside = f"; with its keys shuffled {numeral(shuffled)}" if math.isfinite(shuffled) else ""
    return Finding(
        text=f"The strongest direction is that of {_place(row)}: a walk along its attention "
        f"produces {numeral(float(row[name]))} {bounds(low, high)} nat per step{beside}.",
        value=float(row[name]),
        interval=(low, high),
        table="geometry",
        figure="geometry",
        next=f"Open the portrait of {_place(row)} in the report and read from which tokens to "
        "which its arrows run.",
    )


def _judged(records: Records, claim: Claim) -> tuple[Verdict, float, tuple[float, float]] | None:
    """A verdict with its effect and the ends of its interval, where it has them."""
    verdict = records.verdicts.get(claim.name)
    if verdict is None or isinstance(verdict.effect, Unavailable):
        return None
    if not isinstance(verdict.interval, Interval):
        return None
    ends = float(verdict.interval.low), float(verdict.interval.high)
    return verdict, float(verdict.effect), ends


def _undecided(verdict: Verdict) -> str:
    """What a run that decided nothing could have seen, as its verdict says it."""
    mark = "this run could have seen an effect of "
    _, found, rest = verdict.because.partition(mark)
    return f" This run could have seen a log ratio of {rest.split(' ')[0]}." if found else ""


def _sharpness(records: Records) -> Finding | None:
    """Whether attention is more directed than random attention that is as sharp."""
    records.table("geometry", "entropy_production")
    judged = _judged(records, SHARPNESS)
    if judged is None:
        return None
    verdict, effect, ends = judged
    shown = f"{math.exp(effect):.2f} times {bounds(*map(math.exp, ends))}"
    text, following = {
        "holds": (
            f"Attention is more directed than its sharpness explains: {shown} the entropy "
            "production of random attention that spreads over as many keys.",
            "Look at the portraits of the strongest heads: their direction is more than focus.",
        ),
        "fails": (
            f"Attention is less directed than its sharpness explains: {shown} the entropy "
            "production of random attention that spreads over as many keys.",
            "Do not read entropy production as direction: these heads are sharp first of all.",
        ),
        "uninformative": (
            "Attention is too flat to have a direction: a walk as long as the text cannot be told "
            "from its reversal in half of the heads.",
            "Give longer prompts, or do not speak of directions of this model.",
        ),
    }.get(
        verdict.outcome,
        (
            "Attention is not shown to differ in direction from random attention that spreads over "
            f"as many keys: {shown} its entropy production.{_undecided(verdict)}",
            "Run again with more prompts and twins before you speak of directions.",
        ),
    )
    return Finding(
        text=text,
        value=effect,
        interval=ends,
        table="geometry",
        figure="geometry",
        next=following,
    )


def _looks(records: Records) -> Finding | None:
    """Whether a token that is looked at looks back, and in which heads it does not."""
    judged = _judged(records, ONE_WAY)
    if judged is None or judged[0].outcome == "uninformative":
        return None
    verdict, effect, ends = judged
    name = "log_ratio_permuted"
    rows = complete_rows(
        records, "geometry", ("layer", "head", name, f"{name}_joint_low", f"{name}_joint_high")
    )
    above = sum(row[f"{name}_joint_low"] > 0 for row in rows)
    below = sum(row[f"{name}_joint_high"] < 0 for row in rows)
    top = max(rows, key=lambda row: row[name])
    words = {
        "holds": "A token that is looked at looks back less than chance",
        "fails": "A token that is looked at looks back more than chance",
    }.get(verdict.outcome, "Whether tokens look back at each other is not decided")
    return Finding(
        text=f"{words}: log ratio {numeral(effect)} {bounds(*ends)} against shuffled keys, median "
        f"over heads. Tested together (any error in at most 5 % of runs), {above} of "
        f"{count(len(rows), 'head')} look one way and {below} look back; most one-way is "
        f"{_place(top)} with {numeral(float(top[name]))}.{_undecided(verdict)}",
        value=effect,
        interval=ends,
        table="geometry",
        figure="geometry",
        next=f"Look at {_place(top)} in the report: what it reads does not read it back."
        if above
        else "Read the looks of these heads as mutual: who is looked at tells little of direction.",
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
