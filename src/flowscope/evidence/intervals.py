"""Intervals of columns as the plain numbers that tables and verdicts take."""

import numpy as np
from numpy.typing import NDArray

from flowscope.records import Interval, Unavailable

__all__ = ["bounds_of", "single", "smallest_of"]


def single(interval: Interval | Unavailable) -> Interval | Unavailable:
    """The interval of one column as two floats."""
    if isinstance(interval, Unavailable):
        return interval
    low, high = (float(np.asarray(bound)[0]) for bound in (interval.low, interval.high))
    if np.isnan(low):
        return Unavailable("no resample gave a number")
    return Interval(low=low, high=high, level=interval.level, method=interval.method)


def bounds_of(
    interval: Interval | Unavailable, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds of each column; NaN where there is no interval."""
    if isinstance(interval, Unavailable):
        return np.full(size, np.nan), np.full(size, np.nan)
    return np.asarray(interval.low, np.float64), np.asarray(interval.high, np.float64)


def smallest_of(interval: Interval | Unavailable) -> Interval | Unavailable:
    """Interval of the smallest of several numbers, from the interval of each.

    The smallest lower end and the smallest upper end: the interval misses the smallest number
    with at most the error of one column on each side, because the number that is smallest lies
    above its own lower end and below its own upper end.

    Examples
    --------
    >>> both = Interval(low=np.array([1.0, 2.0]), high=np.array([5.0, 3.0]), level=0.95, method="t")
    >>> smallest = smallest_of(both)
    >>> smallest.low, smallest.high
    (1.0, 3.0)
    """
    if isinstance(interval, Unavailable):
        return interval
    low, high = (float(np.asarray(ends).min()) for ends in (interval.low, interval.high))
    if np.isnan(low) or np.isnan(high):
        return Unavailable("one of the numbers has no interval")
    return Interval(low=low, high=high, level=interval.level, method=interval.method)
