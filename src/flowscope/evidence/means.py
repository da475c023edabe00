r"""Mean over prompts: the union of the Student interval and the bootstrap-t interval.

The mean over tokens $R = \sum_p s_p / \sum_p n_p$ of per-prompt sums $s_p$ and sizes $n_p$ is a
ratio. Linearised, it is the mean of $e_p = (s_p - R n_p) / \bar n$ with standard error
$\mathrm{se}^2 = \sum_p e_p^2 / (n (n - 1))$ over the $n$ prompts that have tokens. The Student
interval $R \pm t_{n-1}\,\mathrm{se}$ is short on one side where the prompts are skewed. The
bootstrap-t interval takes the quantiles of $(R^* - R)/\mathrm{se}^*$ over resampled prompts
instead, which follow the skewness. Their union covers in both cases. Below eight prompts the
resamples are too few and too alike to show skewness, and the bootstrap-t can be many times as wide
as the data: the Student interval stands alone there, and no claim is decided by it.
"""

from __future__ import annotations

import zlib

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.errors import InvalidInputError
from flowscope.evidence.bootstrap import Estimate, resampled_counts
from flowscope.records import Interval, Unavailable

__all__ = ["FEWEST_RESAMPLED", "RESAMPLES", "mean_over_prompts", "studentised_draws", "tails_of"]

RESAMPLES = 999
"""Resamples of the bootstrap-t; 25 of 1,000 ranks lie in each tail at 95 %."""

FEWEST_RESAMPLED = 8
"""Prompts from which the bootstrap-t is used."""

_BLOCK = 1024
"""Columns whose resamples are in memory at a time."""


def mean_over_prompts(
    sums: Float[NDArray[np.floating], "prompts columns"],
    sizes: Float[NDArray[np.floating], "prompts columns"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
    *,
    level: float = 0.95,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Estimate:
    """Mean of each column from per-prompt sums and sizes, with its interval over prompts.

    Parameters
    ----------
    sums, sizes
        Sum of the token values of each prompt, and the number of its tokens. A column whose sizes
        are all zero is NaN.
    counts
        As `resampled_counts` gives them. The first 999 rows are used; if there are fewer, 999
        others are drawn, with a seed that depends on these.
    level
        Coverage of the interval.
    within
        Least and largest value that the mean can have, such as 0 and 1 for a share; the interval
        is cut there.

    Raises
    ------
    InvalidInputError
        When shapes disagree.

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
    s, n = sums.astype(np.float64), sizes.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        points = s.sum(0) / n.sum(0)
    if len(s) < 2:
        return points, Unavailable("one prompt has no interval")
    if len(counts) < RESAMPLES:
        seed = zlib.crc32(np.ascontiguousarray(counts).tobytes())
        counts = resampled_counts(len(s), resamples=RESAMPLES, seed=seed)
    weights = counts[:RESAMPLES].astype(np.float64)
    low, high = np.full_like(points, np.nan), np.full_like(points, np.nan)
    for start in range(0, len(points), _BLOCK):
        part = slice(start, start + _BLOCK)
        ends = _union(s[:, part], n[:, part], points[part], weights, level)
        low[part], high[part] = ends
    method = f"union of Student t and bootstrap-t over {len(s)} prompts, {RESAMPLES} resamples"
    if len(s) < FEWEST_RESAMPLED:
        method = f"Student t over {len(s)} prompts"
    low, high = np.clip(low, *within), np.clip(high, *within)
    return points, Interval(low=low, high=high, level=level, method=method)


def _union(
    sums: NDArray[np.float64],
    sizes: NDArray[np.float64],
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    level: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the union of both intervals; NaN where fewer than two prompts have tokens."""
    units = (sizes > 0).sum(0)
    residuals = sums - points * sizes
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_size = sizes.sum(0) / units
        error = np.sqrt((residuals**2).sum(0) / (units * (units - 1.0))) / mean_size
        student = stdtrit(np.maximum(units - 1, 1), (1 + level) / 2)
        first, last = tails_of(studentised_draws(residuals, sizes, weights), level)
        few = units < FEWEST_RESAMPLED
        first, last = np.where(few, 0.0, first), np.where(few, 0.0, last)
        low = points - np.maximum(student, last) * error
        high = points - np.minimum(-student, first) * error
    absent = ~np.isfinite(points) | (units < 2)
    return np.where(absent, np.nan, low), np.where(absent, np.nan, high)


def studentised_draws(
    residuals: NDArray[np.float64], sizes: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Difference of each resampled mean from the mean in its own standard errors.

    A resample without spread (one prompt, drawn again and again) is NaN.
    """
    units = weights @ (sizes > 0)
    drawn_sizes = weights @ sizes
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = (weights @ residuals) / drawn_sizes
        squares = (
            weights @ residuals**2
            - 2 * shift * (weights @ (residuals * sizes))
            + shift**2 * (weights @ sizes**2)
        )
        scale = weights @ residuals**2
        squares = np.where(squares > 1e-12 * scale, squares, np.nan)
        draws: NDArray[np.float64] = shift * drawn_sizes / np.sqrt(squares * units / (units - 1))
    return np.where(np.isfinite(draws), draws, np.nan)


def tails_of(
    draws: NDArray[np.float64], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Order statistics of each column at both tails, of the draws that are numbers."""
    ordered = np.sort(draws, axis=0)
    present = np.isfinite(ordered).sum(0)
    rank = np.maximum(np.floor((present + 1) * (1 - level) / 2).astype(int), 1)
    places = np.stack([rank - 1, np.maximum(present - rank, 0)])
    first, last = np.take_along_axis(ordered, places, axis=0)
    return np.nan_to_num(first, nan=0.0), np.nan_to_num(last, nan=0.0)
