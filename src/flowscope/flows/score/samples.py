"""Samples of a law, one point a row: what is accepted, and which of them belong together."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["as_groups", "as_points", "as_spd", "check_moving", "check_shape", "drawn"]

# A matrix further from symmetric than this, against its largest entry, is not one by rounding.
_ASYMMETRY = 1e-5


def as_points(x: Tensor | ArrayLike, name: str, *, at_least: int = 1) -> Float[Tensor, "n d"]:
    """Read x as a matrix of at least so many finite points."""
    found = as_reals(x, name)
    if found.ndim != 2 or found.shape[1] == 0:
        raise InvalidInputError(
            f"{name} must have shape [n, d], one point a row; found {tuple(found.shape)}. "
            "Flatten the leading axes first."
        )
    if len(found) < at_least:
        raise InvalidInputError(
            f"{name} must hold at least {at_least} points; found {len(found)}. Pass more of them."
        )
    refuse(~found.isfinite(), found, f"{name} must be finite", "Remove such points first.")
    return found


def check_shape(x: Tensor, shape: tuple[int, ...], name: str, like: str) -> None:
    """Raise unless x has the shape that another argument calls for."""
    if tuple(x.shape) != shape:
        raise InvalidInputError(
            f"{name} must have shape {shape}, as {like} does; found {tuple(x.shape)}. "
            "Pass one row for each point."
        )


def check_moving(points: Float[Tensor, "n d"], name: str) -> None:
    """Raise if a coordinate is the same for every point: the law has no density along it."""
    still = (points == points[0]).all(0)
    if bool(still.any()):
        raise InvalidInputError(
            f"every coordinate of {name} must vary; coordinate {int(still.nonzero()[0])} is "
            f"{points[0][still][0].item():.6g} in all {len(points)} points. Drop it: a law has no "
            "score along a direction in which it does not move."
        )


def as_groups(
    groups: Int64[Tensor, " n"] | ArrayLike | None, n: int, device: torch.device, *, at_least: int
) -> Int64[Tensor, " n"] | None:
    """Number the groups from 0; points of one group (a prompt, an image) are not independent."""
    if groups is None:
        return None
    labels = torch.as_tensor(groups, device=device)
    check_shape(labels, (n,), "groups", "the points")
    numbers: Tensor = torch.unique(labels, return_inverse=True)[1]
    count = int(numbers.max()) + 1
    if count < at_least:
        raise InvalidInputError(
            f"at least {at_least} groups are needed; found {count}. Capture more prompts or "
            "images, or leave groups out if the points are independent."
        )
    return numbers


def as_spd(
    matrix: Float[Tensor, "*batch d d"] | ArrayLike | float, d: int, name: str, like: Tensor
) -> Float[Tensor, "*batch d d"]:
    """Read a scalar, a diagonal or a matrix as symmetric positive definite, in the dtype of like.

    A vector is read as a diagonal; leading axes are allowed for matrices only.
    """
    found = as_reals(matrix, name).to(like)
    if found.ndim == 0:
        found = found * torch.eye(d).to(like)
    elif found.ndim == 1:
        check_shape(found, (d,), name, "a diagonal")
        found = found.diag()
    check_shape(found[..., :, :], (*found.shape[:-2], d, d), name, f"a matrix on {d} coordinates")
    refuse(~found.isfinite(), found, f"{name} must be finite", "Look for broken numbers.")
    gap, size = (found - found.mT).abs().amax().item(), found.abs().amax().item()
    lowest = torch.linalg.eigvalsh(0.5 * (found + found.mT))[..., 0].amin().item()
    if gap > _ASYMMETRY * size or lowest <= d * torch.finfo(found.dtype).eps * size:
        raise InvalidInputError(
            f"{name} must be symmetric positive definite; found an asymmetry of {gap:.3g} and a "
            f"smallest eigenvalue of {lowest:.3g}. Drop the directions in which it vanishes."
        )
    return found


def drawn(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of a given shape, from the generator whatever the device."""
    shape = like.shape
    noise = torch.randn(shape, generator=generator, device=generator.device, dtype=like.dtype)
    return noise.to(like.device)
