r"""Judge whether a flow fitted on some prompts forecasts the layers of others.

The number is the *skill* of the flow from the first state of a segment onward,
$1 - \sum \mathrm{TV}(\text{flow}) / \sum \mathrm{TV}(\text{persistence})$ over held-out tokens and
layers: 0 is no better than assuming that nothing changes, 1 is the model itself. The coordinates
limit it: the skill of the true coordinates (the *floor*) is reported as a yardstick and not as a
bound, because no coordinates minimise the total variation. Thresholds of the source are not used:
its budget is near one on real vocabularies and cannot fail.
"""

from collections.abc import Mapping

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["judge_adequacy"]


def judge_adequacy(
    skill: Measurement,
    *,
    claim: Claimed,
    one_step: Measurement,
    best: float,
    segments: Mapping[str, str],
    budget: str,
) -> Verdict:
    """Judge the skill of the flow over persistence on held-out prompts.

    Parameters
    ----------
    skill, one_step
        Onward from the first state of each segment, and one layer ahead.
    claim
        What is judged.
    best
        The skill of the true coordinates, had they been known.
    segments
        Layers of each segment that was judged, and the drift that was chosen there.
    budget
        Sentence on the finite-depth budget.
    """
    if skill.status != "ok":
        return not_measured(claim, skill.because)
    value = float(skill.numbers())
    decision, why = _decided(skill.interval)
    where = ", ".join(f"{layers} ({drift})" for layers, drift in segments.items())
    reason = (
        f"gain over “nothing changes” on held-out prompts: {value:+.1%} over whole segments, "
        f"{float(one_step.numbers()):+.1%} one layer ahead, on {where}; the true coordinates give "
        f"{best:.0%}; {why}"
    )
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=skill,
        null=_persistence(skill),
        effect=value,
        interval=skill.interval,
        decision=decision,
        because="; ".join(part for part in (reason, budget) if part),
    )


def _persistence(skill: Measurement) -> Measurement:
    """Persistence is the baseline: its skill is zero by definition."""
    return Measurement(
        name="skill of persistence",
        values=0.0,  # type: ignore[arg-type]
        unit="1",
        n=skill.n,
        estimator="by definition",
        dtype="float64",
    )


def _decided(interval: Interval | Unavailable) -> tuple[Decision, str]:
    if isinstance(interval, Unavailable):
        return "abstains", no_verdict(interval.reason)
    low, high = ends(interval)
    if low > 0:
        return "holds", f"the 95 % interval {low:+.1%} … {high:+.1%} lies above 0"
    if high < 0:
        return "fails", f"the 95 % interval {low:+.1%} … {high:+.1%} lies below 0"
    return "abstains", no_verdict(f"the 95 % interval {low:+.1%} … {high:+.1%} contains 0")
