r"""Entropic couplings with fixed, relaxed, prescribed or free columns.

All minimise :math:`\langle C,\Pi\rangle + \varepsilon\,\mathrm{KL}(\Pi\Vert a\otimes b)` over
couplings whose rows are a; they differ in what they ask of the columns. See
``docs/design/transport.md`` for the conventions that all of them share.
"""

from dataclasses import replace
from typing import TypeAlias, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse
from flowscope.transport.coupling import Coupling
from flowscope.transport.feasibility import causal, check_staircase
from flowscope.transport.geometry import Geometry
from flowscope.transport.gradients import with_gradient
from flowscope.transport.masses import log_mass
from flowscope.transport.options import Options, Potentials, settings_of
from flowscope.transport.problem import Problem, as_problem, as_strength
from flowscope.transport.scaling import Settings, Solution, scaled

__all__ = ["prescribed", "semi_relaxed", "sinkhorn", "unbalanced"]

_SINGLE_SWEEPS = 1_000  # sweeps after which single precision is not trusted to get there

Cost: TypeAlias = Geometry | Tensor | ArrayLike


def sinkhorn(
    cost: Cost,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    **options: Unpack[Options],
) -> Coupling:
    r"""Entropic coupling of two families of masses.

    .. math:: \min_{\Pi 1 = a,\; \Pi^\top 1 = b}
              \langle C, \Pi\rangle + \varepsilon\,\mathrm{KL}(\Pi \Vert a \otimes b)

    Parameters
    ----------
    cost
        C: a matrix (…, n, m), +∞ where no mass may go, or a geometry such as ``PointCloud``.
    a, b
        Masses of rows and columns, with equal totals; uniform of total one when not given.
    **options
        :class:`Options`.

    Returns
    -------
    Coupling
        Differentiable in the cost, the points and the masses (implicit function theorem); ε is
        held constant.

    Raises
    ------
    InvalidInputError
        On masses that differ, a negative or NaN cost, a row masked everywhere, ε ≤ 0, shapes that
        disagree, or a causal mask: a doubly stochastic lower-triangular matrix is the identity.
    ConvergenceError
        If the tolerance was not reached; ``error.partial`` is the coupling that was.

    Notes
    -----
    Absorption-stabilised scaling, annealed and accelerated; n·m operations a sweep. A float32
    problem whose C/ε is too large for float32 to reach the tolerance is solved in float64, and its
    coupling is float64. Source: 000
    §7 and Alg. 2, 003 §1.4, whose condition test on the kernel is left out (errata E31).

    Examples
    --------
    >>> coupling = sinkhorn([[0.0, 1.0], [1.0, 0.0]], epsilon=1.0, tolerance=1e-9)
    >>> coupling.matrix
    tensor([[0.3655, 0.1345],
            [0.1345, 0.3655]], dtype=torch.float64)
    >>> coupling.status
    'converged'
    """
    problem = _problem(cost, a, b, options)
    if causal(problem.geometry):
        raise InvalidInputError(
            "balanced Sinkhorn was given a causal mask (row i reaches columns j ≤ i only): with "
            "equal masses its one solution is the identity, reached as 1/k. Use semi_relaxed, "
            "unbalanced, or prescribed column marginals."
        )
    return _solved(problem, options, relaxation=None)


