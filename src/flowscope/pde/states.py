"""States of tokens as the functions of this package take them: finite, real, widened."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = [
    "as_states",
    "as_writes",
    "directions",
    "mean_cosine",
    "scale_of",
    "several_tokens",
]


def as_states(x: Tensor | ArrayLike, name: str) -> Float[Tensor, "*batch N d"]:
    """Read x as finite states, one token a row; half precision is widened to float32."""
    states = as_reals(x, name)
    if states.ndim < 2 or states.shape[-2] < 1 or states.shape[-1] < 1:
        raise InvalidInputError(
            f"{name} must have tokens on its last axis but one and features on its last; found "
            f"shape {tuple(states.shape)}."
        )
    if not bool(states.sum().isfinite()):  # of finite states it may still overflow: then look
        refuse(
            ~states.isfinite(), states, f"{name} must be finite", "Find where the model overflowed."
        )
    return states


def as_writes(
    writes: Sequence[Tensor | ArrayLike], state: Float[Tensor, "*batch N d"]
) -> Float[Tensor, "K *batch N d"]:
    """Read writes of the shape of a state, stacked in their order."""
    if not len(writes):
        raise InvalidInputError("a balance needs at least one write; found none.")
    tensors = [as_states(write, "a write") for write in writes]
    for write in tensors:
        if write.shape != state.shape:
            raise InvalidInputError(
                f"a write must have the shape of the state, {tuple(state.shape)}; found "
                f"{tuple(write.shape)}."
            )
    return torch.stack([write.to(state.dtype) for write in tensors])


def directions(x: Float[Tensor, "*batch N d"], name: str) -> Float[Tensor, "*batch N d"]:
    """Unit vectors along the states; a state of zero has none, and is refused."""
    largest = x.abs().amax(-1, keepdim=True)
    refuse(
        largest == 0,
        largest,
        f"{name} must not be zero: it has no direction",
        "Leave it out first.",
    )
    scaled = x / largest  # squares of it neither overflow nor vanish
    unit: Tensor = scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return unit


def scale_of(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Power of two that brings the largest entry along some axes, which stay, into [½, 4].

    Squares of x times this neither overflow nor vanish, and nothing is rounded on the way.
    """
    limits = torch.finfo(x.dtype)
    largest = x.detach().abs().amax(dim, keepdim=True).clamp(limits.tiny, limits.max / 4)
    scale: Tensor = torch.frexp(largest).mantissa / largest
    return scale


def several_tokens(x: Float[Tensor, "*batch N d"], name: str) -> None:
    """Raise unless there are at least two tokens."""
    if x.shape[-2] < 2:
        raise InvalidInputError(
            f"{name} must hold at least two tokens to be spread; found {x.shape[-2]}."
        )


def mean_cosine(unit: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch"]:
    """Mean cosine over pairs of different tokens, of their unit vectors."""
    n = unit.shape[-2]
    # the squares of the unit vectors and not n: what rounding left of them must cancel
    own = unit.square().sum((-1, -2))
    return (unit.sum(-2).square().sum(-1) - own) / (n * (n - 1))
