"""Intervals of columns as the plain numbers that tables and verdicts take."""

import numpy as np
from numpy.typing import NDArray

from flowscope.records import Interval, Unavailable

__all__ = ["bounds_of", "single"]


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
