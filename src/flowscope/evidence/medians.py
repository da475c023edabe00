r"""Median over tokens with prompts as units: the score-t interval, without resampling.

If $m$ is the median, half of the tokens of a prompt lie below it on average. With $c_p(m)$ the
number of the $n_p$ tokens of prompt $p$ that are at most $m$ and $N = \sum_p n_p$, that is a t test
of the ratio $\sum_p (c_p(m) - n_p/2) / N$ over the $n$ prompts:

$$t(m) = \frac{\sum_p c_p - N/2}{\sqrt{\frac{n}{n-1} \sum_p (c_p - n_p \sum_q c_q / N)^2}}$$

The interval is all $m$ that the test does not reject. Counts are whole, so the numerator is taken
half a token nearer to 0; without that the test of 16 prompts of one token has a level of 7.7 %.
Between two neighbouring token values $t$ is constant, so all its values come from one sort and
cumulated sums.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.evidence.bootstrap import Estimate, check_tokens
from flowscope.records import Interval, Unavailable

__all__ = ["median_over_prompts", "score_interval"]


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
    Each column is sorted once; the cost is O(n log n) per column.

    Examples
    --------
    >>> x, p = np.arange(6.0)[:, None], np.array([0, 0, 1, 1, 2, 2])
    >>> median_over_prompts(x, p, np.ones((1, 3), int))[0]
    array([2.5])
    """
    check_tokens(values, prompt, counts)
    columns = values.shape[1]
    points, low, high = (np.full(columns, np.nan) for _ in range(3))
    for column in range(columns):
        x = values[:, column].astype(np.float64)
        present = ~np.isnan(x)
        if present.any():
            points[column] = np.median(x[present])
            low[column], high[column] = score_interval(x[present], prompt[present], level)
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
    order = np.argsort(values, kind="stable")
    ordered, owner = values[order], prompt[order]
    per_prompt = np.bincount(owner).astype(np.float64)
    units = int(np.count_nonzero(per_prompt))
    if units < 2:
        return np.nan, np.nan
    score = _scores(owner, per_prompt, units)
    critical = stdtrit(units - 1, (1 + level) / 2)
    # score[k] belongs to the gap after k tokens; a gap exists only between different values.
    gaps = np.flatnonzero(np.r_[True, ordered[1:] > ordered[:-1], True])
    open_below = gaps[score[gaps] >= -critical][0]
    open_above = gaps[score[gaps] <= critical][-1]
    return float(ordered[max(open_below - 1, 0)]), float(ordered[min(open_above, len(ordered) - 1)])


def _scores(
    owner: NDArray[np.integer], per_prompt: NDArray[np.float64], units: int
) -> NDArray[np.float64]:
    """The t statistic after the first k tokens, k = 0 … N."""
    total = len(owner)
    by_prompt = np.argsort(owner, kind="stable")
    starts = np.cumsum(per_prompt) - per_prompt
    earlier = np.empty(total)  # tokens of the same prompt before each token
    earlier[by_prompt] = np.arange(total) - starts[owner[by_prompt]]
    squares = np.r_[0.0, np.cumsum(2 * earlier + 1)]  # sum of c_p squared
    products = np.r_[0.0, np.cumsum(per_prompt[owner])]  # sum of c_p n_p
    share = np.arange(total + 1) / total
    spread = squares - 2 * share * products + share**2 * (per_prompt**2).sum()
    spread = np.where(spread > 1e-9 * np.maximum(squares, 1), spread, 0.0)
    excess = np.arange(total + 1) - total / 2
    excess = np.sign(excess) * np.maximum(np.abs(excess) - 0.5, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        score = excess / np.sqrt(units / (units - 1) * spread)
    return np.where(np.isnan(score), 0.0, score)
