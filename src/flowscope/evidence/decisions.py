"""The one rule by which an effect against its null becomes an outcome with a strength.

The effect is on the scale of the claim, and 0 means that the null explains it. A claim *holds* if
the interval of the effect lies above 0 and the effect is more than negligible, *fails* if the
interval lies below 0 and the effect is more than negligible, is *uninformative* if a guard says
that it could not have failed on these data, and *abstains* otherwise.
"""

import math
from typing import NamedTuple

from flowscope.evidence.verdicts import Claimed, ends, no_verdict
from flowscope.records import Interval, Measurement, Outcome, Strength, Unavailable, Verdict
from flowscope.records.verdict_text import UNINFORMATIVE

__all__ = ["MINIMUM_UNITS", "judged_effect", "strength_of"]

MINIMUM_UNITS = 8
"""Units (prompts, pairs, images) below which no claim is decided."""

_NO_P = Unavailable("no p-value was taken")


def strength_of(size: float, thresholds: tuple[float, float, float]) -> Strength:
    """Size of an effect in words.

    Parameters
    ----------
    size
        The effect on the scale of the thresholds; its sign does not matter.
    thresholds
        Where ``weak``, ``clear`` and ``strong`` begin.

    Examples
    --------
    >>> [strength_of(size, (0.05, 0.15, 0.4)) for size in (0.01, -0.05, 0.2, 0.4)]
    ['negligible', 'weak', 'clear', 'strong']
    """
    words: tuple[Strength, ...] = ("negligible", "weak", "clear", "strong")
    return words[sum(abs(size) >= threshold for threshold in thresholds)]


def judged_effect(
    *,
    claim: Claimed,
    statistic: Measurement,
    null: Measurement | Unavailable,
    effect: float | Unavailable,
    interval: Interval | Unavailable,
    thresholds: tuple[float, float, float],
    because: str,
    units: int,
    unit: str = "prompts",
    size: float | None = None,
    guard: str = "",
    p: float | Unavailable | None = None,
) -> Verdict:
    """Return the verdict on a claim by the interval of its effect against its null.

    Parameters
    ----------
    claim
        Name and statement of the claim.
    statistic, null
        The number of the claim and the same number under the null.
    effect, interval
        Statistic against null, above 0 where it supports the claim, and the interval of that.
    thresholds
        Where the size of the effect begins to be weak, clear and strong; below is negligible.
    because
        A sentence about the numbers, without a full stop.
    units, unit
        How many independent units the interval is taken over, and what they are.
    size
        The effect on the scale of the thresholds; without it, the effect.
    guard
        Why the claim could not have failed on these data; empty if it could.
    p
        The p-value of the effect, where there is one.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> claim = SimpleNamespace(name="P9", says="layers contract")
    >>> gap = Measurement(name="gap", values=0.25, unit="1", n=9, estimator="mean",
    ...                   dtype="float64")
    >>> verdict = judged_effect(
    ...     claim=claim, statistic=gap, null=Unavailable("0 by definition"), effect=0.25,
    ...     interval=Interval(low=0.1, high=0.4, level=0.95, method="t"),
    ...     thresholds=(0.05, 0.15, 0.4), because="gap 0.25", units=9)
    >>> verdict.outcome, verdict.strength, verdict.because
    ('holds', 'clear', 'gap 0.25')
    """
    judged = effect if size is None else size
    if guard:
        judgement = _Judgement("uninformative", "", "")
        because = f"{UNINFORMATIVE}{guard}" + (f"; {because}" if because else "")
    else:
        judgement = _judgement(effect, interval, judged, thresholds)
        obstacle = _obstacle(statistic, units, unit)
        if obstacle:
            judgement = _Judgement("abstains", "", obstacle)
    if judgement.reason:
        sentences = (because.rstrip("."), no_verdict(judgement.reason))
        because = "; ".join(part for part in sentences if part)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=statistic,
        null=null,
        effect=effect,
        interval=interval,
        decision="abstains" if judgement.outcome == "uninformative" else judgement.outcome,
        because=because,
        outcome=judgement.outcome,
        strength=judgement.strength,
        p=_NO_P if p is None else p,
    )


class _Judgement(NamedTuple):
    """An outcome with its strength; the reason is empty unless it abstains."""

    outcome: Outcome
    strength: Strength
    reason: str


def _obstacle(statistic: Measurement, units: int, unit: str) -> str:
    """Why nothing can be decided whatever the effect is, or nothing."""
    if statistic.status != "ok":
        return statistic.because
    if units < MINIMUM_UNITS:
        return (
            f"at least {MINIMUM_UNITS} {unit} are needed; this run has {units}. "
            f"Give at least {MINIMUM_UNITS} {unit}."
        )
    return ""


def _judgement(
    effect: float | Unavailable,
    interval: Interval | Unavailable,
    size: float | Unavailable,
    thresholds: tuple[float, float, float],
) -> _Judgement:
    if isinstance(effect, Unavailable):
        return _Judgement("abstains", "", effect.reason)
    if isinstance(interval, Unavailable):
        return _Judgement("abstains", "", interval.reason)
    if isinstance(size, Unavailable) or math.isnan(size):
        return _Judgement("abstains", "", "the size of the effect is undefined")
    low, high = ends(interval)
    strength = strength_of(size, thresholds)
    silent: Strength = "negligible" if strength == "negligible" else ""
    if low <= 0 <= high:
        reason = f"the interval of the effect, [{low:.3g}, {high:.3g}], contains 0"
        return _Judgement("abstains", silent, reason)
    if silent:
        reason = f"the effect is negligible (|{size:.3g}| < {thresholds[0]:g})"
        return _Judgement("abstains", silent, reason)
    if not (effect > 0 if low > 0 else effect < 0):
        reason = (
            f"the effect, {effect:.3g}, and its interval, [{low:.3g}, {high:.3g}], lie on "
            "different sides of 0"
        )
        return _Judgement("abstains", "", reason)
    return _Judgement("holds" if low > 0 else "fails", strength, "")
