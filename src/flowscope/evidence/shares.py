"""Interval of a share: exact, from the binomial distribution."""

from __future__ import annotations

from scipy.stats import beta

from flowscope.errors import InvalidInputError
from flowscope.records import Interval, Unavailable

__all__ = ["share_interval"]


def share_interval(count: int, units: int, level: float = 0.95) -> Interval | Unavailable:
    """Clopper–Pearson interval of a share of independent units.

    Parameters
    ----------
    count, units
        Units that have the property, and all of them.
    level
        Coverage; it is at least this for every true share.

    Examples
    --------
    >>> found = share_interval(0, 59)
    >>> found.low, round(found.high, 4)
    (0.0, 0.0606)
    """
    if not 0 <= count <= units:
        raise InvalidInputError(f"a share needs 0 ≤ count ≤ units; found {count} of {units}.")
    if not units:
        return Unavailable("there is no unit")
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, count, units - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, units - count)) if count < units else 1.0
    return Interval(low=low, high=high, level=level, method=f"Clopper–Pearson over {units}")
