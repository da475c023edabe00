r"""Median over tokens with prompts as units: the score-t interval, without resampling.

If $m$ is the median, half of the tokens of a prompt lie below it on average. With $c_p(m)$ the
number of the $n_p$ tokens of prompt $p$ that are at most $m$ and $N = \sum_p n_p$, that is a t test
of the ratio $\sum_p (c_p(m) - n_p/2) / N$ over the $n$ prompts:

$$t(m) = \frac{\sum_p c_p - N/2}{\sqrt{\frac{n}{n-1} \sum_p (c_p - n_p \sum_q c_q / N)^2}}$$

The interval is all $m$ that the test does not reject. Counts are whole, so the numerator is taken
half a token nearer to 0; without that the test of 16 prompts of one token has a level of 7.7 %.
Between two neighbouring token values $t$ is constant, so all its values come from one sort and
cumulated sums. Most of them need not be known: with $s = k / N$ after $k$ tokens and
$0 \le c_p \le n_p$, the sum of squares is, for $s \le 1/2$, at most

$$\sum_p (c_p - n_p s)^2 = \sum_p c_p^2 - 2 s \sum_p c_p n_p + s^2 \sum_p n_p^2
\le (1 - 2 s)\, k \max_p n_p + s^2 \sum_p n_p^2,$$

and for $s > 1/2$ the same with $1 - s$ and $N - k$. Where even this rejects $m$, the tokens are not
counted prompt by prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.evidence.bootstrap import Estimate, check_tokens
from flowscope.records import Interval, Unavailable

__all__ = ["median_over_prompts", "score_interval"]

_BLOCK = 16
"""Columns whose values are in memory at a time."""

_ROUNDING = 1e-6
"""Share by which the largest sum of squares is taken larger: far more than it is rounded."""


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
        As `resampled_counts` gives them; only the number of prompts is read.
    level
        Coverage of the interval.

    Raises
    ------
    InvalidInputError
        When shapes disagree.

    Notes
    -----
    The cost is O(n log n) per column: its values are sorted, and the prompts beside them where the
    interval may end (a quarter of the tokens with 64 prompts, less with more). Sixteen columns are
    in memory at a time.

    Examples
    --------
    >>> x, p = np.arange(6.0)[:, None], np.array([0, 0, 1, 1, 2, 2])
    >>> median_over_prompts(x, p, np.ones((1, 3), int))[0]
    array([2.5])
    """
    check_tokens(values, prompt, counts)
    columns = values.shape[1]
    points, low, high = (np.full(columns, np.nan) for _ in range(3))
    everyone = _clusters(prompt, level)
    for start in range(0, columns, _BLOCK):
        block = np.ascontiguousarray(values[:, start : start + _BLOCK].T, np.float64)
        for column, x in enumerate(block, start):
            absent = np.isnan(x)
            clusters = everyone
            if absent.any():
                x, clusters = x[~absent], _clusters(prompt[~absent], level)
            if len(x):
                ordered = np.sort(x)
                points[column] = _median(x, ordered)
                low[column], high[column] = _ends(x, ordered, clusters)
    units = counts.shape[1]
    if units < 2:
        return points, Unavailable("one prompt has no interval")
    method = f"score t of the median over {units} prompts"
    return points, Interval(low=low, high=high, level=level, method=method)


def score_interval(
    values: Float[NDArray[np.float64], "n"],
    prompt: Int[NDArray[np.integer], "n"],
    level: float = 0.95,
) -> tuple[float, float]:
    """Ends of the interval of the median of clustered values; NaN for a single prompt.

    Examples
    --------
    >>> score_interval(np.arange(9.0), np.arange(9))  # one token each: the t test of signs
    (1.0, 7.0)
    """
    return _ends(values, np.sort(values), _clusters(prompt, level))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clusters:
    """What the test needs of the prompts, whatever the values are.

    Attributes
    ----------
    owner
        The prompt of each token, in the narrowest type: those of 16 bits are sorted in O(n).
    sizes
        Number of tokens of each prompt.
    units
        How many prompts have tokens.
    critical
        Largest |t| that is not rejected.
    excess, share
        The numerator of t after k tokens, and k / N; k = 0 … N.
    first, last
        Numbers of tokens k outside of which every m is rejected.
    """

    owner: NDArray[np.unsignedinteger]
    sizes: NDArray[np.float64]
    units: int
    critical: float
    excess: NDArray[np.float64]
    share: NDArray[np.float64]
    first: int
    last: int


