r"""The judgement on the heads: whether training took them out of equilibrium.

Every softmax chain of unequal scores produces *some* entropy, random weights too, so zero is no
null. The claim is judged by the distance of the median entropy production per step from that of the
same network with random weights, on the same prompts.
"""

from collections.abc import Mapping

from flowscope.evidence.gates import not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["judge_irreversibility"]

_CLAIM = "the chains of the heads are further from equilibrium than with random weights"


def judge_irreversibility(
    production: Measurement,
    null: Measurement | Unavailable,
    *,
    effect: float | Unavailable,
    interval: Interval | Unavailable,
    labels: Mapping[str, int],
    chain: str,
) -> Verdict:
    """M1: the median entropy production of the heads against that of random weights.

    Parameters
    ----------
    production, null
        Median over heads, of the model and of the same network with random weights.
    effect, interval
        Their difference, and its interval over prompts.
    labels
        How many heads bear each label.
    chain
        Which kernel walked.
    """
    if production.status != "ok":
        return not_measured("M1", _CLAIM, production.because)
    counted = ", ".join(f"{number} {label}" for label, number in labels.items())
    told = f"{float(production.numbers()):.3g} nats per step on the {chain} chain ({counted})"
    decision, why = _decided(null, interval)
    return Verdict(
        name="M1",
        claim=_CLAIM,
        statistic=production,
        null=null,
        effect=effect,
        interval=interval,
        decision=decision,
        because=f"{told}; {why}",
    )


def _decided(
    null: Measurement | Unavailable, interval: Interval | Unavailable
) -> tuple[Decision, str]:
    if isinstance(null, Unavailable):
        return "abstains", f"no random weights beside it: {null.reason}"
    beside = f"random weights give {float(null.numbers()):.3g}"
    if isinstance(interval, Unavailable):
        return "abstains", f"{beside}; {interval.reason}"
    low, high = float(interval.low), float(interval.high)
    gap = f"the difference is {low:+.3g} … {high:+.3g}"
    if low > 0:
        return "holds", f"{beside}, {gap}"
    if high < 0:
        return "fails", f"{beside}, {gap}: the trained heads are closer to equilibrium"
    return "abstains", f"{beside}, {gap}, which holds 0"
