r"""How alike two paths of hidden states are, and whether that is more than standing still.

Source 001 reports mean squared error, cosine and spectral similarity of a simulator's path with a
transformer's. A path that does not move scores high in all three (E68), so that each number belongs
beside that of *persistence*, $\hat u_\ell = u_0$:

$$
\mathrm{skill} = 1 - \frac{\lVert \hat u - u\rVert^2}{\lVert u_0 - u\rVert^2} .
$$
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Alignment", "path_alignment", "persistence", "straight_line"]

Path = Float[Tensor, "steps+1 batch N d"]
Values = Float[Tensor, "steps batch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """Agreement of two paths, one value a step and sequence; the common start is left out.

    Attributes
    ----------
    mse
        Mean squared error in units of the mean square of the reference at that step and sequence.
    cosine
        Mean over tokens of the cosine of the two states.
    spectral
        Cosine of the two amplitude spectra over positions (frequency × feature).
    cka
        Linear centred kernel alignment of the tokens of a sequence; 0 where a cloud is one point.
    skill
        1 − squared error ÷ that of persistence; NaN where the reference has not moved.
    """

    mse: Values
    cosine: Values
    spectral: Values
    cka: Values
    skill: Values


def path_alignment(path: Path, reference: Path) -> Alignment:
    """Agreement of a path with a reference path, step by step.

    Parameters
    ----------
    path, reference
        States before the first step and after every one.

    Raises
    ------
    InvalidInputError
        If the shapes differ, a path has one state only, or a state is not finite.

    Examples
    --------
    >>> reference = torch.randn(3, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    >>> both = path_alignment(reference, reference)
    >>> both.mse.max().item(), round(both.cka.min().item(), 6)
    (0.0, 1.0)
    >>> path_alignment(persistence(reference), reference).skill.abs().max().item()
    0.0
    """
    _check(path, reference)
    guess, truth = path[1:].double(), reference[1:].double()
    error = (guess - truth).square().sum((-1, -2))
    still = (reference[:1].double() - truth).square().sum((-1, -2))
    energy = truth.square().sum((-1, -2))
    return Alignment(
        mse=error / energy,
        cosine=F.cosine_similarity(guess, truth, dim=-1).mean(-1),
        spectral=F.cosine_similarity(_amplitudes(guess), _amplitudes(truth), dim=-1),
        cka=_kernel_alignment(guess, truth),
        skill=torch.where(still > 0, 1 - error / still, torch.nan),
    )


def persistence(reference: Path) -> Path:
    """The path that stays at the first state of the reference."""
    return reference[:1].expand_as(reference)


def straight_line(reference: Path) -> Path:
    """The path from the first to the last state of the reference in equal steps.

    It is given the end, which no simulator is.
    """
    share = torch.linspace(0, 1, len(reference), device=reference.device, dtype=reference.dtype)
    return torch.lerp(reference[:1], reference[-1:], share.reshape(-1, 1, 1, 1))


def _amplitudes(x: Tensor) -> Tensor:
    amplitudes: Tensor = torch.fft.rfft(x, dim=-2).abs().flatten(-2)
    return amplitudes


def _kernel_alignment(x: Tensor, y: Tensor) -> Tensor:
    """Linear CKA between tokens, per step and sequence."""
    x, y = x - x.mean(-2, keepdim=True), y - y.mean(-2, keepdim=True)
    cross = (x.mT @ y).square().sum((-1, -2))
    own = ((x @ x.mT).square().sum((-1, -2)) * (y @ y.mT).square().sum((-1, -2))).sqrt()
    return torch.where(own > 0, cross / own, 0.0)


def _check(path: Path, reference: Path) -> None:
    if path.shape != reference.shape or path.ndim != 4 or len(path) < 2:
        raise InvalidInputError(
            "path and reference must both be [steps + 1, batch, tokens, features] with at least "
            f"one step; got {tuple(path.shape)} and {tuple(reference.shape)}."
        )
    if not (path.isfinite().all() and reference.isfinite().all()):
        raise InvalidInputError("path and reference must be finite; a state is not.")
