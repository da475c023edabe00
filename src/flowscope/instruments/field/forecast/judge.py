"""Judge whether the forecast of rounding a block holds on prompts it has not seen.

Two effects must both be above 0: the rank correlation of forecast and measured cost less that of
the relative output error, and log 2 less the distance of the median ratio from 1 in logarithms.
The verdict is that of the smaller one. Prompts of the forecast and of the measurement are resampled
apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from flowscope.evidence import judged_effect, not_measured, percentile_interval, resampled_counts
from flowscope.evidence.intervals import smallest_of
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.field.forecast import FORECAST
from flowscope.lab.view import Records
from flowscope.records import Unavailable, Verdict

__all__ = ["LEAST_BLOCKS", "THRESHOLDS", "forecast", "judge_forecast", "rank_correlation"]

Array = NDArray[np.float64]

THRESHOLDS = (0.05, 0.15, 0.4)
"""Leads in rank correlation from which F3 is weak, clear and strong."""

LEAST_BLOCKS = 6
"""Fewer blocks are not ranked: a rank correlation of five numbers is mostly chance."""

_RESAMPLES = 999


def forecast(records: Records) -> list[Verdict]:
    """Judge F3 from the rows of rounding in the table ``forecast_prompts``."""
    frame = records.table(
        "forecast_prompts", "kind", "layer", "prompt", "predicted", "relative_error", "measured"
    )
    frame = frame[frame["kind"] == "quantise"]

    def by_prompt(name: str) -> Array:
        return np.asarray(frame.pivot(index="prompt", columns="layer", values=name), dtype=float)

    predicted, error, measured = (
        by_prompt(name) for name in ("predicted", "relative_error", "measured")
    )
    there = np.isfinite(predicted).all(1) & np.isfinite(error).all(1)
    predicted, error = predicted[there], error[there]
    measured = measured[np.isfinite(measured).all(1)]
    return [judge_forecast(predicted, error, measured, seed=int(records.settings["seed"]))]


def judge_forecast(predicted: Array, error: Array, measured: Array, *, seed: int) -> Verdict:
    """Verdict on a forecast.

    Parameters
    ----------
    predicted, error
        Forecast cost and relative output error, ``[prompts, blocks]``.
    measured
        Measured cost on other prompts, ``[other prompts, blocks]``.
    seed
        Of the resamples.
    """
    if not len(predicted) or not len(measured):
        return not_measured(FORECAST, "no prompt has both a forecast and a measurement")
    n, blocks = min(len(predicted), len(measured)), predicted.shape[1]
    points, parts = _effects(predicted.mean(0), error.mean(0), measured.mean(0))
    first = resampled_counts(len(predicted), resamples=_RESAMPLES, seed=seed)
    second = resampled_counts(len(measured), resamples=_RESAMPLES, seed=seed + 1)
    draws = np.stack(
        [
            _effects(a @ predicted / a.sum(), a @ error / a.sum(), b @ measured / b.sum())[0]
            for a, b in zip(first, second, strict=True)
        ]
    )
    rank, peer, ratio = parts
    fewer = first if len(predicted) == n else second
    short = blocks < LEAST_BLOCKS
    undefined = bool(np.isnan(points).any())
    estimator = "rank correlation over blocks"
    return judged_effect(
        claim=FORECAST,
        statistic=pure_number("forecast", rank, n=n, estimator=estimator, seed=seed),
        null=pure_number("relative output error", peer, n=n, estimator=estimator, seed=seed),
        effect=Unavailable("a cost is 0") if undefined else float(points.min()),
        interval=Unavailable("a cost is 0")
        if undefined
        else smallest_of(percentile_interval(points, draws, fewer)),
        thresholds=THRESHOLDS,
        because=f"forecast and measured cost of rounding each of {blocks} blocks have a rank "
        f"correlation of {rank:.2f}, the relative output error {peer:.2f}; measured cost over "
        f"forecast is {ratio:.2f} (median over blocks)",
        units=n,
        unit="prompts in each half of the texts (to forecast, to measure)",
        guard=f"{blocks} blocks are too few to rank; F3 needs {LEAST_BLOCKS}" if short else "",
    )


def _effects(predicted: Array, error: Array, measured: Array) -> tuple[Array, tuple[float, ...]]:
    """Both effects, and rank correlation, that of the peer, and median ratio."""
    rank, peer = rank_correlation(predicted, measured), rank_correlation(error, measured)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.median(measured / predicted))
        factor = np.log(2) - abs(np.log(ratio)) if 0 < ratio < np.inf else np.nan
    return np.array([rank - peer, factor]), (rank, peer, ratio)


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's rank correlation; NaN where a number is missing or all are equal.

    Examples
    --------
    >>> rank_correlation(np.array([1.0, 2.0, 4.0]), np.array([1.0, 9.0, 8.0]))
    0.5
    """
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("nan")
    a, b = (ranks - ranks.mean() for ranks in (rankdata(x), rankdata(y)))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else float("nan")
