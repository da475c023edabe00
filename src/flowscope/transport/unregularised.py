r"""Transport without entropy, by the network simplex."""

import numpy as np
import torch
from torch import Tensor

from flowscope.errors import ConvergenceError
from flowscope.simplex.probability import ArrayLike
from flowscope.transport.coupling import ExactCoupling
from flowscope.transport.geometry import Geometry
from flowscope.transport.problem import as_problem

__all__ = ["exact"]


def exact(
    cost: Geometry | Tensor | ArrayLike,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    *,
    max_iterations: int = 1_000_000,
) -> ExactCoupling:
    r"""Least-cost coupling of two families of masses.

    .. math:: \min_{\Pi 1 = a,\; \Pi^\top 1 = b} \langle C, \Pi\rangle

    Parameters
    ----------
    cost
        C: a matrix (…, n, m), +∞ where no mass may go, or a geometry (its matrix is formed).
    a, b
        Masses with equal totals; uniform of total one when not given.
    max_iterations
        Most pivots of the network simplex.

    Raises
    ------
    InvalidInputError
        On masses that differ, a negative or NaN cost, a row masked everywhere, shapes that
        disagree.
    ConvergenceError
        If the pivots ran out, or the mask leaves no coupling.

    Notes
    -----
    Network simplex of POT (``ot.emd``) in float64, one problem after the other, O(n³ log n).
    Slopes: ``cost`` is differentiable in C (envelope theorem), potentials are constants.

    Examples
    --------
    >>> exact([[0.0, 1.0], [1.0, 0.0]], [0.75, 0.25], [0.5, 0.5]).cost
    tensor(0.2500, dtype=torch.float64)
    """
    import ot  # POT takes a second to import and only this function needs it

    problem = as_problem(cost, a, b, epsilon=1.0, relative_epsilon=None)
    flat = problem.flat()
    C = flat.geometry.dense().double().cpu().numpy()
    wa, wb = (w.double().cpu().numpy() for w in (flat.a, flat.b))
    results = []
    for c, p, q in zip(C, wa, wb, strict=True):
        total = p.sum()
        wall = _wall(c)
        results.append(
            (
                total,
                *_emd(ot, np.where(np.isinf(c), wall, c), p / total, q / q.sum(), max_iterations),
            )
        )
    batch = problem.epsilon.shape

    def stacked(arrays: list[np.ndarray], shape: torch.Size) -> Tensor:
        found = np.stack(arrays) if arrays else np.empty((0, *shape))
        return torch.from_numpy(found).to(problem.a).reshape(*batch, *shape)

    n, m = problem.a.shape[-1:], problem.b.shape[-1:]
    masses = stacked([total * plan for total, plan, *_ in results], torch.Size((*n, *m)))
    blocked = torch.where(problem.geometry.dense().detach().isinf(), masses, 0.0)
    error = (
        (masses.sum(-1) - problem.a.detach()).abs().sum(-1)
        + (masses.sum(-2) - problem.b.detach()).abs().sum(-1)
        + blocked.sum((-2, -1))
    ) / problem.a.detach().sum(-1)
    fine = [ok for *_, ok in results]
    solved = torch.tensor(fine, dtype=torch.bool, device=masses.device).reshape(batch)
    bound = 1e3 * torch.finfo(problem.a.dtype).eps
    zeros = torch.zeros_like(problem.epsilon)
    coupling = ExactCoupling(
        geometry=problem.geometry,
        a=problem.a,
        b=problem.b,
        f=stacked([f for _, _, f, _, _ in results], n),
        g=stacked([g for _, _, _, g, _ in results], m),
        epsilon=zeros,
        relaxation=torch.full_like(zeros, torch.inf),
        marginal_error=error,
        iterations=zeros.long(),
        converged=solved & (error <= bound),
        masses=torch.where(blocked > 0, 0.0, masses),
    )
    if not bool(coupling.converged.all()):
        raise ConvergenceError(
            f"exact transport failed on {int((~coupling.converged).sum())} of {len(results)} "
            f"problems: {max_iterations} pivots were not enough, or the mask allows no coupling "
            f"of these masses (error {float(error.max()):.3g}). Raise max_iterations or unmask.",
            coupling,
        )
    return coupling


def _wall(c: np.ndarray) -> float:
    """A price no optimal coupling pays while it can avoid it."""
    finite = c[np.isfinite(c)]
    return float(1 + finite.max() * 2 * max(c.shape)) if finite.size else 1.0


def _emd(
    ot: object, c: np.ndarray, p: np.ndarray, q: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    plan, log = ot.emd(p, q, c, numItermax=most, log=True)  # type: ignore[attr-defined]
    return plan, log["u"], log["v"], log["warning"] is None
