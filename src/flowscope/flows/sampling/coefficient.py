r"""Coefficients: a number, a diagonal or a matrix that multiplies vectors.

Noise σ, diffusion a = σσᵀ and linear drift A are given as one of

.. math:: c\,v, \qquad \operatorname{diag}(c)\,v, \qquad C\,v,

constant or as a function of (t, x). A constant is read by its axes: none is a number, one a
diagonal, two a matrix. A function may also return one per sample: the shape of x is then a
diagonal each, one axis more a matrix each. Where x has as many samples as coordinates, a square
answer could be either, and is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = [
    "Acting",
    "Coefficient",
    "acting",
    "check_diffusion",
    "check_not_negative",
    "psd_root",
    "symmetric_root",
]

Coefficient: TypeAlias = Tensor | ArrayLike | float | Callable[[Tensor, Tensor], Tensor | float]
Kind: TypeAlias = Literal["scalar", "diagonal", "matrix"]

# Rounding of a product σσᵀ, in units of its largest entry.
_ROUNDING = 1e3


@dataclass(frozen=True, kw_only=True, eq=False)
class Acting:
    """A coefficient at one time and state; ``per_sample`` if each state has its own."""

    kind: Kind
    value: Tensor
    per_sample: bool

    def __call__(self, v: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch d"]:
        """Product with one vector per state."""
        if self.kind != "matrix":
            return self.value * v
        if self.per_sample:
            return (self.value @ v[..., None])[..., 0]
        return v @ self.value.mT

    def width(self, d: int) -> int:
        """How many coordinates the vectors have that it multiplies."""
        return self.value.shape[-1] if self.kind == "matrix" else d


def acting(coefficient: Coefficient, t: Tensor, x: Float[Tensor, "*batch d"], name: str) -> Acting:
    """Value of a coefficient at (t, x), with what it is."""
    varies = callable(coefficient)
    given = coefficient(t, x) if callable(coefficient) else coefficient
    value = as_reals(given, name, x.device).to(x)
    todo = "Look for the time or state that made it."
    refuse(~value.isfinite(), value, f"{name} must be finite", todo)
    kind, per_sample = _reading(tuple(value.shape), tuple(x.shape), varies, name)
    return Acting(kind=kind, value=value, per_sample=per_sample)


def _reading(
    shape: tuple[int, ...], state: tuple[int, ...], varies: bool, name: str
) -> tuple[Kind, bool]:
    d, batched = state[-1], varies and len(state) > 1
    if batched and shape == state and len(shape) == 2 and shape[0] == d > 1:
        raise InvalidInputError(
            f"{name}(t, x) must say whether it is one diagonal per sample or one matrix; found "
            f"shape {shape} for {d} samples of {d} coordinates, which could be either. Return "
            "[N, d, m] matrices, or a diagonal of shape [d]."
        )
    if shape == ():
        return "scalar", False
    if shape == (d,):
        return "diagonal", False
    if batched and shape == state:
        return "diagonal", True
    if batched and shape[:-1] == state:
        return "matrix", True
    if len(shape) == 2 and shape[0] == d:
        return "matrix", False
    raise InvalidInputError(
        f"{name} must be a number, a diagonal of shape ({d},) or a matrix of {d} rows"
        + (", or one of the last two per sample" if batched else "")
        + f"; found shape {shape} for states of shape {state}. Put coordinates on the last axis of "
        "the state."
    )


def check_not_negative(noise: Acting, name: str) -> None:
    """Raise on a negative standard deviation; the sign of a matrix means something else."""
    if noise.kind != "matrix":
        todo = "Pass a standard deviation, not a signed rate."
        refuse(noise.value < 0, noise.value, f"{name} must be ≥ 0", todo)


def check_diffusion(a: Tensor, kind: Kind, name: str = "diffusion") -> None:
    """Raise unless a is not negative and, as a matrix, square and symmetric.

    A singular a is accepted: nothing here is inverted. What is negative shows in the root.
    """
    if kind != "matrix":
        refuse(a < 0, a, f"{name} must be ≥ 0", "Pass a = σσᵀ, a variance per unit time.")
        return
    if a.shape[-1] != a.shape[-2]:
        raise InvalidInputError(
            f"{name} must be square, a = σσᵀ; found shape {tuple(a.shape)}. Multiply the noise "
            "matrix by its transpose."
        )
    off = (a - a.mT).abs()
    allowed = _ROUNDING * torch.finfo(a.dtype).eps * a.abs().amax()
    todo = "Symmetrise it on purpose, or pass σσᵀ."
    refuse(off > allowed, off, f"{name} must be symmetric within {float(allowed):.3g}", todo)


def symmetric_root(a: Tensor, kind: Kind, name: str = "diffusion") -> Tensor:
    """Noise σ with σσᵀ = a, of the same kind: the root of each entry, or the symmetric root."""
    check_diffusion(a, kind, name)
    if kind != "matrix":
        return a.sqrt()
    return psd_root(a, float(a.abs().amax()), name)


def psd_root(a: Float[Tensor, "*batch d d"], scale: float, name: str) -> Tensor:
    """Symmetric root; what is below zero by no more than rounding at that scale counts as zero."""
    values, vectors = torch.linalg.eigh(a)
    least = values.amin(-1)
    todo = "A covariance σσᵀ has none below zero."
    bad = least < -_ROUNDING * torch.finfo(a.dtype).eps * scale
    refuse(bad, least, f"{name} must have no negative eigenvalue", todo)
    root = values.clamp_min(0).sqrt()
    found: Tensor = (vectors * root[..., None, :]) @ vectors.mT
    return found
