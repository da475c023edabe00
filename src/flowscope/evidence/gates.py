r"""The judgements of the depth audit: P0 (is the path gentle?) and P2 (does mobility lock it?).

P0 reads, per segment of depth, the median over tokens of
$\bar S_L = \sum \lVert\Delta z\rVert^2 / \sum \lVert z\rVert^2$ and the mass residual
$\max |\sum p - 1|$ in float64. A segment that fails, or that is a jump, abstains from everything
downstream. P2 asks whether the less mass lies outside the top outcome, the less the distribution
moves, and checks that no step exceeds the exact bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = [
    "SegmentEvidence",
    "judge_locking",
    "judge_variation",
    "not_measured",
]

_NO_INTERVAL = Unavailable("a control has no interval")


@dataclass(frozen=True, kw_only=True, eq=False)
class SegmentEvidence:
    """One segment of depth and what decides whether the theory applies to it."""

    first: int
    last: int
    kind: Literal["segment", "jump"]
    relative_variation: float
    interval: Interval | Unavailable
    share_above: float
    mass_residual: float
    mass_bound: float
    threshold: float
    random_weights: float | Unavailable
    linear_interpolation: float | Unavailable

    @property
    def layers(self) -> str:
        """The layers in words."""
        return (
            f"layer {self.first}" if self.first == self.last else f"layers {self.first}–{self.last}"
        )

    @property
    def decision(self) -> Decision:
        """Whether the gate is passed here."""
        if self.kind == "jump":
            return "abstains"
        gentle = self.relative_variation <= self.threshold
        return "holds" if gentle and self.mass_residual <= self.mass_bound else "fails"

    @property
    def because(self) -> str:
        """The figure that decided."""
        if self.kind == "jump":
            return (
                f"{self.layers} is a jump (relative step {self.relative_variation:.3g}): "
                "what is continuous in depth says nothing there"
            )
        if self.mass_residual > self.mass_bound:
            return f"mass residual {self.mass_residual:.2g} above {self.mass_bound:.2g}"
        sign = "≤" if self.relative_variation <= self.threshold else ">"
        return f"S̄ = {self.relative_variation:.3g} {sign} {self.threshold:g} on {self.layers}"


def judge_variation(
    segments: Sequence[SegmentEvidence], *, n: int, dtype: str, seed: int
) -> Verdict:
    """P0: on which part of the depth the path is gentle enough to be read as a flow."""
    regular = [s for s in segments if s.kind == "segment"]
    passing = [s for s in regular if s.decision == "holds"]
    claim = "the path of output distributions is of bounded relative variation on its segments"
    if not regular:
        reason = "every part of the depth is a jump; there is no segment to judge"
        return _abstention("P0", claim, reason)
    told = max(passing or regular, key=lambda s: s.last - s.first)
    interval = told.interval
    statistic = _number(
        "relative_variation",
        told.relative_variation,
        n,
        dtype,
        seed,
        "median over tokens",
        interval,
    )
    absent = Unavailable("the random-weights twin could not be made")
    null: Measurement | Unavailable = absent
    effect: float | Unavailable = absent
    shift = 0.0
    if not isinstance(told.random_weights, Unavailable):
        null = _number(
            "relative_variation of random weights", told.random_weights, n, dtype, seed, "median"
        )
        effect = told.relative_variation - told.random_weights
        shift = told.random_weights
    left = [s for s in segments if s.decision != "holds"]
    reason = "; ".join(s.because for s in (passing or regular))
    if left and passing:
        reason += "; abstained on " + ", ".join(s.layers for s in left)
    return Verdict(
        name="P0",
        claim=claim,
        statistic=statistic,
        null=null,
        effect=effect,
        interval=_shifted(interval, shift),
        decision="holds" if passing else "fails",
        because=reason,
    )


def judge_locking(
    correlation: Measurement, null: Measurement, *, exceeded: int, steps: int, informative: float
) -> Verdict:
    """P2: whether little tail mass means little movement, and no step beats the exact bound."""
    claim = "the less mass outside the top outcome, the less a layer moves the distribution"
    if correlation.status != "ok":
        return _abstention("P2", claim, correlation.because)
    value, shuffled = float(correlation.numbers()), float(null.numbers())
    interval = correlation.interval
    bound = (
        f"the exact bound holds in all {steps} steps and says something (below 0.99) in "
        f"{informative:.0%} of them"
    )
    if exceeded:
        decision: Decision = "fails"
        bound = f"{exceeded} of {steps} steps exceed the exact bound: the numbers are not sound"
    elif isinstance(interval, Unavailable):
        decision = "abstains"
    elif _low(interval) <= 0 <= _high(interval):
        decision, bound = "abstains", f"its interval holds 0; {bound}"
    else:
        decision = "holds" if _low(interval) > 0 else "fails"
    return Verdict(
        name="P2",
        claim=claim,
        statistic=correlation,
        null=null,
        effect=value - shuffled,
        interval=_shifted(interval, shuffled),
        decision=decision,
        because=f"rank correlation of tail mass and TV {value:.2f} (shuffled: {shuffled:.2f}); "
        + bound,
    )


def not_measured(name: str, claim: str, reason: str) -> Verdict:
    """A verdict that abstains because nothing was measured."""
    return _abstention(name, claim, reason)


def _abstention(name: str, claim: str, reason: str) -> Verdict:
    return Verdict(
        name=name,
        claim=claim,
        statistic=Measurement.abstained(name, reason),
        null=Unavailable("nothing was measured"),
        effect=Unavailable("nothing was measured"),
        interval=Unavailable("nothing was measured"),
        decision="abstains",
        because=reason,
    )


def _number(
    name: str,
    value: float,
    n: int,
    dtype: str,
    seed: int,
    estimator: str,
    interval: Interval | Unavailable = _NO_INTERVAL,
) -> Measurement:
    return Measurement(
        name=name,
        values=value,  # type: ignore[arg-type]
        unit="1",
        n=n,
        estimator=estimator,
        dtype=dtype,
        seed=seed,
        interval=interval,
    )


def _shifted(interval: Interval | Unavailable, null: float) -> Interval | Unavailable:
    """The interval of the effect: the null is one number, so it moves both ends."""
    if isinstance(interval, Unavailable):
        return interval
    low, high = _low(interval) - null, _high(interval) - null
    return Interval(low=low, high=high, level=interval.level, method=interval.method)


def _low(interval: Interval) -> float:
    return float(interval.low)


def _high(interval: Interval) -> float:
    return float(interval.high)
