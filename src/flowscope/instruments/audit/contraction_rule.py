r"""Judge whether attention contracts distances between its rows.

$\kappa(i,i') > 0$ means that the laws of two queries lie nearer to each other, in $W_1$, than the
two points themselves. The claim is judged on the median over heads, by its interval against zero.
Rows that merely overlap give $\kappa > 0$ too (equal rows give 1, and so does a network of random
weights, whose rows are nearly uniform), so two references stand beside it: the same rows with their
keys permuted, which keeps the overlap and breaks the geometry, and the same architecture with
random weights. A contraction that permuted keys show as well is *overlap*: the reason says so.
"""

from flowscope.evidence.verdicts import Claimed, ends, not_measured
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
    """The median curvature over heads against zero, beside permuted keys.

    Parameters
    ----------
    kappa, null
        The median over heads, and the same with keys permuted.
    effect
        Interval of their difference, the two taken on the same resamples.
    claim
        What is judged.
    heads, abstained
        How many heads there are, and how many of them say nothing.
    random_weights
        The same median for random weights.
    """
    if kappa.status != "ok":
        return not_measured(claim, kappa.because)
    value, permuted = float(kappa.numbers()), float(null.numbers())
    beside = f"keys permuted: {permuted:.2f}"
    if not isinstance(random_weights, Unavailable):
        beside += f"; random weights: {random_weights:.2f}"
    reason = f"median κ over {heads - abstained} of {heads} heads {value:.2f} ({beside})"
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
        return "abstains", interval.reason
    low, high = ends(interval)
    if low > 0:
        return "holds", "rows lie nearer to each other than their points"
    if high < 0:
        return "fails", "rows lie further from each other than their points"
    return "abstains", f"its interval [{low:.2f}, {high:.2f}] holds 0"


def _source_of(decision: Decision, effect: Interval | Unavailable) -> str:
    """Where a contraction comes from, when the permuted keys can tell."""
    if decision != "holds" or isinstance(effect, Unavailable):
        return ""
    if float(effect.low) > 0:
        return ", and geometry adds to what their overlap alone gives"
    if float(effect.high) < 0:
        return ", though less than their overlap alone would give"
    return ", by their overlap alone"
