"""An interval at a stated level, by a stated method."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.records.frozen import Record, frozen_array, text

__all__ = ["Interval"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Interval(Record):
    """Bounds ``low <= high`` that cover the quantity at ``level``, by ``method``.

    Parameters
    ----------
    low, high
        Two floats, or two arrays of one shape. Array cells without an interval are NaN in
        both; an open side is infinite. A NaN float is refused: that is an ``Unavailable``.
    level
        Nominal coverage, strictly between 0 and 1.
    method
        How it was made, e.g. ``"percentile bootstrap over prompts"``.

    Raises
    ------
    InvalidInputError
        One of the above does not hold.

    Notes
    -----
    The point estimate need not lie inside: a percentile bootstrap of a biased statistic may
    leave it out, and that is worth seeing.

    Examples
    --------
    >>> Interval(low=0.1, high=0.3, level=0.95, method="bootstrap").high
    0.3
    """

    low: float | NDArray[Any]
    high: float | NDArray[Any]
    level: float
    method: str

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            object.__setattr__(self, side, _bound(getattr(self, side), side))
        object.__setattr__(self, "method", text(self.method, "the method of an interval"))
        level = _bound(self.level, "level")
        if not isinstance(level, float) or not 0 < level < 1:
            raise InvalidInputError(
                f"the level of an interval must be between 0 and 1, found {self.level!r}: "
                "95 % is written 0.95."
            )
        object.__setattr__(self, "level", level)
        _check_order(np.asarray(self.low), np.asarray(self.high))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the bounds; ``()`` for floats."""
        return np.shape(self.low)


def _bound(value: Any, side: str) -> float | NDArray[Any]:
    what = f"the {side} of an interval"
    array = frozen_array(value, what)
    if array.dtype.kind == "b":
        raise InvalidInputError(f"{what} must be a number, found booleans.")
    if isinstance(value, np.ndarray) or array.ndim:
        return array
    if np.isnan(array):
        raise InvalidInputError(f"{what} is NaN: where there is no interval, put Unavailable.")
    return float(array)


def _check_order(low: NDArray[Any], high: NDArray[Any]) -> None:
    if low.shape != high.shape:
        raise InvalidInputError(
            f"low and high of an interval must have one shape, found {low.shape} and {high.shape}."
        )
    if np.any(np.isnan(low) != np.isnan(high)):
        raise InvalidInputError(
            "low and high of an interval must be NaN in the same cells: an open side is infinite."
        )
    crossed = low > high
    if np.any(crossed):
        raise InvalidInputError(
            f"low must not exceed high in an interval, found low {low[crossed].flat[0]} and high "
            f"{high[crossed].flat[0]} ({int(crossed.sum())} of {crossed.size} cells): swap them."
        )
