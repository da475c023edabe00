"""What a meter has read of one state of some rows: numbers, or sums that give them later."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, Self, TypeVar, cast

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.steps import StateStatistics, StepStatistics, joined
from flowscope.flows.sums import StateSums
from flowscope.flows.swept import RawSums, state_sums, step_numbers

__all__ = ["Reading", "SummedReading", "SweptReading", "collected"]


class Reading(Protocol):
    """One state of some rows, and the step that led to it, if one did."""

    @property
    def states(self) -> StateStatistics:
        """Statistics of the state."""

    @property
    def steps(self) -> StepStatistics:
        """Statistics of the step; only for a reading that is not of a first state."""

    @property
    def means(self) -> Float64[Tensor, "*rows"]:
        """Mean logit of each row: finite where every logit is."""

    def beside(self, others: Sequence[Self]) -> Self:
        """One reading of these rows and of those that follow."""


@dataclass(frozen=True, eq=False)
class SummedReading:
    """Sums of the state in float64, and the numbers of the step."""

    sums: StateSums
    step: StepStatistics | None

    @property
    def states(self) -> StateStatistics:
        """Statistics of the state."""
        return self.sums.statistics()

    @property
    def steps(self) -> StepStatistics:
        """Statistics of the step."""
        assert self.step is not None
        return self.step

    @property
    def means(self) -> Float64[Tensor, "*rows"]:
        """Mean logit of each row."""
        return self.sums.mean

    def beside(self, others: Sequence["SummedReading"]) -> "SummedReading":
        """One reading of these rows and of those that follow."""
        parts = [self, *others]
        steps = [part.step for part in parts if part.step is not None]
        return SummedReading(
            joined([part.sums for part in parts]), joined(steps) if steps else None
        )


@dataclass(frozen=True, eq=False)
class SweptReading:
    """Raw sums of the sweeps, still on the device."""

    raw: RawSums

    @property
    def states(self) -> StateStatistics:
        """Statistics of the state."""
        return state_sums(self.raw).statistics()

    @property
    def steps(self) -> StepStatistics:
        """Statistics of the step."""
        return step_numbers(self.raw)

    @property
    def means(self) -> Float64[Tensor, "*rows"]:
        """Mean logit of each row."""
        return state_sums(self.raw).mean

    def beside(self, others: Sequence["SweptReading"]) -> "SweptReading":
        """One reading of these rows and of those that follow."""
        return SweptReading(torch.cat([part.raw for part in (self, *others)], 1))


def collected(
    path: Sequence[Reading],
) -> tuple[StateStatistics, StepStatistics, Float64[Tensor, "rows states"]]:
    """Statistics of a path of two states or more, ``[rows, states]``, and its mean logits."""
    if all(isinstance(part, SweptReading) for part in path):
        raw = torch.stack([cast(SweptReading, part).raw for part in path], -1)
        whole, rest = SweptReading(raw), SweptReading(raw[..., 1:])
        return whole.states, rest.steps, whole.means
    steps = _stacked([part.steps for part in path[1:]])
    return _stacked([part.states for part in path]), steps, torch.stack([p.means for p in path], -1)


Numbers = TypeVar("Numbers", StateStatistics, StepStatistics)


def _stacked(parts: Sequence[Numbers]) -> Numbers:
    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(
        **{name: torch.stack([getattr(part, name) for part in parts], -1) for name in names}
    )
