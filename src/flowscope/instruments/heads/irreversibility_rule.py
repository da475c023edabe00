r"""The judgement on the heads: how far from equilibrium, against two references.

Every softmax chain of unequal scores produces *some* entropy, so zero is no null. Two stand in for
it, and they ask different things:

* **Random weights.** The same network before training. Its logits are small, its attention
  nearly uniform, and a uniform chain is in equilibrium: the claim holds for every model that has
  learned to look anywhere, and says little more than that.
* **Keys permuted.** The same logits with the keys of a prompt permuted, all rows alike: rows
  are as peaked as before, but where $i$ looks has nothing to do with where $j$ looks. Above it, a
  head drives its walk round more than unrelated directions would; below, its two directions agree.

Each is judged by the distance of the median entropy production per step, on the same prompts.
"""

from collections.abc import Mapping
from typing import Literal

from flowscope.evidence.verdicts import Claimed, ends, not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["Reference", "judge_irreversibility"]

Reference = Literal["random weights", "keys permuted"]


def judge_irreversibility(
    production: Measurement,
    null: Measurement | Unavailable,
    *,
    claim: Claimed,
    reference: Reference,
    effect: float | Unavailable,
    interval: Interval | Unavailable,
    labels: Mapping[str, int],
    chain: str,
) -> Verdict:
    """The median entropy production of the heads against a reference.

    Parameters
    ----------
    production, null
        Median over heads, of the model and of the reference.
    claim, reference
        What is judged, and which reference it compares with.
    effect, interval
        Their difference, and its interval over prompts.
    labels
        How many heads bear each label.
    chain
        Which kernel walked.
    """
    if production.status != "ok":
        return not_measured(claim, production.because)
    counted = ", ".join(f"{number} {label}" for label, number in labels.items())
    told = f"{float(production.numbers()):.3g} nats per step on the {chain} chain ({counted})"
    decision, why = _decided(null, interval, reference)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=production,
        null=null,
        effect=effect,
        interval=interval,
        decision=decision,
        because=f"{told}; {why}",
    )


def _decided(
    null: Measurement | Unavailable, interval: Interval | Unavailable, reference: Reference
) -> tuple[Decision, str]:
    if isinstance(null, Unavailable):
        return "abstains", f"no {reference} beside it: {null.reason}"
    if null.status != "ok":
        return "abstains", f"no {reference} beside it: {null.because}"
    beside = f"{reference}: {float(null.numbers()):.3g}"
    if isinstance(interval, Unavailable):
        return "abstains", f"{beside}; {interval.reason}"
    low, high = ends(interval)
    gap = f"the difference is {low:+.3g} … {high:+.3g}"
    if low > 0:
        return "holds", f"{beside}, {gap}"
    if high < 0:
        return "fails", f"{beside}, {gap}: the heads are closer to equilibrium"
    return "abstains", f"{beside}, {gap}, which holds 0"
