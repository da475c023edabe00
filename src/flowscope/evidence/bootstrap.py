r"""Resampled prompts, for differences and medians of medians.

Tokens of one prompt are dependent, so the prompt is the unit: a resample draws prompts with
replacement and keeps all their tokens. A statistic of several columns is taken in each resample, so
that what the columns have in common stays in common. Its interval is the *expanded* percentile
interval: the plain percentiles of $n$ prompts are too narrow by $\sqrt{(n-1)/n}$ and by the ratio
of normal to Student quantiles, so the tail level $\alpha/2$ is replaced by

$$\alpha'/2 = \Phi\left(-\sqrt{n/(n-1)}\; t_{n-1,\,1-\alpha/2}\right)$$

(Hesterberg 2015, *What teachers should know about the bootstrap*, section 5.3).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from flowscope.errors import InvalidInputError
from flowscope.evidence.weighted_medians import weighted_medians
from flowscope.records import Interval, Unavailable

__all__ = [
    "Counts",
    "Estimate",
    "check_tokens",
    "expanded_level",
    "percentile_interval",
    "resampled_counts",
    "resampled_medians",
]

Counts = NDArray[np.int64]
"""How often each prompt is drawn, by resample: one row per resample."""

Estimate = tuple[NDArray[np.float64], "Interval | Unavailable"]


def resampled_counts(
    prompts: int, *, resamples: int = 200, seed: int = 0
) -> Int[NDArray[np.int64], "resamples prompts"]:
    """How often each prompt is drawn in each resample.

    Examples
    --------
    >>> resampled_counts(3, resamples=2, seed=0).sum(axis=1).tolist()
    [3, 3]
    """
    generator = np.random.default_rng(seed)
    return generator.multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)


def resampled_medians(
    values: Float[NDArray[np.floating], "n columns"],
    prompt: Int[NDArray[np.integer], "n"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median of each column, and its median in every resample, ``[resamples, columns]``.

    For statistics of several columns (a difference, a median of medians): they are taken in each
    resample, so that what the columns have in common stays in common.
    """
    check_tokens(values, prompt, counts)
    points = np.full(values.shape[1], np.nan)
    draws = np.full((len(counts), values.shape[1]), np.nan)
    for column in range(values.shape[1]):
        x = values[:, column].astype(np.float64)
        present = ~np.isnan(x)
        if not present.any():
            continue
        order = np.argsort(x[present], kind="stable")
        ordered, owner = x[present][order], prompt[present][order]
        points[column] = np.median(ordered)
        draws[:, column] = weighted_medians(ordered, owner, counts)
    return points, draws


def expanded_level(units: int, level: float = 0.95) -> float:
    """Level of the percentiles that makes an interval over a few units wide enough.

    Examples
    --------
    >>> [round(expanded_level(units), 4) for units in (8, 16, 1000)]
    [0.9885, 0.9723, 0.9504]
    """
    quantile = stdtrit(units - 1, (1 + level) / 2)
    return float(1 - 2 * ndtr(-np.sqrt(units / (units - 1)) * quantile))


def percentile_interval(
    points: NDArray[np.float64],
    draws: NDArray[np.float64],
    counts: NDArray[np.int64],
    level: float = 0.95,
) -> Interval | Unavailable:
    """Expanded percentile interval of each column from its resamples; one prompt has none."""
    resamples, units = counts.shape
    if units < 2:
        return Unavailable("one prompt has no bootstrap interval")
    tail = (1 - expanded_level(units, level)) / 2
    missing = np.isnan(draws).all(0)
    low, high = np.full_like(points, np.nan), np.full_like(points, np.nan)
    if not missing.all():
        ends = np.nanquantile(draws[:, ~missing], [tail, 1 - tail], axis=0)
        low[~missing], high[~missing] = ends
    method = f"expanded percentile bootstrap over {units} prompts, {resamples} resamples"
    return Interval(low=low, high=high, level=level, method=method)


def check_tokens(
    values: NDArray[np.floating], prompt: NDArray[np.integer], counts: NDArray[np.int64]
) -> None:
    """Refuse token values whose shape or numbers of prompts do not fit the resamples."""
    if values.ndim != 2 or prompt.shape != values.shape[:1]:
        raise InvalidInputError(
            f"values must be [tokens, columns] and prompt [tokens]; got {values.shape} and "
            f"{prompt.shape}."
        )
    if len(prompt) and not (prompt.min() >= 0 and prompt.max() < counts.shape[1]):
        raise InvalidInputError(
            f"prompts are numbered 0 to {counts.shape[1] - 1}; got {prompt.min()} … {prompt.max()}."
        )
