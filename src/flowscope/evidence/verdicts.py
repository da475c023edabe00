"""The kit of every judge: the words of a claim, abstentions, numbers, ends of an interval."""

from typing import Protocol

import numpy as np

from flowscope.records import Interval, Measurement, Unavailable, Verdict

__all__ = ["Claimed", "ends", "no_verdict", "not_measured", "pure_number", "shifted"]

_NO_INTERVAL = Unavailable("a control has no interval")


class Claimed(Protocol):
    """What a judge needs of a claim: its short name and the statement in words."""

    @property
    def name(self) -> str:
        """Short name, the key of the verdict."""

    @property
    def says(self) -> str:
        """The statement that is judged."""


def no_verdict(reason: str) -> str:
    """The reason of an abstention as the end of a sentence.

    >>> no_verdict("At least 5 prompts are needed; found 4")
    'no verdict, because at least 5 prompts are needed; found 4'
    >>> no_verdict("SDE samples are missing")
    'no verdict, because SDE samples are missing'
    """
    first = reason.partition(" ")[0]
    plain = first[:1].isupper() and first[1:].islower()
    return f"no verdict, because {reason[:1].lower() + reason[1:] if plain else reason}"


def not_measured(claim: Claimed, reason: str) -> Verdict:
    """Return a verdict that abstains because nothing was measured."""
    nothing = Unavailable("nothing was measured")
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=Measurement.abstained(claim.name, reason),
        null=nothing,
        effect=nothing,
        interval=nothing,
        decision="abstains",
        because=no_verdict(reason),
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
    """Return a number without a unit as a measurement."""
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
    """Return the interval of the effect: both ends less the null, which is a single number."""
    if isinstance(interval, Unavailable):
        return interval
    low, high = ends(interval)
    return Interval(low=low - null, high=high - null, level=interval.level, method=interval.method)
