"""A verdict: a claim, the number it was judged by, and the decision."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.records.absence import Unavailable
from flowscope.records.frozen import Record, choice, frozen_array, text
from flowscope.records.interval import Interval
from flowscope.records.measurement import Measurement
from flowscope.records.views import verdict_table

__all__ = ["Decision", "Outcome", "Strength", "Verdict"]

Decision = Literal["holds", "fails", "abstains"]

Outcome = Literal["holds", "fails", "uninformative", "abstains"]
"""The decision; a claim that could not have failed on these data is ``uninformative``."""

Strength = Literal["", "negligible", "weak", "clear", "strong"]
"""Size of the effect in words; empty where no size was judged."""

_OUTCOMES = ("holds", "fails", "uninformative", "abstains")
_STRENGTHS = ("", "negligible", "weak", "clear", "strong")
_NO_P = Unavailable("no p-value was taken")


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict(Record):
    """Whether a claim holds, by which number, against which null, and why.

    Parameters
    ----------
    name
        Short name of the claim, the key under which the verdict is looked up.
    claim
        The statement that was judged, in words.
    statistic
        The number it was judged by: a measurement of a single value, with its unit, n,
        estimator and seed, so that the verdict carries the birth certificate of its number.
        It may have abstained or failed; the verdict then abstains.
    null
        The same number under the null (shuffled, randomised, untrained), a measurement of a
        single value, or why there was no null.
    effect, interval
        Statistic against null on the scale the claim is about, and the interval of the effect
        (two floats). The interval of the statistic is in the statistic.
    decision
        ``holds``, ``fails`` or ``abstains``.
    because
        The reason, in words; never empty.
    outcome
        The decision, or ``uninformative`` where the claim could not have failed on these data;
        the decision is then ``abstains``. Without it, the decision.
    strength
        ``negligible``, ``weak``, ``clear`` or ``strong``; empty where no size was judged.
    p
        The p-value of the effect against its null, or why there is none.

    Raises
    ------
    InvalidInputError
        One of the above does not hold.

    Examples
    --------
    >>> gap = Measurement(name="gap", values=0.25, unit="nat", n=8, estimator="mean",
    ...                   dtype="float64")
    >>> verdict = Verdict(name="P9", claim="layers contract", statistic=gap,
    ...                   null=Unavailable("no null was asked for"), effect=0.25,
    ...                   interval=Interval(low=0.125, high=0.5, level=0.95, method="bootstrap"),
    ...                   decision="holds", because="the interval lies above 0")
    >>> verdict.to_pandas()[["claim", "decision", "value", "low", "high"]]
                 claim decision  value    low  high
    0  layers contract    holds   0.25  0.125   0.5
    """

    name: str
    claim: str
    statistic: Measurement
    null: Measurement | Unavailable
    effect: float | Unavailable
    interval: Interval | Unavailable
    decision: Decision
    because: str
    outcome: Outcome = ""  # type: ignore[assignment]  # the decision, once it is built
    strength: Strength = ""
    p: float | Unavailable = _NO_P

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", text(self.name, "the name of a verdict"))
        object.__setattr__(self, "claim", text(self.claim, "the claim of a verdict"))
        what = f"of the verdict on {self.claim!r}"
        choice(self.decision, ("holds", "fails", "abstains"), f"the decision {what}")
        object.__setattr__(self, "because", text(self.because, f"the reason (because) {what}"))
        _check_single(self.statistic, f"the statistic {what}")
        if not isinstance(self.null, Unavailable):
            _check_single(self.null, f"the null {what}")
        if not isinstance(self.effect, Unavailable):
            object.__setattr__(self, "effect", _effect(self.effect, what))
        if not isinstance(self.interval, Unavailable):
            _check_float_interval(self.interval, what)
        if self.decision != "abstains" and self.statistic.status != "ok":
            raise InvalidInputError(
                f"the statistic {what} has status {self.statistic.status} "
                f"({self.statistic.because}): the decision must be abstains, found {self.decision}."
            )
        object.__setattr__(self, "outcome", self.outcome or self.decision)
        _check_outcome(self, what)
        if not isinstance(self.p, Unavailable):
            object.__setattr__(self, "p", _probability(self.p, what))

    def to_pandas(self) -> pd.DataFrame:
        """Table of one row.

        The columns are ``name, claim, decision, outcome, strength, statistic, value, null,
        null_value, effect, low, high, level, p, n, unit, because``; a number that is not there is
        NaN. ``low`` and ``high`` are the ends of the interval of the effect.
        """
        return verdict_table(self)


def _check_single(measurement: Any, what: str) -> None:
    if not isinstance(measurement, Measurement):
        raise InvalidInputError(
            f"{what} must be a Measurement, found {type(measurement).__name__}."
        )
    if measurement.axes:
        raise InvalidInputError(
            f"{what} must be a single number, found axes {measurement.axes}: "
            "reduce it first, a verdict is about one number."
        )


def _effect(value: Any, what: str) -> float:
    array = frozen_array(value, f"the effect {what}")
    if array.ndim or array.dtype.kind == "b" or math.isnan(array):
        raise InvalidInputError(
            f"the effect {what} must be one number, found {value!r}: where there is none, put "
            "Unavailable with the reason."
        )
    return float(array)


def _check_outcome(verdict: Verdict, what: str) -> None:
    choice(verdict.outcome, _OUTCOMES, f"the outcome {what}")
    choice(verdict.strength, _STRENGTHS, f"the strength {what}")
    expected = "abstains" if verdict.outcome == "uninformative" else verdict.outcome
    if verdict.decision != expected:
        raise InvalidInputError(
            f"the decision {what} must be {expected}, because the outcome is {verdict.outcome}; "
            f"found {verdict.decision}. Change both together."
        )


def _probability(value: Any, what: str) -> float:
    array = frozen_array(value, f"the p-value {what}")
    if array.ndim or array.dtype.kind == "b" or not 0 <= array <= 1:
        raise InvalidInputError(
            f"the p-value {what} must be one number from 0 to 1, found {value!r}: where there is "
            "none, put Unavailable with the reason."
        )
    return float(array)


def _check_float_interval(interval: Any, what: str) -> None:
    if not isinstance(interval, Interval) or not isinstance(interval.low, float):
        raise InvalidInputError(
            f"the interval {what} must be an Interval of two floats or Unavailable, found "
            f"{interval!r}."
        )
