r"""Slopes of potentials by the implicit function theorem.

At the fixed point :math:`\psi = T(\psi; C, a, b)` of a sweep,

.. math:: d\psi = (I - \partial_\psi T)^{-1}\, \partial_\theta T\, d\theta, \qquad
          \partial_\psi T = \omega\, Q^\top P,

P the row-normalised coupling and Q the column-normalised one. One sweep is recorded, and the
gradient that reaches ψ is replaced by the solution of the adjoint system, which is symmetric in the
norm weighted by the column masses: conjugate gradients need products with the coupling only, and
their number does not grow with the sweeps that the forward iteration took.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.transport.masses import log_mass
from flowscope.transport.problem import Problem, once

__all__ = ["with_gradient"]

_STEPS = 500


def with_gradient(
    problem: Problem,
    g: Float[Tensor, "*batch m"],
    relaxation: Float[Tensor, "*batch"] | None,
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch m"]]:
    """Potentials f and g as functions of costs and masses."""
    e = problem.epsilon[..., None]
    omega = None if relaxation is None else (relaxation / (relaxation + problem.epsilon))[..., None]
    log_a, log_b = log_mass(problem.a), log_mass(problem.b)
    psi0 = (g / e).detach()
    across, back = problem.geometry, problem.geometry.transposed()
    phi1 = _finite(-across.soft_rows(psi0 + log_b, problem.epsilon))
    psi = _finite(-back.soft_rows(phi1 + log_a, problem.epsilon))
    if omega is not None:
        psi = omega * psi
    if psi.requires_grad:
        psi.register_hook(_Adjoint(problem, phi1.detach(), psi.detach(), omega))  # type: ignore[no-untyped-call]
    psi = once(psi)
    phi = _finite(-across.soft_rows(psi + log_b, problem.epsilon))
    return phi * e, psi * e


def _finite(x: Tensor) -> Tensor:
    """Potentials of points that reach no mass are zero."""
    return torch.where(x.isfinite(), x, 0.0)


class _Adjoint:
    """Solves (I − ∂T') μ = gradient for a batch."""

    def __init__(self, problem: Problem, phi: Tensor, psi: Tensor, omega: Tensor | None) -> None:
        self._shape = psi.shape
        flat = problem.flat()
        p, q = phi.reshape(len(flat.epsilon), -1), psi.reshape(len(flat.epsilon), -1)
        self._kernel = flat.geometry.kernel(p, q, flat.epsilon)
        self._a, self._b = flat.a, flat.b
        self._rows = flat.a * self._kernel.rows(flat.b)
        self._columns = flat.b * self._kernel.columns(flat.a)
        self._omega = None if omega is None else omega.reshape(-1, 1)

    def _system(self, nu: Tensor) -> Tensor:
        """(diag c − ω Π' diag(1/r) Π) ν."""
        across = self._a * self._kernel.rows(self._b * nu) / self._rows.clamp_min(_tiny(nu))
        back = self._b * self._kernel.columns(self._a * across)
        return self._columns * nu - (back if self._omega is None else self._omega * back)

    def _centred(self, x: Tensor) -> Tensor:
        """Without the constant direction, which moves between rows and columns at no price."""
        if self._omega is not None:
            return x
        share = self._columns / self._columns.sum(-1, keepdim=True)
        return x - x.sum(-1, keepdim=True) * share

    def __call__(self, gradient: Tensor | None) -> Tensor | None:
        if gradient is None:
            return None
        r = self._centred(gradient.reshape(self._columns.shape))
        scale = 1 / self._columns.clamp_min(_tiny(r))
        nu = torch.zeros_like(r)
        z = r * scale
        p, rz = z, (r * z).sum(-1, keepdim=True)
        goal = torch.finfo(r.dtype).eps ** 2 * rz
        for _ in range(_STEPS):
            image = self._system(p)
            step = rz / (p * image).sum(-1, keepdim=True).clamp_min(_tiny(r))
            nu, r = nu + step * p, self._centred(r - step * image)
            z = r * scale
            after = (r * z).sum(-1, keepdim=True)
            if bool((after <= goal).all()):
                break
            p, rz = z + after / rz.clamp_min(_tiny(r)) * p, after
        return (self._columns * nu).reshape(self._shape)


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
