"""Whether a model sees both ways: the last token is changed and the first position watched.

A causal model cannot see ahead, so that its first row stays bitwise the same. What a configuration
says about it is not believed: some libraries and attention backends ignore ``is_causal: false``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["Sight", "sight_of", "sight_sentence"]

_LENGTH, _OTHERS = 4, 8
_ROUNDING = 1e-6
"""Change of the first row, as a share of its largest number, that can be rounding."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What changing the last token does to the first position.

    Attributes
    ----------
    moved
        Largest change of a logit of the first position.
    noise
        The same between two rows that are equal.
    scale
        Largest logit of the first position.
    """

    moved: float
    noise: float
    scale: float

    @property
    def both_ways(self) -> bool:
        """Whether the first position sees the last token."""
        return self.moved > max(_ROUNDING * self.scale, 10 * self.noise)


def sight_sentence(sight: Sight) -> str:
    """What was seen, as the rest of a sentence about the model.

    Examples
    --------
    >>> sight_sentence(Sight(moved=0.25, noise=0.0, scale=3.0))
    'changing the last token moves a logit of the first position by 0.25'
    """
    if sight.both_ways:
        return f"changing the last token moves a logit of the first position by {sight.moved:.2g}"
    return "changing the last token leaves the first position as it is"


@torch.no_grad()
def sight_of(
    naming: Callable[[Tensor], Tensor], tokens: Int[Tensor, "tokens"], mask: int | None = None
) -> Sight:
    """Change the last token of a short sequence and watch the first position.

    Parameters
    ----------
    naming
        Logits ``[rows, positions, outcomes]`` of ids.
    tokens
        Ordinary tokens to make sequences of, at least two different ones.
    mask
        Token at the first position; an ordinary one without it.

    Examples
    --------
    >>> def causal(ids):
    ...     return torch.nn.functional.one_hot(ids, 5).float().cumsum(1)
    >>> sight_of(causal, torch.arange(5)).both_ways
    False
    >>> sight_of(lambda ids: causal(ids.flip(1)).flip(1), torch.arange(5)).both_ways
    True
    """
    start = tokens.repeat(_LENGTH)[:_LENGTH].clone()
    if mask is not None:
        start[0] = mask
    others = tokens[tokens != start[-1]][:_OTHERS]
    ids = start.repeat(2 + len(others), 1)
    ids[2:, -1] = others
    first = naming(ids)[:, 0].double()
    first = first.where(first.isfinite(), 0.0)
    apart = (first - first[0]).abs().amax(-1)
    return Sight(
        moved=float(apart[2:].max()), noise=float(apart[1]), scale=float(first[0].abs().max())
    )
