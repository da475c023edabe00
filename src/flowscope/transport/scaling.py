r"""Diagonal scaling of a kernel: the iteration behind balanced, prescribed and relaxed columns.

Iterates are log-scalings. With :math:`K_{ij} = e^{\varphi_i+\psi_j-C_{ij}/\varepsilon}` a kernel
that has absorbed the potentials found so far, one *sweep* from :math:`x = \log v` is

.. math:: u_i = 1 / \textstyle\sum_j K_{ij} b_j v_j, \qquad
          \log v_j' = -\omega \log \textstyle\sum_i a_i u_i K_{ij} - (1-\omega)\,\psi_j ,

with ω = 1 for fixed columns and ω = ρ/(ρ+ε) for columns relaxed by ρ·KL. Rows are exact after
every sweep, so the L1 error of the columns is the marginal error, and it is also the mass-weighted
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

from flowscope.transport.anderson import Anderson
from flowscope.transport.geometry import Kernel
from flowscope.transport.plain import plain_start, safely_plain
from flowscope.transport.problem import Problem
from flowscope.workers import Workers

__all__ = ["Settings", "Solution", "scaled"]

_DEPTH = 5
_SETTLE = 3  # sweeps before acceleration: the first ones contract by themselves
_REST = 2.0  # plain sweeps after an accelerated step was undone
_ROUNDING = 8.0  # units of rounding by which a dual value may fall
_CARRIED = (
    *("log_a", "log_b", "weight_a", "weight_b", "wanted_a", "wanted_b", "scale"),
    *("live_rows", "live_columns"),
    *("phi", "psi", "x", "log_u", "change", "error", "size"),
)
_COMPACT = 3  # problems are gathered when this fraction is still open,
_WORTH_GATHERING = 12  # and not after fewer sweeps than a new kernel costs
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
    if relaxation is None and initial is None and safely_plain(unit):
        f, g, error, sweeps = plain_start(unit, settings.tolerance, settings.max_iterations)
        if bool((error <= settings.tolerance).all()) or sweeps >= settings.max_iterations:
            count = torch.full_like(error, sweeps, dtype=torch.long)
            return _solution(problem, f, g, error, count, settings)
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
    return _solution(problem, f, g, error, count, settings)


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
        warm = _Scaling(problem, epsilon, relaxation, g)
        for _ in range(_STAGE_SWEEPS):
            warm.sweep()
            warm.x = warm.x + warm.change
            warm.hold()
        g = (warm.psi + warm.x) * epsilon[:, None]
    last = _Scaling(problem, problem.epsilon, relaxation, g)
    spent = torch.full_like(problem.epsilon, stages * _STAGE_SWEEPS, dtype=torch.long)
    f, g, count = _iterated(last, settings, spent)
    return f, g, _measured(problem, f, g, relaxation), count


def _measured(
    problem: Problem, f: Tensor, g: Tensor, relaxation: Tensor | None
) -> Float[Tensor, "B"]:
    """L1 error of both marginals, from the potentials that are returned and nothing else."""
    e = problem.epsilon[:, None]
    phi, psi = problem.a.log() + f / e, problem.b.log() + g / e
    kernel = problem.geometry.kernel(phi, psi, problem.epsilon)
    wanted = problem.b
    if relaxation is not None:
        wanted = wanted * torch.exp(-g / relaxation[:, None])
    rows = (kernel.rows(torch.ones_like(g)) - problem.a).abs().sum(-1)
    columns = (kernel.columns(torch.ones_like(f)) - wanted).abs().sum(-1)
    return (rows + columns).nan_to_num(nan=torch.inf)


class _Scaling:
    """State of a batch of scalings at one ε.

    The kernel carries the masses, each relative to the largest. Masses below the square of the
    rounding unit are not *live*: they cannot be seen in the error, are left out of the kernel, and
    only :meth:`settle` gives them their potentials.
    """

    def __init__(
        self,
        problem: Problem,
        epsilon: Float[Tensor, "B"],
        relaxation: Float[Tensor, "B"] | None,
        g: Float[Tensor, "B m"],
    ) -> None:
        self.problem, self.epsilon, self.relaxation = problem, epsilon, relaxation
        a, b = problem.a, problem.b
        self.log_a, self.log_b = a.log(), b.log()
        largest_a, largest_b = a.amax(-1, keepdim=True), b.amax(-1, keepdim=True)
        small = torch.finfo(a.dtype).eps ** 2
        self.live_rows, self.live_columns = a > small * largest_a, b > small * largest_b
        self.scale = largest_a * largest_b
        self.weight_a, self.weight_b = self.log_a - largest_a.log(), self.log_b - largest_b.log()
        self.wanted_a, self.wanted_b = self.log_a - self.scale.log(), self.log_b - self.scale.log()
        # exponents this far out of range can be lost without being seen
        self.reach = 25.0 if g.dtype == torch.float32 else 200.0
        self.normalise(g / epsilon[:, None])

    def normalise(self, given: Float[Tensor, "B m"]) -> None:
        """Build the kernel so that the largest entry of each row and column is one."""
        geometry, e = self.problem.geometry, self.epsilon
        phi = geometry.row_minimum(torch.where(self.live_columns, given, -torch.inf), e)
        self.live_rows = self.live_rows & phi.isfinite()
        phi = torch.where(phi.isfinite(), phi, 0.0)
        psi = geometry.column_minimum(torch.where(self.live_rows, phi, -torch.inf), e)
        self.live_columns = self.live_columns & psi.isfinite()
        self.absorb(phi, torch.where(psi.isfinite(), psi, 0.0))
        self.x = torch.where(self.live_columns, given - self.psi, 0.0)  # still where it was

    def renew(self) -> None:
        """One exact sweep in the log domain, absorbed: slower, and nothing can be lost in it."""
        psi = self.psi + torch.where(self.x.isfinite(), self.x, 0.0)
        phi = self._exact_rows(psi)
        self.absorb(phi, psi if self.relaxation is not None else self._exact_columns(phi))

    def _exact_rows(self, psi: Tensor) -> Tensor:
        seen = torch.where(self.live_columns, psi + self.log_b, -torch.inf)
        phi = -self.problem.geometry.soft_rows(seen, self.epsilon)
        return torch.where(phi.isfinite(), phi, 0.0)

    def _exact_columns(self, phi: Tensor) -> Tensor:
        seen = torch.where(self.live_rows, phi + self.log_a, -torch.inf)
        psi = -self.problem.geometry.transposed().soft_rows(seen, self.epsilon)
        return torch.where(psi.isfinite(), psi, 0.0)

    def absorb(self, phi: Float[Tensor, "B n"], psi: Float[Tensor, "B m"]) -> None:
        """Build the kernel around these log-scalings."""
        self.phi, self.psi = phi, psi
        self.x = torch.zeros_like(psi)
        self._build()

    def _build(self) -> None:
        self.kernel: Kernel = self.problem.geometry.kernel(
            self.phi + torch.where(self.live_rows, self.weight_a, -torch.inf),
            self.psi + torch.where(self.live_columns, self.weight_b, -torch.inf),
            self.epsilon,
        )

    def sweep(self) -> None:
        """Scale rows at the present columns; leave the change of x and the column error.

        A live sum of zero is an underflow: its logarithm is infinite, and is seen.
        """
        v = self.x.exp()
        sums = self.kernel.rows(v)
        self.log_u = torch.where(self.live_rows, self.wanted_a - sums.log(), 0.0)
        sums = self.kernel.columns(self.log_u.exp())
        scaled = torch.where(self.live_columns, self.wanted_b - sums.log(), 0.0)
        wanted = self.problem.b
        if self.relaxation is not None:
            omega = (self.relaxation / (self.relaxation + self.epsilon))[:, None]
            scaled = omega * scaled - (1 - omega) * self.psi
            # rows are exact, so potentials say what the columns should be
            pull = torch.exp(-(self.psi + self.x) * (self.epsilon / self.relaxation)[:, None])
            wanted = wanted * pull
        self.change = scaled - self.x
        self.error = (self.scale * v * sums - wanted).abs().sum(-1)
        self.size = torch.maximum(self.x.abs().amax(-1), self.log_u.abs().amax(-1))

    def dual_gain(self, log_u: Tensor, x: Tensor) -> Float[Tensor, "B"]:
        """How much higher the dual value is than at other scalings, in units of ε."""
        rows = (self.problem.a * (self.log_u - log_u)).sum(-1, dtype=torch.float64)
        moved = self.x - x
        if self.relaxation is not None:
            r = (self.relaxation / self.epsilon)[:, None]
            moved = -r * torch.exp(-(self.psi + x) / r) * torch.expm1(-moved / r)
        return rows + (self.problem.b * moved).sum(-1, dtype=torch.float64)

    def hold(self) -> bool:
        """Absorb scalings that grew past what the dtype can hold; say whether it did."""
        if bool((self.x.abs().amax() <= self.reach) & (self.size.amax() <= self.reach)):
            return False
        self.renew()
        return True

    def row_potential(self) -> Float[Tensor, "B n"]:
        """Row potential f = ε(φ + log u)."""
        return (self.phi + self.log_u) * self.epsilon[:, None]

    def column_potential(self) -> Float[Tensor, "B m"]:
        """Column potential g = ε(ψ + x)."""
        return (self.psi + self.x) * self.epsilon[:, None]

    def settle(self) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B m"]]:
        """Potentials f and g; those without live mass by one exact sweep (their c-transform)."""
        phi, psi = self.phi + self.log_u, self.psi + self.x
        if not bool(self.live_columns.all()):
            exact = self._exact_columns(phi)
            if self.relaxation is not None:
                exact = exact * (self.relaxation / (self.relaxation + self.epsilon))[:, None]
            psi = torch.where(self.live_columns, psi, exact)
        if not bool(self.live_rows.all()):
            # over all columns, also the small ones: each of these rows then holds its own mass
            exact = -self.problem.geometry.soft_rows(psi + self.log_b, self.epsilon)
            phi = torch.where(self.live_rows, phi, torch.where(exact.isfinite(), exact, 0.0))
        return phi * self.epsilon[:, None], psi * self.epsilon[:, None]

    def take(self, problems: Tensor) -> "_Scaling":
        """Some problems, as a smaller batch."""
        new = object.__new__(_Scaling)
        new.problem, new.epsilon = self.problem.take(problems), self.epsilon[problems]
        new.relaxation = None if self.relaxation is None else self.relaxation[problems]
        for name in _CARRIED:
            setattr(new, name, getattr(self, name)[problems])
        new.reach = self.reach
        new._build()
        return new


def _iterated(
    state: _Scaling, settings: Settings, count: Int[Tensor, "B"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Sweep until each problem is within tolerance or has spent its sweeps."""
    here = torch.arange(len(count), device=count.device)
    f, g = torch.zeros_like(state.problem.a), torch.zeros_like(state.problem.b)
    walk, spent, gathered = _Walk(state, settings.accelerate), int(count[0]), int(count[0])
    going = torch.ones_like(state.live_rows[:, 0])
    while True:
        state.sweep()
        spent += 1
        # an error is believed where the kernel can have lost nothing
        done = going & (state.error <= settings.tolerance) & (state.size <= state.reach)
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


