"""Numbers as a reader meets them: three figures, real minus signs, powers of ten."""

import math

from flowscope.records import Interval, Measurement, Unavailable

__all__ = ["bounds", "cell_text", "count", "numeral", "percent", "reading"]

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def numeral(value: float, digits: int = 3) -> str:
    """Value to that many significant figures; a dash where it is undefined.

    Examples
    --------
    >>> numeral(0.02345), numeral(-1.5e-7), numeral(float("nan")), numeral(12.0)
    ('0.0234', '−1.5×10⁻⁷', '–', '12')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    text = mantissa.replace("-", "−")
    return f"{text}×10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if exponent else text


def percent(share: float) -> str:
    r"""Share as a percentage.

    Examples
    --------
    >>> percent(0.123), percent(float("nan"))
    ('12\xa0%', '–')
    """
    if math.isnan(share):
        return "–"
    shown = 100 * share
    return f"{numeral(shown, 3 if abs(shown) > 99 else 2)}\u00a0%"


def bounds(low: float, high: float) -> str:
    """Interval in brackets, or nothing where either side is undefined."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{numeral(low)}, {numeral(high)}]"


def reading(measurement: Measurement | Unavailable) -> str:
    """Value of a single-number measurement with its unit and interval, or why there is none."""
    if isinstance(measurement, Unavailable):
        return f"not available: {measurement.reason}"
    if isinstance(measurement.values, Unavailable):
        return f"{measurement.status}: {measurement.because}"
    unit = measurement.unit
    symbol = "" if isinstance(unit, Unavailable) or unit == "1" else f" {unit}"
    value = f"{numeral(float(measurement.values))}{symbol}"
    interval = measurement.interval
    if isinstance(interval, Interval) and isinstance(interval.low, float):
        value += " " + bounds(interval.low, float(interval.high))
    return value


def count(number: int, noun: str) -> str:
    """Return "1 layer", "2 layers"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell_text(word: str) -> str:
    """Word of a table; a number among the words to three figures."""
    try:
        return numeral(float(word))
    except ValueError:
        return word