def _clusters(prompt: NDArray[np.integer], level: float) -> _Clusters:
    sizes, total = np.bincount(prompt).astype(np.float64), len(prompt)
    units = int(np.count_nonzero(sizes))
    number = np.arange(total + 1)
    excess = number - total / 2
    excess = np.sign(excess) * np.maximum(np.abs(excess) - 0.5, 0)
    critical, share, possible = np.nan, number / max(total, 1), number
    if units > 1:
        critical = float(stdtrit(units - 1, (1 + level) / 2))
        nearer = np.minimum(share, share[::-1])
        most = (1 - 2 * nearer) * nearer * total * sizes.max() + nearer**2 * (sizes**2).sum()
        with np.errstate(invalid="ignore"):  # at level 1 nothing is rejected
            widest = critical**2 * units / (units - 1) * most * (1 + _ROUNDING)
        possible = np.flatnonzero(~(excess**2 > widest))
    return _Clusters(
        owner=prompt.astype(np.min_scalar_type(max(len(sizes) - 1, 0))),
        sizes=sizes,
        units=units,
        critical=critical,
        excess=excess,
        share=share,
        first=int(possible[0]),
        last=int(possible[-1]),
    )


def _median(values: NDArray[np.float64], ordered: NDArray[np.float64]) -> np.float64:
    """The median; where it is 0, with the sign that NumPy gives it."""
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1].mean()
    return np.float64(middle if middle != 0 else np.median(values))


def _ends(
    values: NDArray[np.float64], ordered: NDArray[np.float64], clusters: _Clusters
) -> tuple[float, float]:
    if clusters.units < 2:
        return np.nan, np.nan
    # All tokens from the one before the first possible gap to the one after the last.
    least, most = ordered[[max(clusters.first - 1, 0), min(clusters.last, len(values) - 1)]]
    start, stop = np.searchsorted(ordered, least), np.searchsorted(ordered, most, side="right")
    near = np.flatnonzero((values >= least) & (values <= most))
    found, ordered = values[near], ordered[start:stop].copy()
    ordered[ordered == 0] = found[found == 0]  # 0 and −0 are equal, and stay as they came
    owner = clusters.owner
    below, inside = owner[np.flatnonzero(values < least)], owner[near[np.argsort(found)]]
    # score[k] belongs to the gap after k tokens; a gap exists only between different values, so
    # equal values may come in any order.
    gaps = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1], [True]]))
    score = _scores(clusters, below, inside)[gaps]
    open_below = gaps[score >= -clusters.critical][0]
    open_above = gaps[score <= clusters.critical][-1]
    return float(ordered[max(open_below - 1, 0)]), float(ordered[min(open_above, len(ordered) - 1)])


def _scores(
    clusters: _Clusters,
    below: NDArray[np.unsignedinteger],
    inside: NDArray[np.unsignedinteger],
) -> NDArray[np.float64]:
    """The t statistic after the tokens below and each number of those inside, from none to all."""
    sizes, units = clusters.sizes, clusters.units
    counted = np.bincount(below, minlength=len(sizes)).astype(np.float64)
    fresh = np.bincount(inside, minlength=len(sizes))
    before = np.arange(len(inside)) + np.repeat(counted - np.cumsum(fresh) + fresh, fresh)
    squares, products = np.empty((2, len(inside) + 1))  # sums of c_p squared and of c_p n_p
    squares[0], products[0] = (counted**2).sum(), (counted * sizes).sum()
    squares[1:][np.argsort(inside, kind="stable")] = 2 * before + 1
    products[1:] = sizes[inside]
    squares, products = np.cumsum(squares), np.cumsum(products)  # of whole numbers: exact
    here = slice(len(below), len(below) + len(inside) + 1)
    share = clusters.share[here]
    spread = squares - 2 * share * products + share**2 * (sizes**2).sum()
    spread = np.where(spread > 1e-9 * np.maximum(squares, 1), spread, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        score = clusters.excess[here] / np.sqrt(units / (units - 1) * spread)
    return np.where(np.isnan(score), 0.0, score)
