"""Rules that fill every position that is certain enough, and at least the reference's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from flowscope.instruments.decode.filling.steps import Step
from flowscope.instruments.decode.policies.protocol import Policy

__all__ = ["EntropyBound", "Factor", "Klass", "Plain", "Threshold"]

_CONFIDENCES = (
    0.999999, 0.99999, 0.9999, 0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9, 0.85, 0.8,
    0.7, 0.6, 0.5, 0.4, 0.3,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Threshold(Policy):
    """All open positions whose leading token has at least this probability."""

    threshold: float = 0.9
    name = "threshold"
    default = 0.9
    grid = _CONFIDENCES
    says = "fills all positions whose leading probability is at least the threshold (Fast-dLLM)"

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        return step.best | (step.open & (step.laws.first >= self.threshold))


@dataclass(frozen=True, kw_only=True)
class Factor(Policy):
    """The n most certain positions, n the most with (n + 1)(1 − p of the n-th) below a factor."""

    threshold: float = 1.0
    name = "factor"
    default = 1.0
    grid = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
    says = "fills the n most certain positions while (n + 1)(1 − p) stays below it (Fast-dLLM)"

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        sure = step.laws.first.masked_fill(~step.open, -1.0)
        ranked = sure.sort(dim=1, descending=True, stable=True)
        place = torch.arange(1, sure.shape[1] + 1, device=sure.device)
        small = ((place + 1) * (1 - ranked.values) < self.threshold) & (ranked.values >= 0)
        leading = small.long().cumprod(1).bool()
        return step.best | (torch.zeros_like(leading).scatter(1, ranked.indices, leading))


@dataclass(frozen=True, kw_only=True)
class EntropyBound(Policy):
    """The positions of least entropy while their sum without the largest stays below a bound."""

    threshold: float = 0.1
    name = "entropy-bound"
    default = 0.1
    grid = (
        0.0005,
        0.001,
        0.002,
        0.005,
        0.01,
        0.02,
        0.03,
        0.05,
        0.07,
        0.1,
        0.15,
        0.2,
        0.3,
        0.5,
        1.0,
    )
    says = "fills positions of least entropy while the sum without the largest stays below it (EB)"

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        entropy = step.laws.entropy.masked_fill(~step.open, torch.inf)
        ranked = entropy.sort(dim=1, stable=True)
        low = ranked.values.where(ranked.values.isfinite(), 0.0)
        within = (low.cumsum(1) - low <= self.threshold) & ranked.values.isfinite()
        return step.best | torch.zeros_like(within).scatter(1, ranked.indices, within)


@dataclass(frozen=True, kw_only=True)
class Klass(Policy):
    """Certain positions whose law has hardly moved in the last passes."""

    threshold: float = 0.9
    divergence: float = 0.01
    name = "klass"
    default = 0.9
    grid = _CONFIDENCES
    says = "fills positions that are certain and whose law moved by KL < .01 in two passes (KLASS)"
    patience = 2

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        if len(step.trail) < self.patience:
            return step.best
        still = torch.stack([laws.divergence < self.divergence for laws in step.trail]).all(0)
        return step.best | (step.open & still & (step.laws.first > self.threshold))


@dataclass(frozen=True, kw_only=True)
class Plain(Policy):
    """A fixed number of positions a pass, whatever their certainty: the peer of every policy."""

    threshold: float = 2.0
    name = "plain"
    default = 2.0
    grid = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
    says = "fills this many positions a pass in the order of the reference, however certain"

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """See `Policy`."""
        score = step.score.masked_fill(~step.open, -torch.inf)
        ranked = score.sort(dim=1, descending=True, stable=True).indices
        most = torch.zeros_like(step.open)
        most.scatter_(1, ranked[:, : int(self.threshold)], True)
        return step.best | (most & step.open)
