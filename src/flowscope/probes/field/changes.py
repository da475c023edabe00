r"""Changes of one block that a user may want: leave it out, scale it, round its weights.

A change acts on the block's output alone. What it does to the state that leaves the block, given
the state that entered it, is $\delta$; `flowscope.probes.field.forecast` says what that costs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flowscope.errors import InvalidInputError

__all__ = ["Change", "Quantise", "Scale", "Skip", "rounded_weights", "run_with", "weight_error"]


class Change(Protocol):
    """What replaces a block: a name, numbers for a table, and the state that leaves it."""

    @property
    def kind(self) -> str:
        """Name of the change."""

    @property
    def amount(self) -> float:
        """Its size: bits, or a scale."""

    def state(self, module: nn.Module, before: Tensor, after: Tensor, again: "Run") -> Tensor:
        """State after the changed block, given the states around the block as it is."""


Run = Callable[[Mapping[str, Tensor]], Tensor]
"""Runs the block on its own inputs with some of its weights replaced."""


@dataclass(frozen=True, kw_only=True)
class Skip:
    """Leave the block out."""

    kind: str = "skip"
    amount: float = 0.0

    def state(self, module: nn.Module, before: Tensor, after: Tensor, again: Run) -> Tensor:
        """The state that entered."""
        return before


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Scale what the block adds; 1 is the model."""

    amount: float
    kind: str = "scale"

    def __post_init__(self) -> None:
        if not abs(self.amount) < float("inf"):
            raise InvalidInputError(f"a scale must be finite; got {self.amount!r}.")

    def state(self, module: nn.Module, before: Tensor, after: Tensor, again: Run) -> Tensor:
        """The state that entered plus the scaled addition."""
        return before + self.amount * (after - before)


@dataclass(frozen=True, kw_only=True)
class Quantise:
    """Round the block's matrices to the nearest of 2^bits levels, group by group.

    Parameters
    ----------
    bits
        From 2 to 16.
    group
        Weights of a row that share one scale and offset; a row whose length it does not divide is
        one group.
    """

    bits: int
    group: int = 64
    kind: str = "quantise"

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("bits", self.bits, 2, 16),
            ("group", self.group, 1, 2**31),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InvalidInputError(
                    f"{name} must be a whole number from {least} to {most}; got {value!r}."
                )

    @property
    def amount(self) -> float:
        """Bits."""
        return float(self.bits)

    def state(self, module: nn.Module, before: Tensor, after: Tensor, again: Run) -> Tensor:
        """The state that the block returns with rounded weights."""
        return again(rounded_weights(module, self.bits, self.group))


def rounded_weights(module: nn.Module, bits: int, group: int) -> dict[str, Tensor]:
    """Matrices of a module rounded to the nearest level between the ends of each group.

    Parameters
    ----------
    module
        Whose parameters with two axes are rounded; the others are left out.
    bits, group
        Levels are 2^bits; ``group`` weights of a row share their ends.

    Examples
    --------
    >>> layer = nn.Linear(4, 1, bias=False)
    >>> layer.weight.data = torch.tensor([[0.0, 0.9, 2.1, 3.0]])
    >>> rounded_weights(layer, 2, 4)["weight"]
    tensor([[0., 1., 2., 3.]])
    """
    return {
        name: _rounded(weight.detach(), bits, group)
        for name, weight in module.named_parameters()
        if weight.ndim == 2 and weight.is_floating_point()
    }


def _rounded(weight: Tensor, bits: int, group: int) -> Tensor:
    length = weight.shape[1]
    parts = weight.float().reshape(len(weight), -1, group if length % group == 0 else length)
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    levels = torch.where(step > 0, ((parts - low) / torch.where(step > 0, step, 1)).round(), 0.0)
    nearest: Tensor = low + levels * step
    return nearest.reshape(weight.shape).to(weight.dtype)


def weight_error(module: nn.Module, weights: Mapping[str, Tensor]) -> float:
    """Size of a change of weights relative to the weights themselves, over all of them.

    Examples
    --------
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.data = torch.tensor([[3.0, 4.0]])
    >>> weight_error(layer, {"weight": torch.tensor([[3.0, 3.0]])})
    0.2
    """
    parameters = dict(module.named_parameters())
    changed = sum(
        float((parameters[n].detach() - w).double().square().sum()) for n, w in weights.items()
    )
    whole = sum(float(parameters[n].detach().double().square().sum()) for n in weights)
    return (changed / whole) ** 0.5 if whole else 0.0


def run_with(module: nn.Module, weights: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
    """Call a module with some weights replaced; the module itself is left alone."""
    return functional_call(module, dict(weights), args, kwargs)
