r"""Judge whether the output changes in small steps from layer to layer.

The rule on variation takes, per segment of depth, the median over tokens of
$\bar S_L = \sum \lVert\Delta z\rVert^2 / \sum \lVert z\rVert^2$ and the mass residual
$\max |\sum p - 1|$ in float64. A segment that fails, or that is a jump, abstains from everything
downstream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowscope.evidence.verdicts import (
    Claimed,
    not_measured,
    pure_number,
    shifted,
)
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = [
    "SegmentEvidence",
    "judge_variation",
]


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
                "a description that is continuous in depth does not apply"
            )
        if self.mass_residual > self.mass_bound:
            return (
                f"probabilities miss a sum of 1 by {self.mass_residual:.2g}, more than the bound "
                f"{self.mass_bound:.2g}"
            )
        side = "at most" if self.relative_variation <= self.threshold else "above"
        return (
            f"the relative variation of {self.layers} is {self.relative_variation:.3g}, {side} the "
            f"limit {self.threshold:g}"
        )


def judge_variation(
    segments: Sequence[SegmentEvidence], *, claim: Claimed, n: int, dtype: str, seed: int
) -> Verdict:
    """Judge on which layers the path is smooth enough to be described as a flow."""
    regular = [s for s in segments if s.kind == "segment"]
    passing = [s for s in regular if s.decision == "holds"]
    if not regular:
        reason = "every layer is a jump, so that no segment can be judged"
        return not_measured(claim, reason)
    longest = max(passing or regular, key=lambda s: s.last - s.first)
    interval = longest.interval
    statistic = pure_number(
        "relative_variation",
        longest.relative_variation,
        n=n,
        estimator="median over tokens",
        dtype=dtype,
        seed=seed,
        interval=interval,
    )
    absent = Unavailable("the random-weights twin could not be made")
    null: Measurement | Unavailable = absent
    effect: float | Unavailable = absent
    shift = 0.0
    if not isinstance(longest.random_weights, Unavailable):
        null = pure_number(
            "relative_variation of random weights",
            longest.random_weights,
            n=n,
            estimator="median",
            dtype=dtype,
            seed=seed,
        )
        effect = longest.relative_variation - longest.random_weights
        shift = longest.random_weights
    left = [s for s in segments if s.decision != "holds"]
    reason = "; ".join(s.because for s in (passing or regular))
    if left and passing:
        reason += "; not judged: " + ", ".join(s.layers for s in left)
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=statistic,
        null=null,
        effect=effect,
        interval=shifted(interval, shift),
        decision="holds" if passing else "fails",
        because=reason,
    )
