r"""Contraction beyond overlap: numbers per prompt, heads with simultaneous intervals, the guard.

Prompts are the units. For prompt $p$ and head $h$, $D_{ph}$ is the mean of
$\kappa - \kappa_{\text{permuted}}$ over the pairs of rows of that prompt. The effect of a head is
the mean of $D_{ph}$ over prompts. The effect that is judged is the mean over prompts of the mean of
$D_{ph}$ over heads, so that each prompt counts once and each head of a prompt counts alike. Where
attention does not know the places of the points, rows and permuted rows can be exchanged, and $D$
is symmetric about 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import rankdata

from flowscope.evidence import MINIMUM_UNITS

__all__ = ["joint_bounds", "overlap_correlations", "prompt_means"]

Array = NDArray[np.float64]

_FLIPS, _EQUAL_ROWS = 999, 1e-6


def prompt_means(
    values: NDArray[np.floating], prompt: NDArray[np.integer], prompts: int
) -> NDArray[np.float64]:
    """Mean over the pairs of each prompt, ``[prompts, …]``; NaN where no pair could be compared.

    Examples
    --------
    >>> prompt_means(np.array([[1.0], [3.0], [np.nan]]), np.array([0, 0, 1]), 2)[:, 0]
    array([ 2., nan])
    """
    present = np.isfinite(values)
    sums, sizes = (np.zeros((prompts, *values.shape[1:])) for _ in range(2))
    np.add.at(sums, prompt, np.where(present, values, 0.0).astype(np.float64))
    np.add.at(sizes, prompt, present.astype(np.float64))
    return np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)


def joint_bounds(values: Array, *, seed: int, level: float = 0.95) -> tuple[Array, Array]:
    """Ends of intervals of the column means that cover all columns together (max-t).

    The critical value is a quantile of the largest |t| over columns when the residuals of whole
    prompts change sign at random, so that what the columns have in common stays in common. It is
    at least that of one column alone.

    Parameters
    ----------
    values
        One row per prompt, one column per head; NaN is left out of its column.
    seed
        Of the random signs.
    level
        Coverage of all columns together.

    Notes
    -----
    Fewer than eight prompts give no interval: NaN. O(999 · prompts · heads).
    """
    present = np.isfinite(values)
    number = present.sum(0).astype(np.float64)
    speaking = number >= MINIMUM_UNITS
    low, high = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    if not speaking.any():
        return low, high
    number = number[speaking]
    means = np.where(present, values, 0.0)[:, speaking].sum(0) / number
    residuals = np.where(present[:, speaking], values[:, speaking] - means, 0.0)
    squares = (residuals**2).sum(0)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_FLIPS, len(values)))
    totals = signs @ residuals
    spread = np.maximum(squares - totals**2 / number, 0.0) / (number - 1)
    scores = np.divide(
        np.abs(totals), np.sqrt(number * spread), out=np.zeros_like(totals), where=spread > 0
    )
    simultaneous = float(np.quantile(scores.max(1), level, method="higher"))
    alone = stdtrit(number - 1, (1 + level) / 2)
    error = np.sqrt(squares / (number * (number - 1)))
    reach = np.maximum(simultaneous, alone) * error
    low[speaking], high[speaking] = means - reach, means + reach
    return low, high


def overlap_correlations(transport: NDArray[np.floating], overlap: NDArray[np.floating]) -> Array:
    """Rank correlation of W₁ and total variation over the pairs of each column.

    It is 1 where the rows of every pair are equal: then both are 0 and κ is 1 wherever the points
    lie. It is NaN where fewer than three pairs can be compared or one of the two never varies.

    Examples
    --------
    >>> overlap_correlations(np.array([[1.0], [2.0], [9.0]]), np.array([[0.1], [0.2], [0.3]]))
    array([1.])
    """
    correlations = np.full(transport.shape[1], np.nan)
    for k, (moved, apart) in enumerate(zip(transport.T, overlap.T, strict=True)):
        present = np.isfinite(moved) & np.isfinite(apart)
        if not present.any():
            continue
        if float(apart[present].max()) < _EQUAL_ROWS:
            correlations[k] = 1.0
        elif present.sum() >= 3:
            correlations[k] = _correlation(rankdata(moved[present]), rankdata(apart[present]))
    return correlations


def _correlation(first: Array, second: Array) -> float:
    a, b = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else math.nan