class _Walk:
    """From one iterate to the next, accelerated and safeguarded, one decision a problem.

    Plain sweeps never lower the dual value, so an accelerated step that does is undone: its problem
    goes on from the plain successor of the iterate before, and after two plain sweeps tries again.
    (Judging by the marginal error instead cycles: it may rise for a while on a good path.)
    """

    def __init__(self, state: _Scaling, accelerate: bool) -> None:
        self._memory = Anderson(_DEPTH, state.problem.b) if accelerate else None
        self._last: tuple[Tensor, Tensor] | None = None
        self._plain = state.x
        self._rest = torch.ones_like(state.epsilon)
        self._settling = _SETTLE
        self._slack = torch.zeros_like(state.epsilon)

    def take(self, problems: Tensor) -> "_Walk":
        """Some problems, as a smaller batch."""
        new = object.__new__(_Walk)
        new._memory = None if self._memory is None else self._memory.take(problems)
        new._settling, last = self._settling, self._last
        new._last = None if last is None else (last[0][problems], last[1][problems])
        for name in ("_plain", "_rest", "_slack"):
            setattr(new, name, getattr(self, name)[problems])
        return new

    def advance(self, state: _Scaling) -> None:
        """Move every problem to its next iterate."""
        plain = state.x + state.change
        if self._memory is None or self._settling > 0:
            self._settling -= 1
            self._plain, state.x = plain, plain
            state.hold()
            return
        bad = self._fallen(state)
        log_u, x = state.log_u, state.x
        if self._last is not None:
            log_u = torch.where(bad[:, None], self._last[0], log_u)
            x = torch.where(bad[:, None], self._last[1], x)
        # without the constant that moves freely between rows and columns
        change = state.change
        if state.relaxation is None:
            change = change - (change * state.problem.b).sum(-1, keepdim=True)
        mixed = self._memory.step(state.x, change)
        following = torch.where((self._rest > 0)[:, None], plain, mixed)
        state.x = torch.where(bad[:, None], self._plain, following)
        self._last = (log_u, x)
        self._plain = torch.where(bad[:, None], self._plain, plain)
        self._rest = torch.where(bad, _REST, self._rest - 1)
        if bool(bad.any()):
            self._memory.forget(bad)
        phi, psi = state.phi, state.psi
        if state.hold():  # a new kernel after an exact sweep: carry what is remembered into it
            shift = psi - state.psi
            self._plain = torch.where(bad[:, None], state.x, self._plain + shift)
            self._last = (log_u + (phi - state.phi), x + shift)
            self._slack = shift.abs().amax(-1)
            self._memory.shift(shift)

    def _fallen(self, state: _Scaling) -> Bool[Tensor, "B"]:
        """Problems whose dual value fell by more than its rounding."""
        lost = ~state.error.isfinite()
        if self._last is None:
            return lost
        gain = state.dual_gain(*self._last)
        unit = _ROUNDING * torch.finfo(state.x.dtype).eps
        slack, self._slack = 1 + self._slack, torch.zeros_like(self._slack)
        return lost | ~(gain >= -unit * slack)
