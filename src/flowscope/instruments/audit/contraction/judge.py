r"""Judge whether attention brings points together more than rows that merely overlap as much.

$\kappa(i,i') > 0$ means that the attention of two queries is nearer to each other, in $W_1$, than
the two points. Rows that merely overlap give $\kappa > 0$ too: equal rows give 1, and so does a
network of random weights, whose rows are nearly uniform. The claim is therefore judged on
$\kappa - \kappa_{\text{permuted}}$, the same rows with their keys permuted, which keeps the overlap
and forgets where the points lie. Prompts are the units: each gives the mean over its heads of the
mean over its pairs of rows. The size of the effect is its share of $1 - \kappa_{\text{permuted}}$,
what overlap leaves open. Where $W_1$ orders the pairs of rows as their plain overlap does, $\kappa$
*is* overlap, and the claim could not have failed: the verdict is uninformative. So it is where
overlap leaves less than .05 open: nearly uniform rows differ from their permutation in the third
decimal, and a share of nothing has no size.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import (
    MINIMUM_UNITS,
    judged_effect,
    mean_over_prompts,
    not_measured,
    resampled_counts,
)
from flowscope.evidence.intervals import single
from flowscope.evidence.verdicts import ends
from flowscope.instruments.audit.contraction import CONTRACTION
from flowscope.instruments.audit.units import distinct_prompts
from flowscope.lab.view import Records
from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["LEAST_ROOM", "OVERLAP", "THRESHOLDS", "judge", "judge_contraction"]

OVERLAP = 0.95
"""Rank correlation of W₁ and total variation from which κ is overlap alone."""

LEAST_ROOM = 0.05
"""Share of κ that overlap must leave open for an effect to have a size."""

THRESHOLDS = (0.05, 0.15, 0.4)
"""Shares of what overlap leaves open where an effect becomes weak, clear and strong."""

_COLUMNS = ("status", "because", "random_weights", "joint_low", "joint_high", "overlap_correlation")


def judge(records: Records) -> list[Verdict]:
    """Judge contraction from the tables and arrays of a run."""
    arrays = records.arrays("contraction")
    table = records.table("curvature", *_COLUMNS)
    distinct = distinct_prompts(records.arrays("prompts"))
    settings = records.settings
    return [
        judge_contraction(
            arrays["kappa"][distinct],
            arrays["keys_permuted"][distinct],
            table,
            resamples=int(settings["resamples"]),
            seed=int(settings["seed"]),
        )
    ]


def judge_contraction(
    kappa: NDArray[Any],
    permuted: NDArray[Any],
    heads: pd.DataFrame,
    *,
    resamples: int = 200,
    seed: int = 0,
) -> Verdict:
    """Judge κ less κ with keys permuted by its interval over prompts.

    Parameters
    ----------
    kappa, permuted
        Mean over the pairs of each prompt, ``[prompts, layers, heads]``; NaN where there is none.
    heads
        The table ``curvature``, one row per layer and head in the order of the arrays.
    resamples, seed
        Of the interval over prompts.
    """
    speaking = (heads["status"] == "ok").to_numpy()
    if not speaking.any():
        reasons = heads["because"].value_counts()
        most = f"{reasons.iloc[0]} of {len(heads)} heads: {reasons.index[0]}"
        return not_measured(CONTRACTION, f"no head gave a number; {most}")
    parts = [_over_heads(values, speaking) for values in (kappa, permuted)]
    measured = np.isfinite(parts[0])
    counts = resampled_counts(int(measured.sum()), resamples=resamples, seed=seed)
    numbers = []
    for values in (*parts, parts[0] - parts[1]):
        column = values[measured][:, None]
        point, interval = mean_over_prompts(column, np.ones_like(column), counts)
        numbers.append((float(point[0]), single(interval)))
    (value, value_interval), (null, null_interval), (effect, interval) = numbers
    room = 1 - null
    size = effect / room if room > 0 else math.nan
    units = int(measured.sum())
    kept = {"n": units, "seed": seed}
    correlations = heads.loc[speaking, "overlap_correlation"]
    return judged_effect(
        claim=CONTRACTION,
        statistic=_number("mean κ over heads", value, value_interval, **kept),
        null=_number("the same, keys permuted", null, null_interval, **kept),
        effect=effect,
        interval=interval,
        thresholds=THRESHOLDS,
        size=size,
        because=_reason(heads, speaking, (value, null, effect), interval, size),
        units=units,
        unit="different prompts",
        guard="" if units < MINIMUM_UNITS else _guard(correlations, room),
    )


def _over_heads(values: NDArray[Any], speaking: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean over the heads that give a number, per prompt; NaN for a prompt without any."""
    flat = values.reshape(len(values), -1)[:, speaking].astype(np.float64)
    present = np.isfinite(flat)
    sums, sizes = np.where(present, flat, 0.0).sum(1), present.sum(1)
    means = np.full(len(flat), np.nan)
    np.divide(sums, sizes, out=means, where=sizes > 0)
    return means


def _number(
    name: str, value: float, interval: Interval | Unavailable, *, n: int, seed: int
) -> Measurement:
    return Measurement(
        name=name,
        values=np.asarray(value),
        unit="1",
        n=n,
        estimator="mean over prompts of the mean over heads and pairs of rows",
        dtype="float64",
        seed=seed,
        interval=interval,
    )


def _guard(correlations: pd.Series[float], room: float) -> str:
    if room < LEAST_ROOM:
        return (
            f"rows with their keys shuffled have κ = {1 - room:.3f}, so that overlap leaves only "
            f"{room:.3f} open (limit {LEAST_ROOM:g})"
        )
    middle = float(correlations.median())
    if not middle >= OVERLAP:
        return ""
    return (
        "the transport distance W₁ orders the pairs of attention rows as their plain overlap does "
        f"(rank correlation {middle:.3f}, limit {OVERLAP:g}), so that κ says nothing about places"
    )


def _reason(
    heads: pd.DataFrame,
    speaking: NDArray[np.bool_],
    numbers: tuple[float, float, float],
    interval: Interval | Unavailable,
    size: float,
) -> str:
    value, null, effect = numbers
    fresh = heads.loc[speaking, "random_weights"].mean()
    beside = "" if math.isnan(fresh) else f" ({fresh:.2f} with random weights)"
    shown = ""
    if isinstance(interval, Interval):
        low, high = ends(interval)
        shown = f" [{low:+.3f}, {high:+.3f}]"
    share = "" if math.isnan(size) else f", {size:.0%} of what overlap leaves open"
    more = int((heads.loc[speaking, "joint_low"] > 0).sum())
    less = int((heads.loc[speaking, "joint_high"] < 0).sum())
    return (
        f"κ is {value:.2f} over {speaking.sum()} of {len(heads)} heads and {null:.2f} with keys "
        f"shuffled, which is overlap alone{beside}; the difference is {effect:+.3f}{shown}{share}; "
        f"tested together, {more} heads bring points together more than overlap does, {less} less"
    )
