"""Rules that follow the reference and then fill all that is left at once."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.instruments.decode.filling.steps import Step
from flowscope.instruments.decode.policies.protocol import OnceRule, mean_waiting

__all__ = ["Joint", "Prophet", "SchedCosine", "SchedExponential", "SchedLinear", "Stable"]

_FACTORS = (8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.75, 1.5, 1.25, 1.0, 0.8, 0.6, 0.4, 0.2, 0.1)


@dataclass(frozen=True, kw_only=True)
class GapRule(OnceRule):
    """Fires when the mean logit gap of the answer reaches a level that depends on the progress."""

    threshold: float = 1.0
    default = 1.0
    grid = _FACTORS

    @abstractmethod
    def level(self, progress: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """Mean logit gap that is asked for."""

    def fires(self, step: Step) -> Bool[Tensor, "rows"]:
        """See `OnceRule`."""
        gap = mean_waiting(step.laws.gap, step.waiting)
        return gap >= self.threshold * self.level(step.progress)


@dataclass(frozen=True, kw_only=True)
class Prophet(GapRule):
    """Mean logit gap of 7.5, 5 and 2.5 in the three thirds of the passes."""

    name = "prophet"
    says = (
        "fills all when the mean logit gap is at least 7.5, 5, 2.5 (by thirds) times it (Prophet)"
    )

    def level(self, progress: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """See `GapRule`."""
        late = torch.where(progress < 0.67, 5.0, 2.5)
        return torch.where(progress < 0.33, 7.5, late)


@dataclass(frozen=True, kw_only=True)
class SchedLinear(GapRule):
    """A level that falls from 7.5 to 2.5 in a line."""

    name = "sched-linear"
    says = "fills all when the mean logit gap reaches a line from 7.5 to 2.5 times it (SchED)"

    def level(self, progress: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """See `GapRule`."""
        return _HIGH + (_LOW - _HIGH) * progress


@dataclass(frozen=True, kw_only=True)
class SchedCosine(GapRule):
    """A level that falls from 7.5 to 2.5 along half a cosine."""

    name = "sched-cosine"
    says = "fills all when the mean logit gap reaches a cosine from 7.5 to 2.5 times it (SchED)"

    def level(self, progress: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """See `GapRule`."""
        return _LOW + (_HIGH - _LOW) * (1 + torch.cos(math.pi * progress)) / 2


@dataclass(frozen=True, kw_only=True)
class SchedExponential(GapRule):
    """A level that falls from 7.5 towards 2.5 exponentially, by e⁻² over all passes."""

    name = "sched-exponential"
    says = "fills all when the mean logit gap reaches 2.5 + 5 e^(−2 progress) times it (SchED)"

    def level(self, progress: Float[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """See `GapRule`."""
        return _LOW + (_HIGH - _LOW) * torch.exp(-2 * progress)


_HIGH, _LOW = 7.5, 2.5


@dataclass(frozen=True, kw_only=True)
class Stable(OnceRule):
    """The same leading tokens as in the pass before, and a small mean entropy."""

    threshold: float = 0.005
    name = "stable"
    default = 0.005
    grid = (
        1e-5,
        1e-4,
        3e-4,
        1e-3,
        2e-3,
        5e-3,
        0.01,
        0.02,
        0.04,
        0.07,
        0.1,
        0.15,
        0.2,
        0.3,
        0.5,
        1.0,
    )
    says = (
        "fills all when no leading token changed and the mean entropy is below it (DiffusionGemma)"
    )
    patience = 2

    def fires(self, step: Step) -> Bool[Tensor, "rows"]:
        """See `OnceRule`."""
        entropy = mean_waiting(step.laws.entropy, step.waiting)
        if len(step.trail) < self.patience:
            return torch.zeros_like(entropy, dtype=torch.bool)
        tops = torch.stack([laws.top for laws in step.trail])
        same = ((tops == tops[-1]) | ~step.masked).all(2).all(0)
        return same & (entropy < self.threshold)


@dataclass(frozen=True, kw_only=True)
class Joint(OnceRule):
    """The product of the leading probabilities of all that is left."""

    threshold: float = 0.95
    name = "joint"
    default = 0.95
    grid = (0.9999, 0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2)
    says = "fills all when the product of the leading probabilities is at least it (ours)"

    def fires(self, step: Step) -> Bool[Tensor, "rows"]:
        """See `OnceRule`."""
        logs = step.laws.first.log().where(step.waiting, 0.0)
        return logs.sum(1) >= math.log(self.threshold)
