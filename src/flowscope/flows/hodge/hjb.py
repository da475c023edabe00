r"""Is a flow the bridge of its reference? The Hamilton–Jacobi–Bellman residual says.

A process with marginals μ_t, constant diffusion a and drift F against a reference of drift b_R is
a Schrödinger bridge exactly when F − b_R = a∇φ with

.. math:: \partial_t \varphi + b_R \cdot \nabla\varphi
          + \tfrac12 \nabla\varphi^\top a \nabla\varphi + \tfrac12 \mathrm{tr}(a \nabla^2\varphi)
          = c(t), \qquad \varphi = \theta + \tfrac12 \log\mu .

θ is the potential of the *velocity*, u − b_R = a∇θ, and φ that of the drift: u = F − ½a∇log μ.
Source 000 Thm 7.1 puts θ where φ belongs and is wrong in both directions (errata E48). Small
rotation does not replace this residual, nor the reverse (E47): a bridge needs both.

log μ itself never enters. Its slope is the score s, and its rate comes from the continuity
equation, ∂_t log μ = −(∇·u + u·s).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.samples import as_points, as_spd, check_shape
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["HjbResidual", "hjb_residual"]

Field: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# A time is a slice of its own when at least this many points share it.
_SLICE = 8
# Traces are exact, one backward pass a coordinate.
_LARGEST = 64
# Three more powers of t may take this many times what chance gives them, or this share of the
# scale: below that a poor fit does not change what the residual says.
_LACK_OF_FIT, _NEGLIGIBLE = 6.0, 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class HjbResidual:
    """The residual at each point, its size, and what size would mean that nothing cancels.

    ``values`` is the left side less ``centre``, the c(t) that was taken out as ``centring`` says.
    ``scale`` is the root of the summed mean squares of the pieces of the equation (θ and ½log μ
    apart, each less its own centre): pieces that cancel leave ``relative`` near 0, pieces that do
    not leave it near 1. ``abstained`` if c(t) was not followed, ``because`` then says so.
    """

    values: Float[Tensor, " n"]
    centre: Float[Tensor, " n"]
    rms: float
    scale: float
    centring: str
    status: Literal["ok", "abstained"]
    because: str

    @property
    def relative(self) -> float:
        """``rms / scale``; 0 where every piece is a function of time alone."""
        return self.rms / self.scale if self.scale > 0 else 0.0


def hjb_residual(
    points: Float[Tensor, "n d"] | ArrayLike,
    times: Float[Tensor, " n"] | ArrayLike,
    *,
    potential: Field,
    score: Field,
    velocity: Field,
    diffusion: Float[Tensor, "d d"] | ArrayLike | float,
    reference: Field | None = None,
    degree: int = 3,
) -> HjbResidual:
    r"""Residual of the equation that the drift potential of a Schrödinger bridge obeys.

    .. math:: r = \partial_t\theta - \tfrac12(\nabla\cdot u + u \cdot s) + b_R\cdot\nabla\varphi
              + \tfrac12 \nabla\varphi^\top a \nabla\varphi
              + \tfrac12 \mathrm{tr}\, a(\nabla^2\theta + \tfrac12\nabla s) - c(t), \qquad
              \nabla\varphi = \nabla\theta + \tfrac12 s

    Parameters
    ----------
    points : x, samples of μ_t, each at its own time.
    times : t, one for each point.
    potential : θ(t, x) → [n], with a∇θ the gradient part of u − b_R. Not φ.
    score : s(t, x) → [n, d], ∇log μ_t.
    velocity : u(t, x) → [n, d], which carries μ_t by the continuity equation.
    diffusion : a, constant: a matrix, its diagonal, or a number.
    reference : b_R(t, x) → [n, d]; zero (Brownian motion of covariance a) when missing.
    degree : of the polynomial for c(t), used only when the times are scattered.

    Returns
    -------
    HjbResidual : zero for a bridge; for what else, see ``relative``.

    Raises
    ------
    InvalidInputError
        If the shapes do not match, there are fewer than 8 points or more than 64 coordinates, a is
        not symmetric positive definite, or a callable is not finite or not differentiable.

    Notes
    -----
    Every callable takes t [n] and x [n, d] and acts on each row alone. Derivatives are autograd's
    and traces exact: 3d + 2 backward passes. c(t) is free in the equation: it is the mean at each
    time where at least 8 points share every time, else a polynomial in t by least squares, and the
    answer abstains when three more powers still find something. Source 000 Thm 7.1, with φ for θ.

    Examples
    --------
    The stationary Ornstein–Uhlenbeck law is no bridge of Brownian motion: r = x²/4 − ½.

    >>> x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    >>> found = hjb_residual(
    ...     x, torch.zeros(9), potential=lambda t, x: x.new_zeros(9), score=lambda t, x: -x,
    ...     velocity=lambda t, x: torch.zeros_like(x), diffusion=2.0)
    >>> (found.values + found.centre)[:3], round(found.relative, 6)
    (tensor([ 0.5000,  0.0625, -0.2500], dtype=torch.float64), 1.0)
    """
    x = as_points(points, "points", at_least=_SLICE).detach()
    t = as_reals(times, "times", x.device).to(x).detach()
    check_shape(t, (len(x),), "times", "the points")
    refuse(~t.isfinite(), t, "times must be finite", "Remove such points first.")
    if x.shape[1] > _LARGEST:
        raise InvalidInputError(
            f"points may have at most {_LARGEST} coordinates, for traces are exact; found "
            f"{x.shape[1]}. Project them first, for instance on principal coordinates."
        )
    a = as_spd(diffusion, x.shape[1], "diffusion", x)
    with torch.enable_grad():
        pieces = _pieces(
            x.requires_grad_(), t.requires_grad_(), a, (potential, score, velocity, reference)
        )
    return _judged(pieces, t.detach(), degree)


def _pieces(
    x: Tensor, t: Tensor, a: Tensor, fields: tuple[Field, Field, Field, Field | None]
) -> Float[Tensor, "k n"]:
    """Summands of the left side, those of θ and those of ½log μ apart."""
    potential, score, velocity, reference = fields
    theta = _values(potential, "potential", t, x, (len(x),))
    s = _values(score, "score", t, x, tuple(x.shape))
    u = _values(velocity, "velocity", t, x, tuple(x.shape))
    slope, rate = _slopes(theta, x, t)
    bend = _trace(slope, x, a) if slope.requires_grad else torch.zeros_like(rate)
    found = [
        rate,
        -0.5 * _trace(u, x, torch.eye(len(a)).to(a)),
        -0.5 * (u * s).sum(-1),
        0.5 * (slope @ a * slope).sum(-1),
        0.5 * (slope @ a * s).sum(-1),
        0.125 * (s @ a * s).sum(-1),
        0.5 * bend,
        0.25 * _trace(s, x, a),
    ]
    if reference is not None:
        b = _values(reference, "reference", t, x, tuple(x.shape), differentiable=False)
        found += [(b * slope).sum(-1), 0.5 * (b * s).sum(-1)]
    return torch.stack([piece.detach() for piece in found])


def _values(
    field: Field,
    name: str,
    t: Tensor,
    x: Tensor,
    shape: tuple[int, ...],
    differentiable: bool = True,
) -> Tensor:
    """What a callable gives, refused if it has a wrong shape or hides how it depends on x and t."""
    found = field(t, x)
    check_shape(found, shape, name, "the points call for")
    detached = found.detach()
    refuse(~detached.isfinite(), detached, f"{name} must be finite", "Look for the point it got.")
    varies = bool((detached != detached[0]).any())
    if differentiable and varies and not found.requires_grad:
        raise InvalidInputError(
            f"{name} must be differentiable by autograd; found values that vary from point to "
            "point and no graph. Compute it with torch, without detach or no_grad."
        )
    return found


def _slopes(theta: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    if not theta.requires_grad:
        return torch.zeros_like(x), torch.zeros_like(t)
    slope, rate = torch.autograd.grad(
        theta.sum(), (x, t), create_graph=True, allow_unused=True, materialize_grads=True
    )
    return slope, rate


def _trace(field: Tensor, x: Tensor, a: Tensor) -> Float[Tensor, " n"]:
    """Σ_ij a_ij ∂_j field_i at each point; rows of the field depend on their own point alone."""
    total = x.new_zeros(len(x))
    for i in range(x.shape[1] if field.requires_grad else 0):
        (row,) = torch.autograd.grad(
            field[:, i].sum(), x, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        total = total + row @ a[i]
    return total


def _judged(pieces: Float[Tensor, "k n"], t: Float[Tensor, " n"], degree: int) -> HjbResidual:
    slices, counts = torch.unique(t, return_inverse=True, return_counts=True)[1:]
    sliced = int(counts.min()) >= _SLICE
    if sliced:
        basis = torch.nn.functional.one_hot(slices).to(t) / counts.to(t).sqrt()
    else:
        basis = _powers(t, degree)
    left, spread = pieces.sum(0), pieces - _along(basis, pieces)
    values = left - _along(basis, left)
    scale = float(spread.square().mean(1).sum().sqrt())
    because = "" if sliced else _lack_of_fit(values, t, degree, scale)
    return HjbResidual(
        values=values,
        centre=left - values,
        rms=float(values.square().mean().sqrt()),
        scale=scale,
        centring="mean at each time" if sliced else f"polynomial of degree {degree}",
        status="abstained" if because else "ok",
        because=because,
    )


def _along(basis: Float[Tensor, "n k"], y: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Projection of each row of y on the span of orthonormal columns."""
    return (y @ basis) @ basis.mT


