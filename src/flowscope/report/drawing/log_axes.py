"""Logarithmic axes: their ticks, and straight lines of a slope on them."""

import math
from collections.abc import Sequence

from flowscope.report import theme
from flowscope.report.numerals import numeral
from flowscope.report.theme import Picture

__all__ = ["BEND", "bent", "bent_ticks", "log_axis", "log_ticks", "slope_line"]

BEND = 1.0
"""Value up to which a bent axis is linear."""

_ABOVE = 0.35  # length of a factor e above the bend, in units of the linear part
_DIGITS = (2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000)


def slope_line(x: Sequence[float], y: Sequence[float], slope: float) -> list[float]:
    """Straight line of that slope on log–log axes through the middle of the points."""
    rows = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 and 0 < b < math.inf]
    if not rows or not math.isfinite(slope):
        return [math.nan] * len(x)
    gaps = [math.log(b) - slope * math.log(a) for a, b in rows]
    level = sum(gaps) / len(gaps)
    return [math.exp(level + slope * math.log(a)) if a > 0 else math.nan for a in x]


def bent(value: float) -> float:
    """Place of a value on an axis that is linear up to `BEND` and logarithmic beyond.

    A small value stays legible beside one that is a hundred times larger. Every back end draws the
    axis, because the places are plain numbers with ticks of their own.

    Examples
    --------
    >>> bent(0.4), bent(-1.0), round(bent(10.0), 2), round(bent(-10.0), 2)
    (0.4, -1.0, 1.81, -1.81)
    """
    size = abs(value)
    if not size > BEND:
        return value
    return math.copysign(BEND + _ABOVE * math.log(size / BEND), value)


def bent_ticks(values: Sequence[float]) -> Picture:
    """Ticks of an axis for places of `bent`; none where no value exceeds the bend.

    Examples
    --------
    >>> bent_ticks([0.2, 2.5])["ticktext"]
    ['0', '0.25', '0.5', '0.75', '1', '2']
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if max(-low, high) <= BEND:
        return {}
    ticks = [k * BEND / 4 for k in range(5)] + [BEND * d for d in _DIGITS]
    marks = [tick for tick in ticks if tick <= high]
    marks += [-tick for tick in ticks if 0 < tick <= -low]
    return {"tickvals": list(map(bent, marks)), "ticktext": list(map(numeral, marks))}


def log_ticks(values: Sequence[float]) -> list[float]:
    """Marks 1, 2, 5, 10, … of a logarithmic axis around the positive values.

    Examples
    --------
    >>> log_ticks([0.06, 0.4])
    [0.05, 0.1, 0.2, 0.5]
    """
    known = [value for value in values if 0 < value < math.inf]
    if not known:
        return []
    decades = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
    marks = [float(f"{digit}e{power}") for power in decades for digit in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= min(known)), default=marks[0])
    high = min((mark for mark in marks if mark >= max(known)), default=marks[-1])
    return [mark for mark in marks if low <= mark <= high]


def log_axis(title: str, values: Sequence[float], most: int = 7) -> Picture:
    """Logarithmic axis: powers of ten, and 2 and 5 between them where there are few."""
    marks = log_ticks(values)
    if len(marks) > most:
        return theme.axis(title, type="log", exponentformat="power", dtick=1)
    return theme.axis(title, type="log", tickvals=marks, ticktext=[numeral(m) for m in marks])
