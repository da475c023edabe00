r"""Diagonal scaling of a kernel: the iteration behind balanced, prescribed and relaxed columns.

Iterates are log-scalings. With :math:`K_{ij} = e^{\varphi_i+\psi_j-C_{ij}/\varepsilon}` a kernel
that has absorbed the potentials found so far, one *sweep* from :math:`x = \log v` is

.. math:: u_i = 1 / \textstyle\sum_j K_{ij} b_j v_j, \qquad
          \log v_j' = -\omega \log \textstyle\sum_i a_i u_i K_{ij} - (1-\omega)\,\psi_j ,

with ω = 1 for fixed columns and ω = ρ/(ρ+ε) for columns relaxed by ρ·KL. Rows are exact after
every sweep, so the ℓ₁ error of the columns is the marginal error, and it is also the mass-weighted
change of the potential: one number stops on both.

Why it does not fail where plain scaling does: the kernel is built after a *tropical*
normalisation (row minima, then column minima of the exponent), which leaves the largest entry of
every row and column at one without a single exponential; when scalings grow past what the dtype
can hold, one exact sweep in the log domain is made and absorbed. Small ε is approached from above
(annealing), each stage from the potentials of the last. Per sweep the error contracts by at most
tanh²(Δ/4), Δ the Hilbert diameter of K; near one, Anderson(5) takes over, and a step that lowers
the dual value is undone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.transport.newton import newton_potential, worth_newton
from flowscope.transport.plain import plain_start, safely_plain
from flowscope.transport.problem import Problem
from flowscope.transport.state import Scaling
from flowscope.transport.walk import Walk
from flowscope.workers import Workers

__all__ = ["Settings", "Solution", "scaled"]

_MARGIN = 0.9  # of the tolerance; the rest is for the rounding of the potentials
_COMPACT = 3  # problems are gathered when this fraction is still open,
_WORTH_GATHERING = 12  # and not after fewer sweeps than a new kernel costs
_NEWTON_AFTER = 100  # sweeps that did not suffice; twice as many before each later try
_STAGE_SWEEPS = 6  # sweeps of an annealing stage
_STAGE_FACTOR = 4.0
_WORTH_SHARING = 2**18  # costs in a batch below which workers are not worth waking
_STAGE_START = 0.05  # of the typical cost: above, plain sweeps converge in a dozen


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how a scaling runs."""

    tolerance: float
    max_iterations: int
    anneal: bool
    accelerate: bool
    newton: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """Potentials in units of cost, the error reached and the sweeps spent, one a problem."""

    f: Float[Tensor, "B n"]
    g: Float[Tensor, "B m"]
    error: Float[Tensor, "B"]
    iterations: Int[Tensor, "B"]
    converged: Bool[Tensor, "B"]


def scaled(
    problem: Problem,
    settings: Settings,
    *,
    relaxation: Float[Tensor, "B"] | None = None,
    initial: Float[Tensor, "B m"] | None = None,
) -> Solution:
    """Potentials of a flat batch of problems; relaxation is ρ, None for fixed columns.

    Problems that need as many annealing stages are solved together, and on a CPU shared out among
    workers: sweeps are short, and a barrier after each operation would cost more than it gains.
    """
    total = problem.a.sum(-1, keepdim=True)
    unit = replace(problem, a=problem.a / total, b=problem.b / total)
    spent = 0
    if relaxation is None and initial is None and safely_plain(unit):
        f, g, error, spent = plain_start(
            unit, settings.tolerance, settings.max_iterations, accelerate=settings.accelerate
        )
        if bool((error <= settings.tolerance).all()) or spent >= settings.max_iterations:
            count = torch.full_like(error, spent, dtype=torch.long)
            return _solution(problem, f, g, error, count, settings)
        initial = g
        settings = replace(settings, max_iterations=settings.max_iterations - spent)
    stages = _stage_counts(unit, settings, initial is not None)
    f, g = torch.zeros_like(problem.a), torch.zeros_like(problem.b)
    error, count = torch.zeros_like(problem.epsilon), torch.zeros_like(stages)

    def solve(here: Tensor) -> None:
        part = _annealed(
            unit.take(_run(here)),
            settings,
            int(stages[here[0]]),
            None if relaxation is None else relaxation[here],
            None if initial is None else initial[here],
        )
        f[here], g[here], error[here], count[here] = part

    shares = [
        share
        for number in sorted(set(stages.tolist()))
        for share in _shares((stages == number).nonzero()[:, 0], problem)
    ]
    _each(solve, shares)
    return _solution(problem, f, g, error, count + spent, settings)


def _solution(
    problem: Problem, f: Tensor, g: Tensor, error: Tensor, count: Tensor, settings: Settings
) -> Solution:
    """The solution at the masses that were given, from the one at unit mass."""
    f = f - problem.epsilon[:, None] * problem.a.sum(-1, keepdim=True).log()
    done = error <= settings.tolerance
    return Solution(f=f, g=g, error=error, iterations=count, converged=done)


def _run(problems: Tensor) -> Tensor | slice:
    """A slice where the problems follow each other, so that taking them copies nothing."""
    first, last = int(problems[0]), int(problems[-1])
    return slice(first, last + 1) if last - first + 1 == len(problems) else problems


