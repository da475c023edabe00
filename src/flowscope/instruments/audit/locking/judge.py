r"""Judge whether certain tokens move less.

The rule asks whether the distribution moves less where less mass lies outside the top outcome, and
checks that no step exceeds the exact bound.
"""

from flowscope.evidence.verdicts import Claimed, ends, no_verdict, not_measured, shifted
from flowscope.records import Decision, Measurement, Unavailable, Verdict

__all__ = ["judge_locking"]


def judge_locking(
    correlation: Measurement,
    null: Measurement,
    *,
    claim: Claimed,
    exceeded: int,
    steps: int,
    informative: float,
) -> Verdict:
    """Judge whether steps are small where tail mass is small, and within the exact bound."""
    if correlation.status != "ok":
        return not_measured(claim, correlation.because)
    value, shuffled = float(correlation.numbers()), float(null.numbers())
    interval = correlation.interval
    bound = (
        f"the exact bound holds in all {steps} steps and is informative (below 0.99) in "
        f"{informative:.0%} of them"
    )
    if exceeded:
        decision: Decision = "fails"
        bound = f"{exceeded} of {steps} steps exceed the exact bound: the numbers are unreliable"
    elif isinstance(interval, Unavailable):
        decision = "abstains"
    else:
        low, high = ends(interval)
        decision = "holds" if low > 0 else "fails"
        if low <= 0 <= high:
            decision = "abstains"
            bound = f"{bound}; {no_verdict('the interval contains 0')}"
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=correlation,
        null=null,
        effect=value - shuffled,
        interval=shifted(interval, shuffled),
        decision=decision,
        because=f"rank correlation of tail mass and TV {value:.2f} (shuffled: {shuffled:.2f}); "
        + bound,
    )
