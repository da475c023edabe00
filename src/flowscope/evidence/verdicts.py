"""The kit of every judge: the claim's words, an abstention, one number, the ends of an interval."""

from typing import Protocol

import numpy as np

from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["Claimed", "ends", "not_measured", "pure_number", "shifted"]

_NO_INTERVAL = Unavailable("a control has no interval")


class Claimed(Protocol):
    """What a judge needs of a claim: its short name and the statement in words."""

    @property
    def name(self) -> str:
        """Short name, the key of the verdict."""

    @property
    def says(self) -> str:
        """The statement that is judged."""


def not_measured(claim: Claimed, reason: str) -> Verdict:
    """A verdict on the claim that abstains because nothing was measured."""
    nothing = Unavailable("nothing was measured")
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=Measurement.abstained(claim.name, reason),
        null=nothing,
        effect=nothing,
        interval=nothing,
        decision="abstains",
        because=reason,
    )


def pure_number(
    name: str,
    value: float,
    *,
    n: int,
    estimator: str,
    seed: int,
    dtype: str = "float64",
    interval: Interval | Unavailable = _NO_INTERVAL,
) -> Measurement:
    """One pure number as a measurement."""
    return Measurement(
        name=name,
        values=np.asarray(value),
        unit="1",
        n=n,
        estimator=estimator,
        dtype=dtype,
        seed=seed,
        interval=interval,
    )


def ends(interval: Interval) -> tuple[float, float]:
    """Both ends of an interval of one number."""
    return float(interval.low), float(interval.high)


def shifted(interval: Interval | Unavailable, null: float) -> Interval | Unavailable:
    """The interval of the effect: the null is one number, so it moves both ends."""
    if isinstance(interval, Unavailable):
        return interval
    low, high = ends(interval)
    return Interval(low=low - null, high=high - null, level=interval.level, method=interval.method)
