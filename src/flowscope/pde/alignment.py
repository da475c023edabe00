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
from flowscope.pde.states import scale_of

__all__ = ["Alignment", "path_alignment", "persistence", "straight_line"]

Path = Float[Tensor, "steps+1 batch N d"]
Values = Float[Tensor, "steps batch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """Agreement of two paths, one value a step and sequence; the common start is left out.

    Attributes
    ----------
    mse
        Mean squared error in units of the mean square of the reference at that step and sequence;
        where the reference is zero, 0 for a path that is zero too and infinite for any other.
    cosine
        Mean over tokens of the cosine of the two states; 0 for a state of zero.
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
    first = reference[:1].double().expand_as(truth)
    guess, truth, first = torch.stack([guess, truth, first]).mul(
        scale_of(torch.cat([guess, truth, first], -1), (-1, -2))
    )
    error = (guess - truth).square().sum((-1, -2))
    still = (first - truth).square().sum((-1, -2))
    energy = truth.square().sum((-1, -2))
    return Alignment(
        mse=torch.where(error > 0, error / energy, 0.0),
        cosine=_cosine(guess, truth).mean(-1),
        spectral=_cosine(_amplitudes(guess), _amplitudes(truth)),
        cka=_kernel_alignment(guess, truth),
        skill=torch.where(still > 0, 1 - error / still, torch.nan),
    )


def persistence(reference: Path) -> Path:
    """The path that stays at the first state of the reference.

    Raises
    ------
    InvalidInputError
        If the reference is no path of finite states.

    Examples
    --------
    >>> persistence(torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """
    _check_path(reference)
    return reference[:1].expand_as(reference)


def straight_line(reference: Path) -> Path:
    """The path from the first to the last state of the reference in equal steps.

    It is given the end, which no simulator is.

    Raises
    ------
    InvalidInputError
        If the reference is no path of finite states.

    Examples
    --------
    >>> straight_line(torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1, 1)).flatten().tolist()
    [1.0, 2.5, 4.0]
    """
    _check_path(reference)
    share = torch.linspace(0, 1, len(reference), device=reference.device, dtype=reference.dtype)
    # halves: the difference of the ends may be beyond the range
    half: Tensor = torch.lerp(0.5 * reference[:1], 0.5 * reference[-1:], share.reshape(-1, 1, 1, 1))
    return 2 * half


def _amplitudes(x: Tensor) -> Tensor:
    amplitudes: Tensor = torch.fft.rfft(x, dim=-2).abs().flatten(-2)
    return amplitudes


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine along the last axis; 0 for vectors of zero."""
    return F.cosine_similarity(x * scale_of(x, -1), y * scale_of(y, -1), dim=-1)


def _kernel_alignment(x: Tensor, y: Tensor) -> Tensor:
    """Linear CKA between tokens, per step and sequence."""
    x, y = x - x.mean(-2, keepdim=True), y - y.mean(-2, keepdim=True)
    x, y = x * scale_of(x, (-1, -2)), y * scale_of(y, (-1, -2))
    cross = (x.mT @ y).square().sum((-1, -2))
    own = ((x @ x.mT).square().sum((-1, -2)) * (y @ y.mT).square().sum((-1, -2))).sqrt()
    return torch.where(own > 0, cross / own, 0.0)


def _check_path(reference: Path) -> None:
    if reference.ndim != 4 or not len(reference) or not reference.is_floating_point():
        raise InvalidInputError(
            "a reference must be real states [steps + 1, batch, tokens, features]; found shape "
            f"{tuple(reference.shape)} of {reference.dtype}."
        )
    if not reference.isfinite().all():
        raise InvalidInputError("a reference must be finite; a state is not.")


def _check(path: Path, reference: Path) -> None:
    if path.shape != reference.shape or path.ndim != 4 or len(path) < 2:
        raise InvalidInputError(
            "path and reference must both be [steps + 1, batch, tokens, features] with at least "
            f"one step; got {tuple(path.shape)} and {tuple(reference.shape)}."
        )
    if not (path.isfinite().all() and reference.isfinite().all()):
        raise InvalidInputError("path and reference must be finite; a state is not.")
