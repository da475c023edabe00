r"""Intervals by resampling prompts, not tokens.

Tokens of one prompt are dependent, so the prompt is the unit: a resample draws prompts with
replacement and keeps all their tokens. With $w_p$ the number of times prompt $p$ was drawn, the
resampled median of token values $x_i$ is the weighted median with weights $w_{p(i)}$, the resampled
mean the weighted mean. The interval is the percentile interval of the resamples.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.records import Interval, Unavailable

__all__ = [
    "Counts",
    "Estimate",
    "mean_over_prompts",
    "median_over_prompts",
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


def median_over_prompts(
    values: Float[NDArray[np.floating], "n columns"],
    prompt: Int[NDArray[np.integer], "n"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
    *,
    level: float = 0.95,
) -> Estimate:
    """Median of each column over all tokens, with its interval over prompts.

    Parameters
    ----------
    values
        One row per token; a row with NaN in a column is left out of that column.
    prompt
        The prompt each token belongs to, from 0.
    counts
        As `resampled_counts` gives them.
    level
        Coverage of the interval.

    Raises
    ------
    InvalidInputError
        When shapes disagree.

    Notes
    -----
    Each column is sorted once; a resample is a cumulative sum of weights, so the cost is
    O(n log n + resamples · n) per column.

    Examples
    --------
    >>> x, p = np.arange(6.0)[:, None], np.array([0, 0, 1, 1, 2, 2])
    >>> median_over_prompts(x, p, resampled_counts(3))[0]
    array([2.5])
    """
    points, draws = resampled_medians(values, prompt, counts)
    return points, percentile_interval(points, draws, counts, level)


def resampled_medians(
    values: Float[NDArray[np.floating], "n columns"],
    prompt: Int[NDArray[np.integer], "n"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median of each column, and its median in every resample, ``[resamples, columns]``.

    For statistics of several columns (a difference, a median of medians): they are taken in each
    resample, so that what the columns have in common stays in common.
    """
    _check(values, prompt, counts)
    points = np.full(values.shape[1], np.nan)
    draws = np.full((len(counts), values.shape[1]), np.nan)
    for column in range(values.shape[1]):
        x = values[:, column].astype(np.float64)
        known = ~np.isnan(x)
        if not known.any():
            continue
        order = np.argsort(x[known], kind="stable")
        ordered, owner = x[known][order], prompt[known][order]
        points[column] = np.median(ordered)
        draws[:, column] = _weighted_medians(ordered, owner, counts)
    return points, draws


def mean_over_prompts(
    sums: Float[NDArray[np.floating], "prompts columns"],
    sizes: Float[NDArray[np.floating], "prompts columns"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
    *,
    level: float = 0.95,
) -> Estimate:
    """Mean of each column from per-prompt sums and sizes, with its interval over prompts.

    A column whose sizes are all zero is NaN.

    Examples
    --------
    >>> mean_over_prompts(np.array([[1.0], [3.0]]), np.array([[2], [2]]), resampled_counts(2))[0]
    array([1.])
    """
    if sums.shape != sizes.shape or counts.shape[1] != len(sums):
        raise InvalidInputError(
            f"sums and sizes must be [prompts, columns] with {counts.shape[1]} prompts; got "
            f"{sums.shape} and {sizes.shape}."
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        points = sums.sum(0, dtype=np.float64) / sizes.sum(0, dtype=np.float64)
        draws = (counts @ sums.astype(np.float64)) / (counts @ sizes.astype(np.float64))
    return points, percentile_interval(points, draws, counts, level)


def _weighted_medians(
    ordered: NDArray[np.float64], owner: NDArray[np.integer], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Medians of each resample: midpoint of the lower and the upper weighted median."""
    cumulative = np.cumsum(counts.astype(np.int32)[:, owner], axis=1, dtype=np.int64)
    total = cumulative[:, -1:]
    lower = (2 * cumulative >= total).argmax(1)
    upper = (2 * cumulative > total).argmax(1)
    medians = (ordered[lower] + ordered[upper]) / 2
    return np.where(total[:, 0] > 0, medians, np.nan)


def percentile_interval(
    points: NDArray[np.float64],
    draws: NDArray[np.float64],
    counts: NDArray[np.int64],
    level: float = 0.95,
) -> "Interval | Unavailable":
    """Interval of each column from its values in the resamples; one prompt has none."""
    if counts.shape[1] < 2:
        return Unavailable("one prompt has no bootstrap interval")
    alpha = (1 - level) / 2
    missing = np.isnan(draws).all(0)
    low, high = np.full_like(points, np.nan), np.full_like(points, np.nan)
    if not missing.all():
        ends = np.nanquantile(draws[:, ~missing], [alpha, 1 - alpha], axis=0)
        low[~missing], high[~missing] = ends
    method = f"percentile bootstrap over {counts.shape[1]} prompts, {counts.shape[0]} resamples"
    return Interval(low=low, high=high, level=level, method=method)


def _check(
    values: NDArray[np.floating], prompt: NDArray[np.integer], counts: NDArray[np.int64]
) -> None:
    if values.ndim != 2 or prompt.shape != values.shape[:1]:
        raise InvalidInputError(
            f"values must be [tokens, columns] and prompt [tokens]; got {values.shape} and "
            f"{prompt.shape}."
        )
    if len(prompt) and not (prompt.min() >= 0 and prompt.max() < counts.shape[1]):
        raise InvalidInputError(
            f"prompts are numbered 0 to {counts.shape[1] - 1}; got {prompt.min()} … {prompt.max()}."
        )
