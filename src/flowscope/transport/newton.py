r"""Newton steps on the semi-dual, for small problems whose sweeps hardly contract.

With rows exact, the dual is a concave function of the column log-scalings ψ alone,

.. math:: \nabla D = b - \Pi^\top 1, \qquad
          -\nabla^2 D = \mathrm{diag}(\Pi^\top 1) - \Pi^\top \mathrm{diag}(1/a)\, \Pi .

The Hessian is that of a weighted graph: nearly disconnected when ε is small, which is why sweeps
crawl, and what a damped Newton step does not mind. Steps are damped (Levenberg), no scaling moves
by more than a factor e³ at once, and one that lowers the dual value is not taken. A step costs
m³/3 + n·m² operations: fifty sweeps at m = 128.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.transport.problem import Problem

__all__ = ["newton_potential", "worth_newton"]

_LARGEST = 256  # columns above which a factorisation costs more than it saves
_STEPS = 60
_FARTHEST = 3.0
_NEAR = 1e-2  # marginal error at which a larger ε has served
_DAMPING, _LEAST, _MOST = 1e-2, 1e-10, 1e6


def worth_newton(problem: Problem) -> bool:
    """Whether the matrix is at hand and its factorisation cheap."""
    return not problem.geometry.tiled and problem.geometry.m <= _LARGEST


def newton_potential(
    problem: Problem, g: Float[Tensor, "B m"], tolerance: float, *, epsilons: Sequence[float] = (1,)
) -> Float[Tensor, "B m"]:
    """Column potentials nearer to the solution, for a flat batch of unit masses, fixed columns.

    Newton steps start well where the potentials are wrong by a few ε. Where they are wrong by more,
    ``epsilons`` are multiples of ε whose problems are solved first, from the largest down to 1.
    """
    wide = problem.to(torch.float64)
    potential = g.double()
    for factor in epsilons:
        near = replace(wide, epsilon=wide.epsilon * factor)
        potential = _stepped(near, potential, tolerance if factor == 1 else max(tolerance, _NEAR))
    return potential.to(g.dtype)


def _stepped(wide: Problem, g: Float[Tensor, "B m"], tolerance: float) -> Float[Tensor, "B m"]:
    M = wide.geometry.dense() / wide.epsilon[:, None, None]
    log_a, log_b = wide.a.log(), wide.b.log()
    psi = torch.where(wide.b > 0, g / wide.epsilon[:, None], 0.0)
    state = _evaluated(M, log_a, log_b, wide, psi)
    damping = torch.full_like(wide.epsilon, _DAMPING)
    for _ in range(_STEPS):
        dual, Pi, columns, error = state
        if bool((error <= tolerance).all()) or bool((damping >= _MOST).all()):
            break
        step = _step(Pi, columns, wide, damping)
        trial = _evaluated(M, log_a, log_b, wide, psi + step)
        rounding = 64 * torch.finfo(torch.float64).eps * (1 + dual.abs())
        better = (trial[0] > dual + rounding) | ((trial[0] >= dual - rounding) & (trial[3] < error))
        psi = torch.where(better[:, None], psi + step, psi)
        chosen = zip(trial, state, strict=True)
        state = tuple(
            torch.where(better.view(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in chosen
        )
        damping = torch.where(better, damping / 8, damping * 8).clamp(_LEAST, _MOST)
    return psi * wide.epsilon[:, None]


def _evaluated(
    M: Tensor, log_a: Tensor, log_b: Tensor, problem: Problem, psi: Tensor
) -> tuple[Tensor, ...]:
    """Dual value, coupling with exact rows, its columns and their ℓ₁ error."""
    E = (psi + log_b)[:, None, :] - M
    reached = torch.logsumexp(E, -1)
    phi = torch.where(reached.isfinite(), -reached, 0.0)
    Pi = torch.exp(E + (phi + log_a)[..., None])
    columns = Pi.sum(-2)
    dual = (problem.a * phi).sum(-1) + (problem.b * psi).sum(-1)
    return dual, Pi, columns, (columns - problem.b).abs().sum(-1)


def _step(Pi: Tensor, columns: Tensor, problem: Problem, damping: Tensor) -> Float[Tensor, "B m"]:
    """Damped Newton step, without the constant direction."""
    across = Pi / problem.a.clamp_min(torch.finfo(Pi.dtype).tiny)[..., None]
    hessian = -(across.mT @ Pi) + columns[..., None] * columns[:, None, :]
    floor = torch.finfo(Pi.dtype).tiny ** 0.5
    hessian.diagonal(dim1=-2, dim2=-1).add_(
        columns * (1 + damping[:, None]) + torch.where(columns > floor, 0.0, 1.0)
    )
    factor, failed = torch.linalg.cholesky_ex(hessian)
    step = torch.cholesky_solve((problem.b - columns)[..., None], factor)[..., 0]
    usable = (failed == 0)[:, None] & step.isfinite()
    step = torch.where(usable, step, 0.0)
    return step * (_FARTHEST / step.abs().amax(-1, keepdim=True).clamp_min(_FARTHEST))
