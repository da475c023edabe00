r"""Plain scaling, where nothing can underflow: the short way for large ε.

While :math:`\max C/\varepsilon` is small enough that every entry of :math:`K = e^{-C/\varepsilon}`
is far above the smallest number of the dtype, no potential has to be absorbed and scalings may be
multiplied as they are,

.. math:: u = a / (Kv), \qquad v = b / (K^\top u).

That is half the work of a guarded sweep. Problems that converge slowly are handed back after a few
sweeps, with the scalings they have reached.
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
    problem: Problem, tolerance: float, most: int
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B m"], Float[Tensor, "B"], int]:
    """Potentials f and g, column errors and sweeps spent on a flat batch of unit masses.

    Stops when every problem is within tolerance, or as soon as one is seen to need many sweeps.
    """
    a, b, e = problem.a, problem.b, problem.epsilon[:, None]
    kernel = problem.geometry.kernel(torch.zeros_like(a), torch.zeros_like(b), problem.epsilon)
    bv, first, sweeps = b, None, 0
    while True:
        u = 1 / kernel.rows(bv)
        sums = kernel.columns(a * u)
        error = (bv * sums - b).abs().sum(-1)
        sweeps += 1
        worst = float(error.amax())
        if not worst > tolerance or sweeps >= most:
            break
        if sweeps == _LOOK:
            first = worst
        elif first is not None and sweeps % _LOOK == 0:
            rate = (worst / first) ** (1 / (sweeps - _LOOK))
            if rate >= 1 or sweeps + math.log(tolerance / worst) / math.log(rate) > _PATIENCE:
                break
        bv = b / sums
    return e * u.log(), e * (bv / b).log(), error, sweeps
