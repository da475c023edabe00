"""Vector fields, their starting points and their clocks: what a sampler accepts."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["Field", "as_clock", "as_start", "check_choice", "check_count", "field_at", "refined"]

Field: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def as_start(x0: Tensor | ArrayLike, name: str = "x0", *, axes: int = 0) -> Float[Tensor, "..."]:
    """Read the state a path starts from: finite, not empty, in float32 or float64."""
    x = as_reals(x0, name)
    if x.ndim < axes or x.numel() == 0:
        raise InvalidInputError(
            f"{name} must hold at least one state, its coordinates on the last axis; found shape "
            f"{tuple(x.shape)}. Write one-dimensional samples as [N, 1]."
        )
    todo = "Drop the samples that have none before the path starts."
    refuse(~x.isfinite(), x, f"{name} must be finite", todo)
    return x


def as_clock(
    times: Tensor | ArrayLike, device: torch.device, *, backwards: bool = False
) -> Float64[Tensor, " T"]:
    """Read times as at least two numbers that increase (or, if allowed, decrease) strictly."""
    t = as_reals(times, "times", device).detach().to(device, torch.float64)
    if t.ndim != 1 or len(t) < 2:
        raise InvalidInputError(
            f"times must be a vector of at least two; found shape {tuple(t.shape)}. Pass the "
            "start and the times at which the state is wanted."
        )
    refuse(~t.isfinite(), t, "times must be finite", "Name the end of the path by a number.")
    steps = t.diff()
    if bool((steps > 0).all()) or (backwards and bool((steps < 0).all())):
        return t
    wrong = int((steps * (steps[0].sign() if backwards and steps[0] != 0 else 1) <= 0).nonzero()[0])
    order = "strictly increase or strictly decrease" if backwards else "strictly increase"
    raise InvalidInputError(
        f"times must {order}; found {t[wrong].item():.6g} followed by {t[wrong + 1].item():.6g}. "
        "Sort them and drop repetitions; a sampler that runs backwards takes s = T − t."
    )


def field_at(field: Field, t: Tensor, x: Tensor, name: str) -> Tensor:
    """Value of a field, checked to be one vector per state, in the dtype of the state."""
    value = field(t, x)
    if not isinstance(value, Tensor) or value.shape != x.shape:
        found = tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InvalidInputError(
            f"{name}(t, x) must return a tensor of the shape of x, {tuple(x.shape)}; found "
            f"{found}. Expand it there."
        )
    return value.to(x)


def check_choice(value: str, allowed: Sequence[str], name: str) -> None:
    """Raise unless a named choice is one of those that exist."""
    if value not in allowed:
        raise InvalidInputError(
            f"{name} must be one of {', '.join(map(repr, allowed))}; found {value!r}. "
            "Choose one of these."
        )


def check_count(value: int, name: str, least: int = 1) -> None:
    """Raise unless a count is a whole number of at least so many."""
    if not isinstance(value, int) or value < least:
        raise InvalidInputError(
            f"{name} must be a whole number ≥ {least}; found {value!r}. Pass how many are wanted."
        )


def refined(times: Float64[Tensor, " T"], substeps: int) -> Float64[Tensor, " K"]:
    """Divide every interval into equal parts; the given times stay, bit for bit."""
    share = torch.arange(substeps, dtype=times.dtype, device=times.device) / substeps
    inner = times[:-1, None] + times.diff()[:, None] * share
    return torch.cat([inner.reshape(-1), times[-1:]])
