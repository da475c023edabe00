"""What every policy is: a rule with one threshold, a default, and a grid from strict to loose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.instruments.decode.filling.steps import Step

__all__ = ["OnceRule", "Policy"]


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """A rule with one threshold.

    Attributes
    ----------
    threshold
        What is calibrated.
    name, default, grid, says
        Name in tables and on the command line; published threshold; thresholds from the strictest
        to the loosest; what the rule does and where it comes from.
    patience, drafts
        Passes back that the rule looks, and commits that it drafts.
    lossless
        Whether it gives the reference's answer by construction.
    """

    threshold: float
    name: ClassVar[str]
    default: ClassVar[float]
    grid: ClassVar[tuple[float, ...]]
    says: ClassVar[str]
    patience: ClassVar[int] = 1
    lossless: ClassVar[bool] = False

    @property
    def drafts(self) -> int:
        """Commits that are drafted and verified in a pass."""
        return 0

    @abstractmethod
    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """Masked positions that are filled now, at least one in each row."""


class OnceRule(Policy):
    """A rule that follows the reference until it fills all that is left at once.

    What it does can be read from a record of the reference, because until then it does the same.
    """

    @abstractmethod
    def fires(self, step: Step) -> Bool[Tensor, "rows"]:
        """Whether each row is filled now."""

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """All masked positions where the rule fires, else what the reference fills."""
        return torch.where(self.fires(step)[:, None], step.masked, step.best)


def mean_waiting(
    values: Float[Tensor, "rows positions"], waiting: Bool[Tensor, "rows positions"]
) -> Float[Tensor, "rows"]:
    """Mean over the positions of the answer that are still masked."""
    return values.where(waiting, 0.0).sum(1) / waiting.sum(1)
