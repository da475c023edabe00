"""What an audit says in plain sentences: when outputs are final, what the last layers are worth."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.instruments.audit.adequacy import ADEQUACY
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable
from flowscope.report.numerals import bounds, count, numeral, percent
from flowscope.report.source import column

__all__ = ["findings"]

_CHEAP = (0.05, 0.1)  # nats per token that a user may accept
_ENOUGH_PROMPTS = 32
_SPLITS = 49
_ALIKE, _DIFFERENT = 0.9, 0.7
_EARLY = 0.8


def findings(records: Records) -> list[Finding]:
    """Findings of an audit, from its tables and the verdict on its flow."""
    return collected(records, (_finality, _early_exit, _rewriting, _flow, _halves))


def _finality(records: Records) -> Finding | None:
    """From which layer on half of the tokens have their final top token."""
    decided = records.table("locking_depth", "layer", "share")
    names = ("layer", "agreement", "agreement_low", "agreement_high")
    rows = {int(row["layer"]): row for row in complete_rows(records, "layers", names)}
    depth, final = column(decided, "layer"), list(accumulate(column(decided, "share")))
    if not depth or not final[-1] >= 0.5:
        return None
    last, middle = max(rows), _first(depth, final)
    interval = _ends_of_middle(depth, final, rows)
    quarter = max(1, last // 4)
    soon = max((s for d, s in zip(depth, final, strict=True) if d <= quarter), default=0.0)
    where = f" (95 % interval {interval[0]:g} to {interval[1]:g})" if interval else ""
    return Finding(
        text=f"Half of the tokens have their final top token from layer {middle:g} of {last} on"
        f"{where}; {percent(soon)} have it by layer {quarter}.{_before_the_end(rows)}",
        value=middle,
        interval=interval,
        table="locking_depth",
        figure="entropy_agreement",
        next=f"Try an early exit for single tokens from layer {middle:g} on: half of them change "
        "no more."
        if middle <= _EARLY * last
        else f"Do not rely on outputs before layer {middle:g}: half of them still change.",
    )


def _before_the_end(rows: Mapping[int, Mapping[str, Any]]) -> str:
    """Sentence on the share of tokens that have their final top token one layer early."""
    row = rows.get(max(rows) - 1)
    if row is None:
        return ""
    share, low, high = (percent(row[f"agreement{end}"]) for end in ("", "_low", "_high"))
    return f" One layer before the end, {share} [{low}, {high}] of the tokens already show it."


def _first(depth: Sequence[float], share: Sequence[float]) -> float:
    """First layer at which a share reaches one half; the last layer where it never does."""
    return next((d for d, s in zip(depth, share, strict=True) if s >= 0.5), depth[-1])


def _ends_of_middle(
    depth: Sequence[float], final: Sequence[float], rows: Mapping[int, Mapping[str, Any]]
) -> tuple[float, float] | None:
    """Layers at which the upper and the lower end of the share of final tokens reach one half.

    The table of final layers has no interval; the half widths are those of the share of tokens
    with the final top token at the same layer, which counts nearly the same tokens.
    """
    if any(layer > 0 and layer not in rows for layer in depth):
        return None
    sides = {"agreement_high": list(final), "agreement_low": list(final)}
    for name, side in sides.items():
        for k, layer in enumerate(depth):
            row = rows.get(int(layer))
            side[k] += 0.0 if row is None else row[name] - row["agreement"]
    return _first(depth, sides["agreement_high"]), _first(depth, sides["agreement_low"])


def _early_exit(records: Records) -> Finding | None:
    """What stopping k layers early costs, and for how many layers the cost stays small."""
    names = ("removed", "increase", "increase_low", "increase_high")
    rows = {int(row["removed"]): row for row in complete_rows(records, "depth_loss", names)}
    if 1 not in rows:
        return None
    most, (small, k) = max(rows), (_cheap(rows, limit) for limit in _CHEAP)
    cost, low, high = (float(rows[max(k, 1)][name]) for name in names[1:])
    token = "hidden token" if "visible_loss" in records.run.tables() else "token"
    first = f"Stopping one layer early costs {_with_ends(rows[1], 'increase')} nat per {token}."
    cheaper = f" ({small} of them for less than {_CHEAP[0]:g})" if 0 < small < k else ""
    more = (
        f"The last {count(k, 'layer')} of {most} can go for less than {_CHEAP[1]:g} nat{cheaper}: "
        f"without them the loss rises by {_with_ends(rows[k], 'increase')}."
        if k
        else f"No layer can go for less than {_CHEAP[1]:g} nat (upper end of the 95 % interval)."
    )
    return Finding(
        text=f"{first} {more}",
        value=cost,
        interval=(low, high),
        table="depth_loss",
        figure="depth_loss",
        next=f"Remove the last {count(k, 'layer')} (read the output at layer {most - k}) and test "
        "your task: a small rise of the loss can still cost accuracy."
        if k
        else f"Keep all {most} layers.",
    )


def _cheap(rows: Mapping[int, Mapping[str, Any]], limit: float) -> int:
    """Most layers that can go, one after the other, with the interval of the cost below a limit."""
    k = 0
    while k + 1 in rows and rows[k + 1]["increase_high"] < limit:
        k += 1
    return k


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    return f"{numeral(row[name])} {bounds(row[f'{name}_low'], row[f'{name}_high'])}"


def _rewriting(records: Records) -> Finding | None:
    """Which layers change the output most, and which least."""
    name = "total_variation"
    names = ("layer", name, f"{name}_low", f"{name}_high")
    rows = sorted(complete_rows(records, "layers", names), key=lambda row: -row[name])
    if len(rows) < 2:
        return None
    top, *others = rows
    then = [f"layer {row['layer']:g} with {numeral(row[name])}" for row in others]
    between = f"then {' and '.join(then[:2])}; " if len(then) > 2 else ""
    jumps = _jumps(records)
    jumped = f" Too large a step for a flow (jump): layer {', '.join(jumps)}." if jumps else ""
    return Finding(
        text=f"Layer {top['layer']:g} rewrites the output most: it moves {_with_ends(top, name)} "
        f"of the probability to other tokens; {between}least {then[-1]}.{jumped}",
        value=float(top[name]),
        interval=(float(top[f"{name}_low"]), float(top[f"{name}_high"])),
        table="layers",
        figure="variation",
        next=f"Leave layer {top['layer']:g} alone when you prune or quantise, and look there first "
        "when an output is wrong.",
    )


def _jumps(records: Records) -> list[str]:
    try:
        return [f"{layer:g}" for layer in column(records.table("jumps", "layer"), "layer")]
    except Missing:
        return []


def _flow(records: Records) -> Finding | None:
    """How much better a fitted flow forecasts other prompts than its baseline does."""
    verdict = records.verdicts.get(ADEQUACY.name)
    if verdict is None or isinstance(verdict.effect, Unavailable):
        return None
    effect, interval = float(verdict.effect), verdict.interval
    ends = (float(interval.low), float(interval.high)) if isinstance(interval, Interval) else None
    if not all(map(math.isfinite, (effect, *(ends or ())))):
        return None
    shown = percent(effect) + (f" [{percent(ends[0])}, {percent(ends[1])}]" if ends else "")
    helps = {
        "holds": "helps",
        "fails": "does harm",
        "uninformative": "has no room to help",
    }.get(verdict.outcome, "is not shown to help")
    size = f" ({verdict.strength})" if verdict.strength else ""
    following = {
        "holds": "Read the drift of those layers as one rule: what a layer does to a token follows "
        "from the token’s present output.",
        "fails": "Read each layer by itself: a common rule for the layers is worse than none.",
    }.get(verdict.outcome, "Read more prompts before you model the layers as one flow.")
    return Finding(
        text=f"A flow that was fitted on other prompts {helps}{size} in forecasting the layers: of "
        f"the error of “nothing changes” it removes {shown} more than the best simple forecast.",
        value=effect,
        interval=ends,
        table="adequacy" if "adequacy" in records.run.tables() else "",
        figure="forecasts",
        next=following,
    )


def _halves(records: Records) -> Finding | None:
    """Whether two halves of the prompts rank the layers alike, and on how much data."""
    measured = records.settings.get("measured", {})
    moved = records.arrays("prompts").get("total_variation")
    prompts, tokens = measured.get("prompts"), measured.get("tokens_measured")
    if moved is None or not prompts:
        return None
    amount = f"{count(prompts, 'prompt')} with {tokens} tokens" if tokens else f"{prompts} prompts"
    left_out = measured.get("left_out")
    amount += f" (left out: {left_out})" if left_out else ""
    likeness = split_half(moved)
    more = (
        f"Run again with {_ENOUGH_PROMPTS} prompts or more: some verdicts need as many."
        if prompts < _ENOUGH_PROMPTS
        else "Report these numbers with their intervals."
    )
    if likeness is None:
        return Finding(
            text=f"All of this rests on {amount}, too few to compare one half with the other.",
            value=float(prompts),
            table="layers",
            next=more,
        )
    middle, low, high = likeness
    said = "agree" if middle >= _ALIKE else "agree in part" if middle >= _DIFFERENT else "disagree"
    if said == "disagree":
        more = f"Read at least {max(_ENOUGH_PROMPTS, 2 * prompts)} prompts before you trust a rank."
    return Finding(
        text=f"All of this rests on {amount}. Two halves of the prompts {said}: the layers, ranked "
        f"by how far they move the output, correlate at {numeral(middle, 2)} "
        f"[{numeral(low, 2)}, {numeral(high, 2)}] over {_SPLITS} random splits.",
        value=middle,
        interval=(low, high),
        table="layers",
        figure="variation",
        next=more,
    )


def split_half(values: NDArray[np.float64]) -> tuple[float, float, float] | None:
    """Rank correlation over layers of the medians of two halves of the prompts.

    Parameters
    ----------
    values
        One row per prompt, one column per layer.

    Returns
    -------
    Median, 2.5 % and 97.5 % quantile over random splits with a fixed seed; None below four prompts
    or three layers, or where no layer differs from another.
    """
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values).all(1)]
    if len(values) < 4 or values.shape[1] < 3:
        return None
    generator, half = np.random.default_rng(0), len(values) // 2
    correlations = []
    for _ in range(_SPLITS):
        order = generator.permutation(len(values))
        sides = [np.median(values[part], 0) for part in (order[:half], order[half:])]
        ranks = [pd.Series(side).rank().to_numpy() for side in sides]
        if min(np.ptp(rank) for rank in ranks) > 0:
            correlations.append(float(np.corrcoef(ranks[0], ranks[1])[0, 1]))
    if not correlations:
        return None
    low, middle, high = np.quantile(correlations, (0.025, 0.5, 0.975))
    return float(middle), float(low), float(high)
