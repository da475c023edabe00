r"""Plain scaling, where nothing can underflow: the short way for large ε.

While :math:`\max C/\varepsilon` is small enough that every entry of :math:`K = e^{-C/\varepsilon}`
is far above the smallest number of the dtype, no potential has to be absorbed and scalings may be
multiplied as they are,

.. math:: u = a / (Kv), \qquad v = b / (K^\top u).

That is half the work of a guarded sweep. The rate r of the first sweeps tells the rest: a sweep's
eigenvalues lie between 0 and r, and a step 2/(2−r) times as long shrinks all of them to r/(2−r) at
most. Where that would still be long, the problem is left to the guarded iteration.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.transport.problem import Problem

__all__ = ["plain_start", "safely_plain"]

_REACH = {torch.float32: 40.0, torch.float64: 300.0}
_LOOK = 4  # sweeps after which the rate of convergence is read
_PATIENCE = 16  # sweeps above which acceleration pays


def safely_plain(problem: Problem) -> bool:
    """Whether no entry of the kernel, nor any mass, is small enough to be lost."""
    if problem.geometry.tiled or not problem.epsilon.numel() or problem.geometry.mask() is not None:
        return False
    small = torch.finfo(problem.a.dtype).eps ** 2
    masses = torch.minimum(problem.a.amin() / problem.a.amax(), problem.b.amin() / problem.b.amax())
    reach = (problem.geometry.largest() / problem.epsilon).amax()
    return bool((masses > small) & (reach <= _REACH[problem.a.dtype]))


def plain_start(
    problem: Problem, tolerance: float, most: int, *, accelerate: bool
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B m"], Float[Tensor, "B"], int]:
    """Potentials f and g, column errors and sweeps spent on a flat batch of unit masses.

    Stops when every problem is within tolerance, or as soon as one is seen to need many sweeps.
    """
    a, b, e = problem.a, problem.b, problem.epsilon[:, None]
    K = (problem.geometry.dense() * (-1 / e)[..., None]).exp_()
    bv, sweeps, before, relaxed = b, 0, math.inf, 1.0
    while True:
        # a dot product along rows, and a row times the matrix: both read K as it lies in memory
        u = torch.linalg.vecdot(K, bv[:, None, :]).reciprocal_()
        sums = torch.bmm((a * u)[:, None, :], K)[:, 0]
        error = (bv * sums - b).abs().sum(-1)
        sweeps += 1
        worst = float(error.amax())
        if not worst > tolerance or sweeps >= most:
            break
        rate, before = worst / before, worst
        if sweeps >= _LOOK and sweeps + math.log(tolerance / worst) / _log_rate(rate) > _PATIENCE:
            break
        if accelerate and sweeps == _LOOK:
            relaxed = 2 / (2 - rate)
        bv = bv * (b / (bv * sums)) ** relaxed if relaxed > 1 else b / sums
    return e * u.log(), e * (bv / b).log(), error, sweeps


def _log_rate(rate: float) -> float:
    """Logarithm of a rate of convergence, just below zero where there is none."""
    return math.log(rate) if rate < 1 else -1e-9
