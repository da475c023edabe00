r"""Judge whether nearly decided tokens are moved less than another token's step would move them.

The effect is the slope of log(TV / TV of a transplanted step) on log tail mass δ, within prompt and
layer, common to the layers that are *mixed*: 10 to 90 % of their tokens are decided (δ < ½). Where
steps have nothing to do with the certainty of their token the slope is 0, whatever softmax does to
them. Its interval is that of the mean of the jackknife pseudo-values of the prompts. The exact
bound on a step is a theorem: where steps exceed it the numbers are wrong, and nothing is decided.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import judged_effect, mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import single
from flowscope.evidence.verdicts import Claimed, ends, pure_number
from flowscope.instruments.audit.locking import LOCKING
from flowscope.lab.view import Records
from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["LEAST_SPREAD", "MIXED", "THRESHOLDS", "judge", "judge_locking"]

MIXED = (0.1, 0.9)
"""Share of decided tokens from which and up to which a layer is mixed."""

LEAST_SPREAD = 0.5
"""Standard deviation of log δ within prompts below which the claim could not have failed."""

THRESHOLDS = (0.05, 0.15, 0.4)
"""Slopes from which the effect is weak, clear and strong."""

_NAME = "slope of log(TV / transplanted TV) on log tail mass"
_UNITS = "different prompts with at least 3 tokens"
_RESAMPLES = 999
_BULK = 0.8


def judge(records: Records) -> list[Verdict]:
    """Whether nearly decided tokens are moved less, from the tables of a run."""
    slopes = records.table("locking_slopes", "mixed", "contribution", "decided", "exceeded")
    prompts = records.table("locking_prompts", "pseudo_value", "squares", "products")
    return [judge_locking(slopes, prompts, claim=LOCKING, seed=records.settings["seed"])]


def judge_locking(
    slopes: pd.DataFrame, prompts: pd.DataFrame, *, claim: Claimed, seed: int
) -> Verdict:
    """Judge by the slope common to the mixed layers, with prompts as units.

    Parameters
    ----------
    slopes, prompts
        Tables ``locking_slopes`` and ``locking_prompts``.
    claim
        What is judged.
    seed
        Of the resampled prompts.
    """
    squares = float(prompts["squares"].sum())
    pseudo = prompts["pseudo_value"].dropna().to_numpy(np.float64)
    interval = _interval(pseudo, seed)
    value = float(prompts["products"].sum()) / squares if squares > 0 else math.nan
    statistic = _statistic(value, len(pseudo), interval, seed)
    guard = _guard(slopes, prompts)
    exceeded, steps = int(slopes["exceeded"].sum()), int(slopes["steps"].sum())
    because = "" if math.isnan(value) else _because(value, interval, slopes, prompts)
    if exceeded:
        reason = (
            f"{exceeded} of {steps} steps exceed the exact bound, which is a theorem: the numbers "
            "are unreliable. Measure in another dtype, or report it as a defect"
        )
        statistic, guard, because = Measurement.abstained(_NAME, reason), "", ""
    elif because:
        because += f"; the exact bound holds in all {steps} steps"
    nothing = Unavailable("no layer has a slope")
    return judged_effect(
        claim=claim,
        statistic=statistic,
        null=pure_number(
            "slope of steps that do not know their token",
            0.0,
            n=len(pseudo),
            estimator="0 by exchange: own and transplanted steps are then alike",
            seed=seed,
        ),
        effect=nothing if math.isnan(value) else value,
        interval=interval,
        thresholds=THRESHOLDS,
        because=because,
        units=len(pseudo),
        unit=_UNITS,
        guard=guard,
    )


def _interval(pseudo: NDArray[np.float64], seed: int) -> Interval | Unavailable:
    if len(pseudo) < 2:
        return Unavailable("an interval needs at least two prompts")
    counts = resampled_counts(len(pseudo), resamples=_RESAMPLES, seed=seed)
    return single(mean_over_prompts(pseudo[:, None], np.ones((len(pseudo), 1)), counts)[1])


def _statistic(
    value: float, prompts: int, interval: Interval | Unavailable, seed: int
) -> Measurement:
    if math.isnan(value):
        return Measurement.abstained(_NAME, "no mixed layer has spread in tail mass")
    return pure_number(
        _NAME,
        value,
        n=prompts,
        estimator="least squares within prompt and layer, common to the mixed layers; interval "
        "over jackknife pseudo-values of prompts",
        seed=seed,
        interval=interval,
    )


def _guard(slopes: pd.DataFrame, prompts: pd.DataFrame) -> str:
    """Why the claim could not have failed on these data; empty if it could."""
    shares = slopes["decided"].to_numpy(np.float64)
    if not slopes["mixed"].to_numpy(bool).any():
        return (
            "tokens are all decided or none: at every layer the top token has more than half of "
            f"the probability for fewer than {MIXED[0]:.0%} or more than {MIXED[1]:.0%} of tokens "
            f"(here {shares.min():.0%} to {shares.max():.0%})"
        )
    freedom = int(prompts["freedom"].sum())
    spread = math.sqrt(float(prompts["squares"].sum()) / freedom) if freedom else 0.0
    if spread < LEAST_SPREAD:
        return (
            "the tokens of a prompt are all about equally decided (standard deviation of log tail "
            f"mass {spread:.2g}; at least {LEAST_SPREAD:g} is needed)"
        )
    return ""


def _because(
    value: float, interval: Interval | Unavailable, slopes: pd.DataFrame, prompts: pd.DataFrame
) -> str:
    """The numbers as a sentence for a reader who has not seen the theory."""
    size = float(prompts["size_products"].sum() / prompts["squares"].sum())
    mixed = slopes[slopes["mixed"].to_numpy(bool)]
    around = ""
    if not isinstance(interval, Unavailable):
        low, high = ends(interval)
        around = f" [{low:+.3f}, {high:+.3f}]"
    return (
        "each time the probability left outside the top token falls tenfold, a layer moves the "
        f"output {_tenfold(value)} {'less far' if value > 0 else 'further'}, compared with what "
        f"another token's step would do (slope {value:+.3f}{around} per factor e, 0 if steps do "
        f"not depend on it); the steps themselves get {_tenfold(size)} "
        f"{'smaller' if size > 0 else 'larger'}; {len(mixed)} of {len(slopes)} layers count, at "
        f"least {_BULK:.0%} of it comes from {_places(_bulk(mixed, value))}"
    )


def _bulk(mixed: pd.DataFrame, value: float) -> list[int]:
    """The fewest layers whose contributions make up the bulk of the slope."""
    ordered = mixed.sort_values("contribution", ascending=value < 0)
    enough = ordered["contribution"].cumsum().abs().to_numpy() >= _BULK * abs(value)
    count = int(np.argmax(enough)) + 1 if enough.any() else len(ordered)
    return sorted(ordered["layer"].astype(int).tolist()[:count])


def _tenfold(slope: float) -> str:
    """By how much a quantity changes where the tail mass falls tenfold, in per cent."""
    return f"{abs(10**-slope - 1):.0%}"


def _places(layers: list[int]) -> str:
    """Layers in words, neighbours joined.

    >>> _places([1, 2, 3, 7])
    'layers 1–3, 7'
    """
    starts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(layers)) if b > a + 1), len(layers)]
    parts = [layers[a:b] for a, b in pairwise(starts)]
    words = ", ".join(f"{p[0]}–{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)
    return f"layer{'s' if len(layers) > 1 else ''} {words}"
