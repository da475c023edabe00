"""Draft and verify: several commits of the reference in one batched pass, and no other answer."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from flowscope.instruments.decode.filling.steps import Step
from flowscope.instruments.decode.policies.protocol import Policy

__all__ = ["Draft", "Reference"]


@dataclass(frozen=True, kw_only=True)
class Reference(Policy):
    """What the plan fills, and nothing else."""

    threshold: float = 0.0
    name = "reference"
    default = 0.0
    grid = (0.0,)
    says = "fills what the plan says, one pass after the other"
    lossless = True

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        return step.best


@dataclass(frozen=True, kw_only=True)
class Draft(Policy):
    """The reference, several commits a pass where drafts of them turn out right."""

    threshold: float = 8.0
    name = "draft"
    default = 8.0
    grid = (8.0,)
    says = (
        "drafts this many commits of the reference and verifies them in one pass: no other answer"
    )
    lossless = True

    @property
    def drafts(self) -> int:
        """Commits that are drafted and verified in a pass."""
        return int(self.threshold)

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        return step.best
