r"""Smooth functions of (t, x) fitted to samples, for equations that need their derivatives.

.. math:: \theta(t, x) = \hat\theta \cdot \Psi(t, z), \qquad
          u(t, x) = b_R(x) + a^{1/2}\,\hat u^\top\Phi(t, z), \qquad
          s(t, x) = \hat s^\top\Phi(t, z), \qquad z = L^{-1}(x - \bar x) .
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.hjb import HjbResidual, hjb_residual
from flowscope.flows.hodge.outcome import Unmeasured
from flowscope.flows.hodge.problem import Reference
from flowscope.flows.hodge.samples import Weak

__all__ = ["fitted_hjb"]

Function: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Derivatives are taken at so many points at most; the fit uses all.
_POINTS = 2000
_RIDGE = 1e-6


def fitted_hjb(
    of: Weak,
    scores: Float64[Tensor, "N d"] | None,
    reference: Reference,
    generator: torch.Generator,
) -> HjbResidual | Unmeasured:
    r"""HJB residual of the potential, score and velocity fitted to samples.

    .. math:: \partial_t\varphi + b_R\cdot\nabla\varphi + \tfrac12\nabla\varphi^\top a\nabla\varphi
              + \tfrac12\mathrm{tr}(a\nabla^2\varphi) - c(t), \qquad
              \varphi = \theta + \tfrac12\log\mu

    Parameters
    ----------
    of : the sample, with times, and its fit.
    scores : ∇log μ_t at the points.
    reference : b_R, as it was passed.
    generator : draws the points where the residual is taken, 2,000 at most.

    Returns
    -------
    The residual, or why there is none: no times, no scores, or a reference that is known at the
    points alone.

    Raises
    ------
    InvalidInputError
        If the scores do not have the shape of the points or are not finite.

    Notes
    -----
    The residual holds second derivatives of the fit: its error is that of the dictionary, and the
    polynomial part of Φ and Ψ (powers of t up to four) is exact for Gaussian bridges only as far
    as their coefficients are quartic in t.

    Examples
    --------
    >>> from flowscope.flows.hodge.problem import blocks, sample
    >>> from flowscope.flows.hodge.samples import weak
    >>> from flowscope.flows.hodge.outcome import Settings
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 1, generator=g).double()
    >>> each = lambda n: blocks(None, n, generator=g, at_most=20, least=4)
    >>> taken = sample(x, 0 * x, reference=None, blocks=each, times=None)
    >>> fitted_hjb(weak(taken, torch.eye(1).double(), Settings(), g), -x, None, g).reason
    'times were not passed'
    """
    if not of.sample.timed:
        return Unmeasured(reason="times were not passed")
    if scores is None:
        return Unmeasured(reason="scores were not passed")
    if reference is not None and not callable(reference):
        return Unmeasured(reason="the reference is known at the points only; pass a function")
    s = _scores(scores, of)
    N = len(of.sample.points)
    chosen = torch.randperm(N, generator=generator, device=generator.device)[:_POINTS]
    chosen = chosen.to(of.values.device)
    drift = reference
    return hjb_residual(
        of.sample.points[chosen],
        of.sample.times[chosen],
        potential=_potential(of),
        score=_combination(of, _regressed(of, s)),
        velocity=_velocity(of, drift),
        diffusion=of.root @ of.root,
        reference=None if drift is None else lambda t, x: drift(x),
    )


def _scores(scores: Tensor, of: Weak) -> Tensor:
    s = scores.detach().to(of.values)
    if s.shape != of.sample.points.shape or not bool(s.isfinite().all()):
        raise InvalidInputError(
            f"scores must be finite with the shape {tuple(of.sample.points.shape)} of the points; "
            f"found shape {tuple(s.shape)} and {int((~s.isfinite()).sum())} entries that are not "
            "finite."
        )
    return s


def _regressed(of: Weak, target: Tensor) -> Tensor:
    """Coefficients, in the orthonormal functions, of a least-squares fit."""
    Q = of.values
    G = Q.mT @ Q + _RIDGE * len(Q) * torch.eye(Q.shape[1], dtype=Q.dtype, device=Q.device)
    return torch.cholesky_solve(Q.mT @ target, torch.linalg.cholesky(G))


def _combination(of: Weak, coefficients: Tensor) -> Function:
    mixed = of.basis.fields @ coefficients

    def value(t: Tensor, x: Tensor) -> Tensor:
        return of.dictionary.fields(of.sample.whitened(x), of.sample.clock(t)) @ mixed

    return value


def _potential(of: Weak) -> Function:
    mixed = of.basis.potentials @ of.whole.potential[0]

    def value(t: Tensor, x: Tensor) -> Tensor:
        return of.dictionary.potentials(of.sample.whitened(x), of.sample.clock(t)) @ mixed

    return value


def _velocity(of: Weak, reference: Callable[[Tensor], Tensor] | None) -> Function:
    own = _combination(of, of.whole.velocity[0] @ of.root)
    if reference is None:
        return own
    return lambda t, x: own(t, x) + reference(x)
