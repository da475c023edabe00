r"""Judge whether attention contracts distances between its rows.

$\kappa(i,i') > 0$ means that the attention of two queries is nearer to each other, in $W_1$, than
the two points. The claim is judged on the median over heads, by its interval against zero.
Rows that merely overlap give $\kappa > 0$ too (equal rows give 1, and so does a network of random
weights, whose rows are nearly uniform), so there are two references: the same rows with their
keys permuted, which keeps the overlap and breaks the geometry, and the same architecture with
random weights. A contraction that permuted keys show as well is *overlap*: the reason says so.
"""

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = ["judge_curvature"]


def judge_curvature(
    kappa: Measurement,
    null: Measurement,
    effect: Interval | Unavailable,
    *,
    claim: Claimed,
    heads: int,
    abstained: int,
    random_weights: float | Unavailable,
) -> Verdict:
    """Judge the median curvature over heads against zero, with permuted keys as reference.

    Parameters
    ----------
    kappa, null
        The median over heads, and the same with keys permuted.
    effect
        Interval of their difference, the two taken on the same resamples.
    claim
        What is judged.
    heads, abstained
        Number of heads, and how many of them gave no number.
    random_weights
        The same median for random weights.
    """
    if kappa.status != "ok":
        return not_measured(claim, kappa.because)
    value, permuted = float(kappa.numbers()), float(null.numbers())
    references = f"with keys shuffled: {permuted:.2f}"
    if not isinstance(random_weights, Unavailable):
        references += f"; with random weights: {random_weights:.2f}"
    measured = f"{heads - abstained} of {heads} heads"
    reason = f"the median contraction κ over {measured} is {value:.2f} ({references})"
    decision, why = _decided(kappa.interval)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=kappa,
        null=null,
        effect=value - permuted,
        interval=effect,
        decision=decision,
        because=f"{reason}; {why}" + _source_of(decision, effect),
    )


def _decided(interval: Interval | Unavailable) -> tuple[Decision, str]:
    if isinstance(interval, Unavailable):
        return "abstains", no_verdict(interval.reason)
    low, high = ends(interval)
    if low > 0:
        return "holds", "attention brings points closer together"
    if high < 0:
        return "fails", "attention moves points further apart"
    return "abstains", no_verdict(f"the interval [{low:.2f}, {high:.2f}] contains 0")


def _source_of(decision: Decision, effect: Interval | Unavailable) -> str:
    """Return where a contraction comes from, if permuted keys show it."""
    if decision != "holds" or isinstance(effect, Unavailable):
        return ""
    if float(effect.low) > 0:
        return ", more than rows that only overlap would"
    if float(effect.high) < 0:
        return ", but less than rows that only overlap would"
    return ", as much as rows that only overlap would"
