"""Whether a model gives the same answer twice: without that, no number of it means anything."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import UnsupportedModelError
from flowscope.tap.state import state_kept

__all__ = ["Spread", "answer_spread", "refuse_noise"]

_MOST = 0.05
"""Largest relative difference of two answers that can be rounding, whatever the precision."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How far two answers to one input lie apart.

    Attributes
    ----------
    largest
        Largest difference of two numbers of the output.
    relative
        The same as a share of the largest number of the output.
    bound
        What `relative` may be where only rounding differs: the root of the precision.
    """

    largest: float
    relative: float
    bound: float

    @property
    def noisy(self) -> bool:
        """Whether the answers differ by more than rounding."""
        return self.relative > self.bound

    @property
    def sentence(self) -> str:
        """Why the model cannot be measured, or what differs; empty where nothing does."""
        if not self.largest:
            return ""
        size = f"by up to {self.largest:.2g}, {self.relative:.2g} of the largest number"
        if not self.noisy:
            return f"two passes on one input differ {size}, which is rounding"
        return (
            f"two passes on one input differ {size}. Something in the model draws random numbers "
            "in evaluation mode or depends on earlier passes, so that each run would give other "
            "numbers"
        )


def refuse_noise(model: nn.Module, answer: Callable[[], Any]) -> str:
    """Ask a model twice and refuse one that answers differently.

    Parameters
    ----------
    model
        In evaluation mode; buffers, attributes and the state of random numbers stay as they are.
    answer
        One pass on a fixed input.

    Returns
    -------
    str
        A sentence where the answers differ by rounding; empty where they are equal.

    Raises
    ------
    UnsupportedModelError
        The answers differ by more than rounding.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return ""  # off-loaded or never loaded: the tap says which
    spread = answer_spread(model, answer)
    if spread.noisy:
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be measured: {spread.sentence}. Switch the noise off "
            "(dropout that is always on, noise layers, a cache between passes) and measure again."
        )
    return spread.sentence


@torch.no_grad()
def answer_spread(model: nn.Module, answer: Callable[[], Any]) -> Spread:
    """How far two answers of a model to one input lie apart.

    Examples
    --------
    >>> layer = nn.Dropout(0.5)
    >>> answer_spread(layer, lambda: layer(torch.ones(64))).noisy
    True
    >>> answer_spread(layer.eval(), lambda: layer(torch.ones(64))).largest
    0.0
    """
    with torch.random.fork_rng(), state_kept(model):
        pairs = list(zip(_tensors(answer()), _tensors(answer()), strict=False))
    largest = relative = 0.0
    bound = _MOST
    for first, second in pairs:
        if first.shape != second.shape:
            return Spread(largest=math.inf, relative=math.inf, bound=bound)
        bound = min(bound, math.sqrt(torch.finfo(first.dtype).eps))
        a, b = first.double(), second.double()
        apart = (a - b).abs()[~((a == b) | (a.isnan() & b.isnan()))]
        if apart.numel():
            most = float(apart.nan_to_num(math.inf).max())
            largest = max(largest, most)
            scale = float(a[a.isfinite()].abs().max()) if a.isfinite().any() else 0.0
            relative = max(relative, most / scale if scale else math.inf)
    return Spread(largest=largest, relative=relative, bound=bound)


def _tensors(output: Any) -> Iterator[Tensor]:
    """Floating-point tensors of an output, in order."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output.detach()
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)
