r"""Many means at once (heads, layers, couplings): intervals and p-values by the maximal t.

With $T_j$ the Student statistic of column $j$ over the units and $c$ the quantile of
$\max_j |T_j^*|$ under the null, the intervals $\bar x_j \pm c\,\mathrm{se}_j$ cover *all* means
together, and $p_j = P(\max_k |T_k^*| \ge |T_j|)$ is the p-value of column $j$ corrected for all.

The null is by default the bootstrap of the studentised maximum: units are drawn with replacement
from the centred data. It keeps its level for skewed columns and is cautious at 8 units. Where the
null hypothesis makes the values symmetric about it, as for differences of paired units whose two
members could be exchanged, flipping the signs of units is exact and has more power; for skewed
values it is badly wrong (39 to 48 % false rejections for 20 lognormal columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.evidence.bootstrap import Counts, resampled_counts
from flowscope.evidence.means import RESAMPLES, mean_over_prompts, studentised_draws
from flowscope.records import Interval, Unavailable

__all__ = ["Simultaneous", "joint_interval", "largest_of", "simultaneous"]

_ENUMERATED = 10
"""Units up to which every pattern of signs is taken."""


@dataclass(frozen=True, eq=False)
class Simultaneous:
    """Means of several columns, each by itself and all together.

    Attributes
    ----------
    points
        Mean of each column.
    pointwise
        Interval of each column by itself.
    joint
        Intervals that cover all columns together with the stated probability.
    p
        p-value of each column, corrected for the number of columns.
    """

    points: NDArray[np.float64]
    pointwise: Interval | Unavailable
    joint: Interval | Unavailable
    p: NDArray[np.float64]

    @property
    def p_any(self) -> float:
        """The p-value of the hypothesis that all columns have the null as their mean."""
        return float(np.nanmin(self.p)) if np.isfinite(self.p).any() else float("nan")


def simultaneous(
    values_by_unit: Float[NDArray[np.floating], "units columns"],
    *,
    null: float = 0.0,
    symmetric: bool = False,
    level: float = 0.95,
    seed: int = 0,
) -> Simultaneous:
    """Means of columns with pointwise and joint intervals and corrected p-values.

    Parameters
    ----------
    values_by_unit
        One row per unit (prompt, pair, image); NaN where a unit has no value in a column.
    null
        The mean of every column under the null hypothesis.
    symmetric
        Whether the values of a unit are symmetric about the null under the null hypothesis, as
        differences of exchangeable pairs are: signs of units are then flipped instead of resampled.
    level
        Coverage of each interval, and of all joint intervals together.
    seed
        Seed of the resamples.

    Raises
    ------
    InvalidInputError
        The values are not a table.

    Examples
    --------
    >>> pairs = np.array([[1.0, -1.0], [2.0, 1.0], [1.5, -2.0], [1.0, 2.0]] * 3)
    >>> result = simultaneous(pairs, symmetric=True)
    >>> (result.p < 0.05).tolist()
    [True, False]
    """
    if values_by_unit.ndim != 2:
        raise InvalidInputError(
            f"values must be [units, columns], found shape {values_by_unit.shape}: give one row "
            "per unit."
        )
    x = values_by_unit.astype(np.float64) - null
    sizes = np.isfinite(x).astype(np.float64)
    sums = np.where(sizes > 0, x, 0.0)
    units = len(x)
    if units < 2:
        absent = Unavailable("one unit has no interval")
        return Simultaneous(x.sum(0) + null, absent, absent, np.full(x.shape[1], np.nan))
    counts = _draws(units, seed)
    means, pointwise = mean_over_prompts(sums, sizes, counts, level=level)
    t, error = _student(sums, sizes)
    residuals = np.where(sizes > 0, sums - means, 0.0)
    if symmetric:
        signs = _signs(units, seed)
        maxima, null_maxima = _flipped(residuals, sizes, signs), _flipped(sums, sizes, signs)
        how = f"{len(signs)} patterns of signs"
    else:
        maxima = largest_of(studentised_draws(residuals, sizes, counts.astype(np.float64)))
        null_maxima, how = np.r_[np.inf, maxima], f"{RESAMPLES} resamples"
    p = np.mean(null_maxima >= np.abs(t)[:, None] * (1 - 1e-9), axis=1)
    method = f"maximal t over {units} units and {x.shape[1]} columns, {how}"
    joint = joint_interval(
        means, error, np.quantile(maxima, level, method="higher"), pointwise, method
    )
    return Simultaneous(
        means + null, _moved(pointwise, null), _moved(joint, null), np.where(np.isnan(t), np.nan, p)
    )


@lru_cache(maxsize=32)
def _draws(units: int, seed: int) -> Counts:
    """Shared resamples: many families over the same units use the same ones."""
    counts = resampled_counts(units, resamples=RESAMPLES, seed=seed)
    counts.setflags(write=False)
    return counts


def _student(
    sums: NDArray[np.float64], sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Student statistic and standard error of each column; NaN below two units."""
    n = sizes.sum(0)
    error, t = np.full(len(n), np.nan), np.full(len(n), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums.sum(0) / n
        squares = (np.where(sizes > 0, sums - means, 0.0) ** 2).sum(0)
        error[:] = np.sqrt(squares / (n * (n - 1)))
        t[:] = np.where((means == 0) & (error == 0), 0.0, means / error)
    t[n < 2] = np.nan
    return t, error


def _signs(units: int, seed: int) -> NDArray[np.float64]:
    """Patterns of signs: all of them for few units, random ones after the identity for many."""
    if units <= _ENUMERATED:
        bits = np.arange(2**units)[:, None] >> np.arange(units) & 1
        return np.asarray(1.0 - 2.0 * bits, np.float64)
    random = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RESAMPLES, units))
    return np.concatenate([np.ones((1, units)), random])


def _flipped(
    values: NDArray[np.float64], sizes: NDArray[np.float64], signs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Largest absolute t over the columns for every pattern of signs."""
    n, squares = sizes.sum(0), (values**2).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = signs @ values / n
        spread = squares - n * means**2
        spread = np.where(spread > 1e-12 * squares, spread, 0.0)
        t = means / np.sqrt(spread / (n * (n - 1)))
    return largest_of(np.where((n >= 2) & (squares > 0), t, np.nan))


def largest_of(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest absolute value over the columns of each draw; a column that is NaN counts as 0."""
    largest: NDArray[np.float64] = np.nan_to_num(np.abs(draws), nan=0.0, posinf=np.inf).max(
        axis=1, initial=0.0
    )
    return largest


def joint_interval(
    means: NDArray[np.float64],
    error: NDArray[np.float64],
    critical: float,
    pointwise: Interval | Unavailable,
    method: str,
) -> Interval | Unavailable:
    """Joint intervals from a critical maximum, nowhere inside the pointwise ones."""
    if isinstance(pointwise, Unavailable):
        return pointwise
    reach = np.where(error > 0, critical * error, error)
    low, high = np.fmin(means - reach, pointwise.low), np.fmax(means + reach, pointwise.high)
    absent = np.isnan(np.asarray(pointwise.low))
    low, high = np.where(absent, np.nan, low), np.where(absent, np.nan, high)
    return Interval(low=low, high=high, level=pointwise.level, method=method)


def _moved(interval: Interval | Unavailable, by: float) -> Interval | Unavailable:
    if isinstance(interval, Unavailable):
        return interval
    return Interval(
        low=np.asarray(interval.low) + by,
        high=np.asarray(interval.high) + by,
        level=interval.level,
        method=interval.method,
    )