def _powers(t: Float[Tensor, " n"], degree: int) -> Float[Tensor, "n k"]:
    """Orthonormal polynomials in t up to a degree, at the points."""
    if degree < 0 or len(t) < 4 * (degree + 4):
        raise InvalidInputError(
            f"{4 * (degree + 4)} points for a polynomial of degree {degree} ≥ 0 in t are needed; "
            f"found {len(t)}. Lower the degree, or use at least {_SLICE} points at each time."
        )
    unit = 2 * (t - t.min()) / (t.max() - t.min()) - 1
    waves = [torch.cos(k * unit.clamp(-1, 1).acos()) for k in range(degree + 1)]  # Chebyshev
    found: Tensor = torch.linalg.qr(torch.stack(waves, 1))[0]
    return found


def _lack_of_fit(
    values: Float[Tensor, " n"], t: Float[Tensor, " n"], degree: int, scale: float
) -> str:
    """Say so if three more powers of t take more than chance would give them."""
    more = _along(_powers(t, degree + 3), values).square().sum()
    chance = 3 * (values.square().sum() - more) / (len(t) - degree - 4)
    negligible = len(t) * (_NEGLIGIBLE * scale) ** 2
    if float(more) <= max(_LACK_OF_FIT * float(chance), negligible):
        return ""
    return (
        f"a polynomial of degree {degree} in t does not follow c(t): three more powers take "
        f"{float(more / chance):.3g} times what chance gives them. Raise the degree, or use at "
        f"least {_SLICE} points at each time."
    )
