"""Masses: what is accepted, when two totals are equal, and logarithms that may be of nothing."""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse
from flowscope.transport.geometry import Geometry

__all__ = ["as_masses", "log_mass", "rounding_unit", "same_total"]


def as_masses(
    x: Tensor | ArrayLike | None, name: str, size: int, like: Tensor | Geometry
) -> Float[Tensor, "*batch n"]:
    """Read masses: finite, not negative, not all zero; None means uniform ones of total one."""
    if x is None:
        return torch.full((size,), 1 / size, dtype=like.dtype, device=like.device)
    w = as_reals(x, name, like.device)
    if w.ndim == 0 or w.shape[-1] != size:
        raise InvalidInputError(
            f"{name} must hold one mass for each of {size} points on its last axis; found shape "
            f"{tuple(w.shape)}. Check the order of the masses: rows first, then columns."
        )
    refuse(~w.isfinite(), w, f"{name} must be finite", "Look for the overflow upstream.")
    refuse(w < 0, w, f"{name} must have no negative mass", "Clip or shift on purpose first.")
    refuse(
        w.sum(-1) <= 0,
        w.sum(-1),
        f"{name} must hold some mass in every problem",
        "Drop empty problems from the batch.",
    )
    return w


def rounding_unit(x: Tensor | ArrayLike | None, dtype: torch.dtype) -> float:
    """Rounding unit of the dtype that masses came in."""
    return torch.finfo(x.dtype if isinstance(x, Tensor) else dtype).eps


def same_total(a: Tensor, b: Tensor, unit: float) -> Float[Tensor, "*batch 1"]:
    """Factor that brings b to the total of a: one within rounding, else it raises."""
    first, second = (w.detach().double().sum(-1) for w in (a, b))
    off = (first - second).abs() / first
    size = max(a.shape[-1], b.shape[-1])
    bound = min(unit * (max(size**0.5, 4.0) + size / 8), 0.5)
    if not bool((off <= bound).all()):
        place = tuple((off > bound).nonzero()[0].tolist())
        at = f" in problem {place}" if place else ""
        raise InvalidInputError(
            f"a and b must have equal totals; found {first[place].item():.9g} and "
            f"{second[place].item():.9g}{at}. Divide each by its sum, or use unbalanced transport."
        )
    return (first / second).to(b.dtype)[..., None]


def log_mass(w: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Logarithm of masses; −∞, and no slope, where there is none."""
    empty = w.detach() <= 0
    return w.masked_fill(empty, 1.0).log().masked_fill(empty, -torch.inf)
