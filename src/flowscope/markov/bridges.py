r"""A kernel bent, as little as possible, to carry one law to another.

Among couplings of $\rho^+$ (start) and $\rho^-$ (end) the nearest to the chain
$\rho^+_i P_{ij}$ in $\mathrm{KL}$ is

$$
\Pi_{ij} = u^+_i\, P_{ij}\, u^-_j, \qquad \Pi 1 = \rho^+, \quad \Pi^\top 1 = \rho^- ,
$$

the one-step Schrödinger bridge. Its kernel is the Doob transform of $P$ with $h = u^-$,

$$
P^{\rm b}_{ij} = \frac{P_{ij}\, u^-_j}{(P u^-)_i}, \qquad \rho^+ P^{\rm b} = \rho^- .
$$

Rows and columns may be different tokens: of this package, the bridge is what applies to
cross-attention. Row and column factors of $P$ are absorbed by the potentials, so the row gauge of
scores changes nothing. Source 002.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.markov.kernels import as_rows, tilted
from flowscope.markov.scores import as_law
from flowscope.simplex.probability import ArrayLike
from flowscope.transport import CostMatrix, exact, sinkhorn
from flowscope.transport.masses import log_mass
from flowscope.transport.options import Options

__all__ = ["KernelBridge", "kernel_bridge"]

_FIRST_SWEEPS = 200  # sweeps after which a problem with zeros is asked whether it has a solution


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelBridge:
    """A coupling of two laws along a kernel, and how right it is; all in float64.

    Attributes
    ----------
    coupling
        Π, with the marginals start and end.
    forward
        The bent kernel: start @ forward = end.
    start_potential, end_potential
        log u⁺ and log u⁻, up to a constant moved from one to the other; −∞ where there is no mass.
    marginal_error
        ℓ₁ distance of the marginals of Π from what was asked.
    iterations
        Sweeps spent on each problem.
    converged
        Whether each problem is within its tolerance.
    """

    coupling: Float[Tensor, "*batch N M"]
    forward: Float[Tensor, "*batch N M"]
    start_potential: Float[Tensor, "*batch N"]
    end_potential: Float[Tensor, "*batch M"]
    marginal_error: Float[Tensor, "*batch"]
    iterations: Int[Tensor, "*batch"]
    converged: Bool[Tensor, "*batch"]


def kernel_bridge(
    kernel: Tensor | ArrayLike,
    start: Tensor | ArrayLike | None,
    end: Tensor | ArrayLike | None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
) -> KernelBridge:
    r"""Bridge of a kernel between two laws.

    .. math:: \min_{\Pi 1 = \rho^+,\; \Pi^\top 1 = \rho^-} \mathrm{KL}(\Pi \Vert \rho^+ P)

    Parameters
    ----------
    kernel
        P, square or not, with any zeros.
    start, end
        ρ⁺ over the rows and ρ⁻ over the columns; None is uniform.
    tolerance
        Marginal error at which a problem is done.
    max_iterations
        Most sweeps.

    Raises
    ------
    InvalidInputError
        For rows or laws that are not probabilities, and when the zeros of P leave no coupling of
        the two laws: a causal kernel carries mass to earlier tokens only.

    Notes
    -----
    `transport.sinkhorn` with the cost −log P and ε = 1, in float64. Where laws fit only just (a
    causal kernel from a law to itself) Π has zeros that P has not, and potentials that grow
    without bound. A problem out of sweeps comes back with ``converged`` False and its error. A row
    without start mass that reaches no end mass either lies on no path, and keeps its row of P in
    ``forward``.

    Examples
    --------
    >>> bridge = kernel_bridge([[0.9, 0.1], [0.5, 0.5]], [0.5, 0.5], [0.4, 0.6])
    >>> bridge.forward
    tensor([[0.6369, 0.3631],
            [0.1631, 0.8369]], dtype=torch.float64)
    >>> bridge.coupling.sum(0)
    tensor([0.4000, 0.6000], dtype=torch.float64)
    """
    P = _summing_to_one(as_rows(kernel, "kernel").double())
    rho, target = (
        _summing_to_one(as_law(law, K, name))
        for law, K, name in ((start, P.mT, "start"), (end, P, "end"))
    )
    _refuse_lost(P, rho, target)
    cost, masses = -log_mass(P), rho
    if P.shape[-1] == P.shape[-2]:
        # Transport refuses triangular masks, which equal masses cannot pass. A row without mass
        # changes no coupling, and leaves this one to be judged by its own masses.
        cost = torch.cat([cost, torch.zeros_like(cost[..., :1, :])], -2)
        masses = torch.cat([rho, torch.zeros_like(rho[..., :1])], -1)
    # zeros may leave no coupling at all: look for that before most of the sweeps
    first = min(max_iterations, _FIRST_SWEEPS) if bool((P == 0).any()) else max_iterations
    options = Options(epsilon=1.0, tolerance=tolerance, max_iterations=first, on_failure="return")
    geometry = CostMatrix(cost.clamp_min(0.0))
    found = sinkhorn(geometry, masses, target, **options)
    spent = found.iterations
    _refuse_unreachable(P, rho, target, found.converged)
    if first < max_iterations and not bool(found.converged.all()):
        options["initial"] = (found.f, found.g)
        options["max_iterations"] = max_iterations - first
        found = sinkhorn(geometry, masses, target, **options)
        spent = spent + found.iterations
    log_u = _potential(rho, found.f[..., : P.shape[-2]])
    log_v = _potential(target, found.g)
    bent = tilted(P, log_v)
    return KernelBridge(
        coupling=torch.exp(log_u[..., :, None] + log_mass(P) + log_v[..., None, :]),
        forward=torch.where(bent.isnan(), P, bent),
        start_potential=log_u,
        end_potential=log_v,
        marginal_error=found.marginal_error,
        iterations=spent,
        converged=found.converged,
    )


def _summing_to_one(p: Tensor) -> Tensor:
    """Rows that summed to one in a narrower dtype, once more in this one."""
    return p / p.sum(-1, keepdim=True)


def _potential(masses: Tensor, f: Tensor) -> Tensor:
    return log_mass(masses) + torch.where(masses > 0, f, 0.0)


def _refuse_lost(P: Tensor, start: Tensor, end: Tensor) -> None:
    """Raise if a token that holds mass sees none, or is seen by none, on the other side."""
    paths = (P > 0) & (start > 0)[..., :, None] & (end > 0)[..., None, :]
    for lost, token in (
        ((start > 0) & ~paths.any(-1), "no end mass is seen from row"),
        ((end > 0) & ~paths.any(-2), "no start mass sees column"),
    ):
        if bool(lost.any()):
            place = tuple(lost.nonzero()[0].tolist())
            raise InvalidInputError(
                f"end cannot be reached from start along this kernel: {token} {place}, which holds "
                "mass. Damp the kernel, or choose laws that its zeros allow."
            )


def _refuse_unreachable(P: Tensor, start: Tensor, end: Tensor, converged: Tensor) -> None:
    """Raise if a problem did not converge because its zeros leave no coupling at all."""
    doubtful = ~converged & (P == 0).flatten(-2).any(-1)
    if not bool(doubtful.any()):
        return
    walls = torch.where(P[doubtful] > 0, 0.0, torch.inf)
    try:
        exact(walls, start[doubtful], end[doubtful])
    except ConvergenceError as error:
        failed = ~error.partial.converged
        place = tuple(doubtful.nonzero()[failed][0].tolist())
        missing = float(error.partial.marginal_error[failed][0])
        raise InvalidInputError(
            f"end cannot be reached from start along this kernel{f' {place}' if place else ''}: "
            f"its zeros stop {missing:.3g} of the mass (a causal kernel carries mass to "
            "earlier tokens only). Damp the kernel, or choose laws that its zeros allow."
        ) from error