def _shares(problems: Tensor, problem: Problem) -> list[Tensor]:
    """Equal shares of some problems, one a thread where there is enough to do."""
    size = problem.geometry.n * problem.geometry.m
    threads = torch.get_num_threads() if problem.a.device.type == "cpu" else 1
    if problem.geometry.tiled or len(problems) * size < _WORTH_SHARING:
        threads = 1
    return [part for part in problems.tensor_split(min(threads, len(problems))) if len(part)]


def _each(solve: Callable[[Tensor], None], shares: list[Tensor]) -> None:
    if len(shares) < 2:
        for share in shares:
            solve(share)
        return

    def work(_: int, share: Tensor) -> None:
        with torch.no_grad():  # a setting of the thread
            solve(share)

    Workers(min(len(shares), torch.get_num_threads())).each(work, shares)


def _stage_counts(problem: Problem, settings: Settings, warm: bool) -> Int[Tensor, "B"]:
    """How many values of ε above the one asked for each problem goes through."""
    if not settings.anneal or warm:
        return torch.zeros_like(problem.epsilon, dtype=torch.long)
    ratio = _STAGE_START * problem.geometry.typical() / problem.epsilon
    stages = torch.ceil(ratio.clamp_min(1.0).log() / math.log(_STAGE_FACTOR)).long()
    return stages.clamp_max((settings.max_iterations - 1) // _STAGE_SWEEPS)


def _annealed(
    problem: Problem,
    settings: Settings,
    stages: int,
    relaxation: Tensor | None,
    initial: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Potentials, error and sweeps of problems that share their number of stages."""
    g = torch.zeros_like(problem.b) if initial is None else initial
    for stage in range(stages, 0, -1):
        epsilon = problem.epsilon * _STAGE_FACTOR**stage
        warm = Scaling(problem, epsilon, relaxation, g)
        for _ in range(_STAGE_SWEEPS):
            warm.sweep()
            warm.x = warm.x + warm.change
            warm.hold()
        g = (warm.psi + warm.x) * epsilon[:, None]
    last = Scaling(problem, problem.epsilon, relaxation, g)
    spent = torch.full_like(problem.epsilon, stages * _STAGE_SWEEPS, dtype=torch.long)
    f, g, count = _iterated(last, settings, spent)
    return f, g, _measured(problem, f, g, relaxation), count


def _measured(
    problem: Problem, f: Tensor, g: Tensor, relaxation: Tensor | None
) -> Float[Tensor, "B"]:
    """ℓ₁ error of both marginals, from the potentials that are returned and nothing else."""
    e = problem.epsilon[:, None]
    phi, psi = problem.a.log() + f / e, problem.b.log() + g / e
    kernel = problem.geometry.kernel(phi, psi, problem.epsilon)
    wanted = problem.b
    if relaxation is not None:
        wanted = wanted * torch.exp(-g / relaxation[:, None])
    rows = (kernel.rows(torch.ones_like(g)) - problem.a).abs().sum(-1)
    columns = (kernel.columns(torch.ones_like(f)) - wanted).abs().sum(-1)
    return (rows + columns).nan_to_num(nan=torch.inf)


def _iterated(
    state: Scaling, settings: Settings, count: Int[Tensor, "B"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Sweep until each problem is within tolerance or has spent its sweeps."""
    here = torch.arange(len(count), device=count.device)
    f, g = torch.zeros_like(state.problem.a), torch.zeros_like(state.problem.b)
    walk = Walk(state, settings.accelerate)
    spent = started = gathered = int(count[0])
    goal = _MARGIN * settings.tolerance
    patience, tries = _NEWTON_AFTER, 0
    going = torch.ones_like(state.live_rows[:, 0])
    while True:
        state.sweep()
        spent += 1
        # an error is believed where the kernel can have lost nothing
        done = going & (state.error <= goal) & (state.size <= state.reach)
        if spent >= settings.max_iterations:
            done = going
        if bool(done.any()):
            where = here[done]
            rows, columns = state.settle()
            f[where], g[where] = rows[done], columns[done]
            count[where], going = spent, going & ~done
            left = int(going.sum())
            if left == 0:
                return f, g, count
            if left <= len(here) // _COMPACT and spent - gathered >= _WORTH_GATHERING:
                gathered = spent
                keep = going.nonzero()[:, 0]
                here, going = here[keep], going[keep]
                state, walk = state.take(keep), walk.take(keep)
        walk.advance(state)
        if settings.newton and spent == started + patience and _polished(state, settings, tries):
            walk, patience, tries = Walk(state, settings.accelerate), 2 * patience, tries + 1


def _polished(state: Scaling, settings: Settings, tries: int) -> bool:
    """Put small problems that sweeps do not finish near their solution, by Newton steps.

    Where one try was not enough the potentials are far from it, and ε comes down to them again.
    """
    if state.relaxation is not None or not worth_newton(state.problem):
        return False
    stages = int(_stage_counts(state.problem, settings, False).max()) if tries else 0
    epsilons = [_STAGE_FACTOR**stage for stage in range(stages, -1, -1)]
    g = newton_potential(
        state.problem, state.column_potential(), settings.tolerance / 2, epsilons=epsilons
    )
    state.restart(g)
    return True
