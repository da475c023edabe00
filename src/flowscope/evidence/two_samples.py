r"""Differences of many means between two sets of units that are not paired.

With $\bar x_j, \bar y_j$ the means of column $j$ over $m$ and $n$ units, Welch's statistic is
$T_j = (\bar y_j - \bar x_j)/\sqrt{s_{xj}^2/m + s_{yj}^2/n}$. Its null is drawn by resampling the
units of each set around the mean of that set, all columns of a unit together, and the quantile of
$\max_j |T_j^*|$ makes intervals that cover all differences at once.

Exchanging units between the sets would be exact for two sets of *one law*, but it takes a
difference of spreads for a difference of means: for lognormal columns with spreads of 1 and 3 it
rejects equal means in half of all cases and more (``benchmarks/compare_null.py``).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.errors import InvalidInputError
from flowscope.evidence.bootstrap import resampled_counts
from flowscope.evidence.maximal_t import Simultaneous, joint_interval, largest_of
from flowscope.evidence.means import RESAMPLES, tails_of
from flowscope.records import Interval, Unavailable

__all__ = ["simultaneous_difference"]

_ROUNDING = 1e-12
"""Differences this small against the values themselves are rounding, and count as none."""


def simultaneous_difference(
    first: Float[NDArray[np.floating], "m columns"],
    second: Float[NDArray[np.floating], "n columns"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Simultaneous:
    """Mean of the second set minus mean of the first, for each column and for all together.

    Parameters
    ----------
    first, second
        One row per unit (prompt, pair, image) and the same columns; NaN where a unit has no value.
    level
        Coverage of each interval, and of all joint intervals together.
    seed
        Seed of the resamples.

    Raises
    ------
    InvalidInputError
        The columns differ.

    Notes
    -----
    The pointwise interval is the union of Welch's and of the bootstrap-t interval. Below 16 units
    on a side the joint intervals are wide: their error is 0 to 2 % where 5 % is allowed.

    Examples
    --------
    >>> low = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 0.0], [1.0, 1.0]] * 4)
    >>> result = simultaneous_difference(low, low + [5.0, 0.0])
    >>> (result.p < 0.05).tolist()
    [True, False]
    """
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InvalidInputError(
            "both sets must be [units, columns] with the same columns, found shapes "
            f"{first.shape} and {second.shape}."
        )
    sets = [_Set(values) for values in (first, second)]
    difference = sets[1].means - sets[0].means
    size = _ROUNDING * np.maximum(sets[0].size, sets[1].size)
    difference = np.where(np.abs(difference) <= size, 0.0, difference)
    if min(len(first), len(second)) < 2:
        absent = Unavailable("one unit has no interval")
        return Simultaneous(difference, absent, absent, np.full(len(difference), np.nan))
    drawn = [part.drawn(seed=2 * seed + side) for side, part in enumerate(sets)]
    variance = sets[0].variances + sets[1].variances
    draws = _ratio(drawn[1][0] - drawn[0][0], drawn[0][1] + drawn[1][1])
    error = np.sqrt(variance)
    pointwise = _pointwise(sets, difference, error, draws, level)
    maxima = largest_of(draws)
    method = (
        f"maximal t over {len(first)} and {len(second)} unpaired units and "
        f"{len(difference)} columns, {RESAMPLES} resamples"
    )
    critical = float(np.quantile(maxima, level, method="higher"))
    joint = joint_interval(difference, error, critical, pointwise, method)
    t = np.abs(_ratio(difference, variance))
    p = np.mean(np.r_[np.inf, maxima] >= t[:, None] * (1 - 1e-9), axis=1)
    return Simultaneous(difference, pointwise, joint, np.where(np.isnan(error), np.nan, p))


class _Set:
    """Units of one side: their means, the variances of these, and resamples of both."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        x = values.astype(np.float64)
        self.present = np.isfinite(x).astype(np.float64)
        self.n = self.present.sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.means = np.where(self.present > 0, x, 0.0).sum(0) / self.n
            residuals = np.where(self.present > 0, x - self.means, 0.0)
            self.size = np.where(self.present > 0, np.abs(x), 0.0).max(0, initial=0.0)
            self.residuals = np.where(np.abs(residuals) <= _ROUNDING * self.size, 0.0, residuals)
            squares = (self.residuals**2).sum(0)
            self.variances = np.where(self.n < 2, np.nan, squares / (self.n * (self.n - 1)))

    def drawn(self, *, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Resampled means about the mean, and the variances of each; NaN without two units."""
        counts = resampled_counts(len(self.residuals), resamples=RESAMPLES, seed=seed)
        weights = counts.astype(np.float64)
        n, squares = weights @ self.present, weights @ self.residuals**2
        with np.errstate(invalid="ignore", divide="ignore"):
            means = weights @ self.residuals / n
            spread = squares / n - means**2
            spread = np.where(spread > 1e-12 * squares / n, spread, 0.0)
            return means, np.where(n < 2, np.nan, spread / (n - 1))


def _ratio(difference: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Difference in standard errors; 0 where there is neither, NaN or infinite without error."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: NDArray[np.float64] = np.where(
            (difference == 0) & (variance == 0), 0.0, difference / np.sqrt(variance)
        )
    return ratio


def _pointwise(
    sets: list[_Set],
    difference: NDArray[np.float64],
    error: NDArray[np.float64],
    draws: NDArray[np.float64],
    level: float,
) -> Interval:
    """Union of Welch's interval and the bootstrap-t interval of each column."""
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = sum(part.variances**2 / (part.n - 1) for part in sets)
        freedom = np.where(error > 0, error**4 / parts, 1.0)
        student = stdtrit(np.maximum(freedom, 1.0), (1 + level) / 2)
        first, last = tails_of(np.where(np.isfinite(draws), draws, np.nan), level)
        low = difference - np.maximum(student, last) * error
        high = difference - np.minimum(-student, first) * error
    sizes = " and ".join(str(len(part.residuals)) for part in sets)
    method = f"union of Welch's t and bootstrap-t over {sizes} units, {RESAMPLES} resamples"
    return Interval(low=low, high=high, level=level, method=method)