def prescribed(
    cost: Cost,
    a: Tensor | ArrayLike,
    b: Tensor | ArrayLike,
    **options: Unpack[Options],
) -> Coupling:
    r"""Entropic coupling under a mask, with column masses that the mask can carry.

    As :func:`sinkhorn`, for a mask that lets row i reach a set of columns that grows with i, as a
    causal one does. Mass of the first rows must then fit, with room to spare, into the columns
    they reach,

    .. math:: \textstyle\sum_{r \le i} a_r < \sum_{j \in S_i} b_j \quad\text{for } S_i \ne S_n ,

    which is checked first: equality would force a block of zeros and 1/k convergence.

    Parameters
    ----------
    cost, a, b, **options
        As for :func:`sinkhorn`; a and b are both needed.

    Raises
    ------
    InvalidInputError
        As for :func:`sinkhorn`; if the masses do not fit, naming the first prefix that is too full;
        if the mask's rows are not nested.
    ConvergenceError
        If the tolerance was not reached.

    Examples
    --------
    >>> inf = float("inf")
    >>> cost = [[0.0, inf], [1.0, 0.0]]
    >>> prescribed(cost, [1.0, 1.0], [1.5, 0.5], epsilon=1.0, tolerance=1e-9).matrix
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    problem = _problem(cost, a, b, options)
    check_staircase(problem)
    return _solved(problem, options, relaxation=None)


def unbalanced(
    cost: Cost,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    *,
    relaxation: float | Tensor,
    **options: Unpack[Options],
) -> Coupling:
    r"""Entropic coupling with fixed rows and columns drawn to b with finite strength.

    .. math:: \min_{\Pi 1 = a} \langle C, \Pi\rangle + \varepsilon\,\mathrm{KL}(\Pi\Vert a\otimes b)
              + \rho\,\mathrm{KL}(\Pi^\top 1 \Vert b)

    Parameters
    ----------
    cost, a, b, **options
        As for :func:`sinkhorn`; totals may differ, and any mask is allowed.
    relaxation
        ρ > 0, in units of cost: large is balanced, small is :func:`semi_relaxed` with prior b.

    Raises
    ------
    InvalidInputError
        As for :func:`sinkhorn`, and if ρ is not positive.
    ConvergenceError
        If the tolerance was not reached.

    Notes
    -----
    A sweep contracts by at most ρ/(ρ+ε), whatever the cost.

    Examples
    --------
    >>> unbalanced([[0.0, 1.0], [0.0, 1.0]], epsilon=1.0, relaxation=1.0, tolerance=1e-9).columns
    tensor([0.6225, 0.3775], dtype=torch.float64)
    """
    rho = as_reals(relaxation, "relaxation")
    refuse(
        ~(rho.isfinite() & (rho > 0)),
        rho,
        "relaxation must be positive and finite",
        "Use sinkhorn for fixed columns and semi_relaxed for free ones.",
    )
    problem = _problem(cost, a, b, options, balanced=False)
    rho = as_strength(rho.to(problem.a), tuple(problem.epsilon.shape), "relaxation")
    return _solved(problem, options, relaxation=rho)


def semi_relaxed(
    cost: Cost,
    a: Tensor | ArrayLike | None = None,
    *,
    epsilon: float | Tensor | None = None,
    relative_epsilon: float | None = None,
    prior: Tensor | ArrayLike | None = None,
) -> Coupling:
    r"""Entropic coupling with fixed rows and free columns: a row softmax.

    .. math:: \Pi_{ij} = a_i\,\frac{u_j e^{-C_{ij}/\varepsilon}}{\sum_k u_k e^{-C_{ik}/\varepsilon}}

    Parameters
    ----------
    cost
        C, with any mask.
    a
        Masses of the rows; uniform of total one when not given.
    epsilon, relative_epsilon
        ε, absolute or in units of the median finite cost.
    prior
        u, the reference of the columns; uniform when not given.

    Raises
    ------
    InvalidInputError
        As for :func:`sinkhorn`.

    Notes
    -----
    Closed form, no iteration. Source: 000 Prop. 2.1, with its prior kept as an argument (E08).

    Examples
    --------
    >>> semi_relaxed([[0.0, 1.0]], epsilon=1.0).matrix
    tensor([[0.7311, 0.2689]], dtype=torch.float64)
    """
    problem = as_problem(
        cost, a, prior, epsilon=epsilon, relative_epsilon=relative_epsilon, balanced=False
    )
    reached = problem.geometry.soft_rows(log_mass(problem.b), problem.epsilon)
    f = -problem.epsilon[..., None] * torch.where(reached.isfinite(), reached, 0.0)
    zeros = torch.zeros_like(problem.epsilon)
    coupling = Coupling(
        geometry=problem.geometry,
        a=problem.a,
        b=problem.b,
        f=f,
        g=torch.zeros_like(problem.b),
        epsilon=problem.epsilon,
        relaxation=zeros,
        marginal_error=zeros,
        iterations=zeros.long(),
        converged=zeros == 0,
    )
    error = (coupling.rows - problem.a).detach().abs().sum(-1) / problem.a.detach().sum(-1)
    return replace(coupling, marginal_error=error)


def _problem(
    cost: Cost,
    a: Tensor | ArrayLike | None,
    b: Tensor | ArrayLike | None,
    options: Options,
    *,
    balanced: bool = True,
) -> Problem:
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise InvalidInputError(
            f"unknown option {unknown[0]!r}; known ones are {', '.join(Options.__annotations__)}."
        )
    return as_problem(
        cost,
        a,
        b,
        epsilon=options.get("epsilon"),
        relative_epsilon=options.get("relative_epsilon"),
        balanced=balanced,
    )


def _solved(problem: Problem, options: Options, *, relaxation: Tensor | None) -> Coupling:
    settings = settings_of(options)
    if problem.rounding() > settings.tolerance:
        problem = problem.to(torch.float64)
    start = _start(options.get("initial"), problem)
    with torch.no_grad():
        solution = _scaled(problem, settings, relaxation, start)
        if problem.a.dtype != torch.float64 and not bool(solution.converged.all()):
            # rounding may be all that is left: go on in float64 from where single precision ended
            problem = problem.to(torch.float64)
            again = _scaled(problem, settings, relaxation, solution.g.double())
            solution = replace(again, iterations=solution.iterations + again.iterations)
    relaxation = None if relaxation is None else relaxation.to(problem.a.dtype)
    f, g = _potentials(problem, solution, relaxation)
    batch = problem.epsilon.shape
    coupling = Coupling(
        geometry=problem.geometry,
        a=problem.a,
        b=problem.b,
        f=f,
        g=g,
        epsilon=problem.epsilon,
        relaxation=torch.full_like(problem.epsilon, torch.inf)
        if relaxation is None
        else relaxation,
        marginal_error=solution.error.reshape(batch),
        iterations=solution.iterations.reshape(batch),
        converged=solution.converged.reshape(batch),
    )
    if problem.requires_grad:  # those potentials are a sweep further than the solution's
        coupling = replace(coupling, marginal_error=_measured(coupling))
    if options.get("on_failure", "raise") == "raise" and not bool(coupling.converged.all()):
        raise ConvergenceError(_failure(coupling, settings), coupling)
    return coupling


def _scaled(
    problem: Problem, settings: Settings, relaxation: Tensor | None, start: Tensor | None
) -> Solution:
    rho = None if relaxation is None else relaxation.reshape(-1).to(problem.a.dtype)
    if problem.a.dtype != torch.float64:
        settings = replace(settings, max_iterations=min(settings.max_iterations, _SINGLE_SWEEPS))
    return scaled(problem.flat(), settings, relaxation=rho, initial=start)


def _start(initial: Potentials | None, problem: Problem) -> Float[Tensor, "B m"] | None:
    if initial is None:
        return None
    g = as_reals(initial[1], "initial g", problem.a.device).detach().to(problem.a.dtype)
    refuse(~g.isfinite(), g, "initial potentials must be finite", "Start cold instead.")
    try:
        return g.expand(problem.b.shape).reshape(-1, problem.b.shape[-1])
    except RuntimeError as error:
        raise InvalidInputError(
            f"initial must be potentials (f, g) with g of shape {tuple(problem.b.shape)}; found "
            f"{tuple(g.shape)}. Start cold, or interpolate the potential first."
        ) from error


def _potentials(
    problem: Problem, solution: Solution, relaxation: Tensor | None
) -> tuple[Tensor, Tensor]:
    f, g = solution.f.reshape(problem.a.shape), solution.g.reshape(problem.b.shape)
    return with_gradient(problem, g, relaxation) if problem.requires_grad else (f, g)


@torch.no_grad()
def _measured(coupling: Coupling) -> Float[Tensor, "*batch"]:
    """Marginal error of a coupling, from its own masses."""
    wanted, rho = coupling.b, coupling.relaxation[..., None]
    pull = torch.where(rho.isfinite(), torch.exp(-coupling.g / rho), 1.0)
    rows = (coupling.rows - coupling.a).abs().sum(-1)
    columns = (coupling.columns - wanted * pull).abs().sum(-1)
    return (rows + columns) / coupling.a.sum(-1)


def _failure(coupling: Coupling, settings: Settings) -> str:
    open_ = ~coupling.converged
    worst = coupling.marginal_error[open_].max().item()
    return (
        f"{int(open_.sum())} of {open_.numel()} problems did not reach a marginal error of "
        f"{settings.tolerance:.3g} in {settings.max_iterations} sweeps at most; the worst is at "
        f"{worst:.3g}. Raise epsilon, max_iterations or tolerance, or take the coupling reached "
        'with on_failure="return" (it is also this error\'s partial).'
    )
