"""Rows of a table of claims: what a source says, what a run measured, and whether they agree.

A statement agrees when the interval of the measured number lies on the side the source says,
disagrees when it lies on the other side, and cannot be told otherwise.

An interval misses the true number now and then. Each row that intervals decide therefore says how
probable a wrong "no" is at most; `flowscope.report.parts.chance` adds these probabilities up.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from flowscope.records import Decision, Interval, Measurement, Unavailable

__all__ = [
    "Agreement",
    "Statement",
    "agreement_of",
    "chance_of",
    "not_compared",
    "numbers_of",
    "side_of",
    "statement_rows",
]

Agreement = Literal["yes", "no", "cannot be told", "not measured"]
_MISS = 0.05  # of a 95 % interval, and of a test at the 5 % level
_AGREEMENTS: dict[Decision, Agreement] = {
    "holds": "yes",
    "fails": "no",
    "abstains": "cannot be told",
}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One claim of a source and its fate.

    Attributes
    ----------
    item, where, says
        Short name of the claim, its place in the source, and its words.
    measured, agrees, rule
        What the run measured, whether that agrees, and the rule that decides.
    by_chance
        At most how probable a "no" is if the claim is true, from `chance_of`; NaN where no interval
        or test decides: identities, closed forms, fixed thresholds.
    """

    item: str
    where: str
    says: str
    measured: str
    agrees: Agreement
    rule: str
    by_chance: float = math.nan


def statement_rows(makers: Iterable[Callable[[], Statement]]) -> pd.DataFrame:
    """Table with one row per statement, in the given order."""
    return pd.DataFrame([vars(make()) for make in makers])


def not_compared(
    item: str, where: str, says: str, rule: str, measured: str = "not measured on this model"
) -> Statement:
    """A statement about which the run has no number."""
    return Statement(
        item=item, where=where, says=says, rule=rule, measured=measured, agrees="not measured"
    )


def chance_of(intervals: int = 1) -> float:
    """Bound on the probability that a row disagrees although its claim is true.

    Each 95 % interval misses the true number, and each test at the 5 % level rejects, with
    probability .05 at most; the bound is the sum over those that can make the row disagree.

    Parameters
    ----------
    intervals
        How many intervals or tests can make the row disagree.

    >>> chance_of(), chance_of(3)
    (0.05, 0.15)
    """
    return round(min(1.0, _MISS * intervals), 12) if intervals else math.nan


def agreement_of(decision: Decision) -> Agreement:
    """Whether a source agrees whose claim is the claim of a verdict."""
    return _AGREEMENTS[decision]


def side_of(low: float, high: float, *, above: float = 0.0) -> Agreement:
    """Yes when the interval lies above a number, no when below.

    >>> side_of(0.1, 0.3), side_of(-0.1, 0.3), side_of(-0.3, -0.1)
    ('yes', 'cannot be told', 'no')
    """
    if math.isnan(low) or math.isnan(high):
        return "cannot be told"
    return "yes" if low > above else "no" if high < above else "cannot be told"


def numbers_of(measurement: Measurement) -> tuple[float, float, float]:
    """Value of a measurement and both ends of its interval; NaN where there are none."""
    if measurement.status != "ok":
        return math.nan, math.nan, math.nan
    interval = measurement.interval
    if isinstance(interval, Unavailable):
        return float(measurement.numbers()), math.nan, math.nan
    assert isinstance(interval, Interval)
    return float(measurement.numbers()), float(interval.low), float(interval.high)
