"""The verdicts of ``flowscope heads``: the heads against random weights and permuted keys."""

from __future__ import annotations

from flowscope.evidence import resampled_counts
from flowscope.instruments.heads.claims import DIRECTED, TRAINED
from flowscope.instruments.heads.irreversibility_rule import Reference, judge_irreversibility
from flowscope.instruments.heads.production import irreversibility as measured_irreversibility
from flowscope.lab.claim import Claim
from flowscope.lab.view import Records
from flowscope.records import Unavailable, Verdict

__all__ = ["irreversibility"]

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
