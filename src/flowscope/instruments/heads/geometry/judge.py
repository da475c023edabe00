r"""Judge how far the heads are from equilibrium, against two references.

Every softmax chain of unequal scores produces *some* entropy, so that zero is no null. Two
references replace it, for two different questions:

* **Random weights.** The same network before training. Its logits are small, its attention
  nearly uniform, and a uniform chain is in equilibrium: the claim holds for every model whose
  attention is no longer uniform, and means little more than that.
* **Keys permuted.** The same logits with the keys of a prompt permuted, all rows alike: rows
  are as peaked as before, but where $i$ looks has nothing to do with where $j$ looks. Above it, a
  head drives its walk round more than unrelated directions would; below, its two directions agree.

Each is judged by the distance of the median entropy production per step, on the same prompts.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowscope.evidence import resampled_counts
from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured
from flowscope.instruments.heads.geometry import DIRECTED, TRAINED
from flowscope.instruments.heads.geometry.production import Reference
from flowscope.instruments.heads.geometry.production import (
    irreversibility as measured_irreversibility,
)
from flowscope.lab.claim import Claim
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["irreversibility", "judge_irreversibility"]


_CLAIMS: dict[Reference, Claim] = {"random weights": TRAINED, "keys permuted": DIRECTED}


def irreversibility(records: Records) -> list[Verdict]:
    """Whether heads are further from equilibrium than each reference."""
    reasons = records.table("references", "reference", "because").set_index("reference")["because"]
    return [_judged(records, reference, str(reasons[reference])) for reference in _CLAIMS]


def _judged(records: Records, reference: Reference, because: str) -> Verdict:
    settings, arrays = records.settings, records.arrays("production")
    values = arrays["model"]
    few = min(int(settings["control_prompts"]), len(values))
    counts, few_counts = (
        resampled_counts(size, resamples=settings["resamples"], seed=settings["seed"])
        for size in (len(values), few)
    )
    numbers = measured_irreversibility(
        values,
        reference,
        Unavailable(because) if because else arrays[reference.replace(" ", "_")],
        records.table("geometry", "label", "because"),
        counts,
        few_counts,
        seed=settings["seed"],
    )
    return judge_irreversibility(
        numbers.production,
        numbers.null,
        claim=_CLAIMS[reference],
        reference=reference,
        effect=numbers.effect,
        interval=numbers.interval,
        labels=numbers.labels,
        chain=settings["chain"],
    )


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
    """Judge the median entropy production of the heads against a reference.

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
    value = f"{float(production.numbers()):.3g} nats per step"
    reason = f"median entropy production {value} on the {chain} chain (heads: {counted})"
    decision, why = _decided(null, interval, reference)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=production,
        null=null,
        effect=effect,
        interval=interval,
        decision=decision,
        because=f"{reason}; {why}",
    )


def _decided(
    null: Measurement | Unavailable, interval: Interval | Unavailable, reference: Reference
) -> tuple[Decision, str]:
    if isinstance(null, Unavailable):
        return "abstains", no_verdict(f"the reference “{reference}” is missing: {null.reason}")
    if null.status != "ok":
        return "abstains", no_verdict(f"the reference “{reference}” is missing: {null.because}")
    measured = f"with {reference} {float(null.numbers()):.3g}"
    if isinstance(interval, Unavailable):
        return "abstains", f"{measured}; {no_verdict(interval.reason)}"
    low, high = ends(interval)
    gap = f"the 95 % interval of the difference, {low:+.3g} … {high:+.3g},"
    if low > 0:
        return "holds", f"{measured}; {gap} lies above 0"
    if high < 0:
        return "fails", f"{measured}; {gap} lies below 0: the heads are closer to equilibrium"
    return "abstains", f"{measured}; {no_verdict(f'{gap} contains 0')}"
