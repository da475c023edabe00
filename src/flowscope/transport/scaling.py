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

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.transport.anderson import Anderson
from flowscope.transport.geometry import Kernel
from flowscope.transport.problem import Problem

__all__ = ["Settings", "Solution", "scaled"]

_DEPTH = 5
_SETTLE = 4  # sweeps before acceleration: the first ones contract by themselves
_REST = 2.0  # plain sweeps after an accelerated step was undone
_ROUNDING = 8.0  # units of rounding by which a dual value may fall
_CARRIED = (
    *("log_a", "log_b", "scale_a", "scale_b", "live_rows", "live_columns", "total"),
    *("phi", "psi", "x", "log_u", "change", "error"),
)
_STAGE_SWEEPS = 6  # sweeps of an annealing stage
_STAGE_FACTOR = 4.0
_STAGE_START = 0.1  # of the median cost: above, plain sweeps converge in a dozen


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
    """Potentials of a flat batch of problems; relaxation is ρ, None for fixed columns."""
    g = torch.zeros_like(problem.b) if initial is None else initial
    count = torch.zeros(len(g), dtype=torch.long, device=g.device)
    for stage in _stages(problem, settings, initial is not None):
        warm = _Scaling(problem, stage, relaxation, g)
        for _ in range(_STAGE_SWEEPS):
            warm.sweep()
            warm.x = warm.x + warm.change
            warm.hold()
        g = (warm.psi + warm.x) * stage[:, None]
        count += _STAGE_SWEEPS
    last = _Scaling(problem, problem.epsilon, relaxation, g)
    return _iterated(last, settings, count)


def _stages(problem: Problem, settings: Settings, warm: bool) -> list[Float[Tensor, "B"]]:
    """Values of ε above the one asked for, largest first."""
    if not settings.anneal or warm:
        return []
    start = _STAGE_START * problem.geometry.median()
    stages, epsilon = [], problem.epsilon * _STAGE_FACTOR
    while bool((epsilon < start).any()):
        stages.append(torch.minimum(epsilon, torch.maximum(start, problem.epsilon)))
        epsilon = epsilon * _STAGE_FACTOR
    return stages[::-1]


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
        self.total, self.log_a, self.log_b = a.sum(-1), a.log(), b.log()
        largest_a, largest_b = a.amax(-1, keepdim=True), b.amax(-1, keepdim=True)
        small = torch.finfo(a.dtype).eps ** 2
        self.live_rows, self.live_columns = a > small * largest_a, b > small * largest_b
        self.scale_a, self.scale_b = largest_a.log(), largest_b.log()
        # exponents this far out of range can be lost without being seen
        self._reach = 25.0 if g.dtype == torch.float32 else 200.0
        self.normalise(g / epsilon[:, None])

    def normalise(self, psi: Float[Tensor, "B m"]) -> None:
        """Absorb potentials so that the largest kernel entry of each row and column is one."""
        geometry, e = self.problem.geometry, self.epsilon
        phi = geometry.row_minimum(torch.where(self.live_columns, psi, -torch.inf), e)
        self.live_rows = self.live_rows & phi.isfinite()
        phi = torch.where(phi.isfinite(), phi, 0.0)
        psi = geometry.transposed().row_minimum(torch.where(self.live_rows, phi, -torch.inf), e)
        self.live_columns = self.live_columns & psi.isfinite()
        self.absorb(phi, torch.where(psi.isfinite(), psi, 0.0))

    def renew(self) -> None:
        """One exact sweep in the log domain, absorbed: slower, and nothing can be lost in it."""
        psi = self.psi + torch.where(self.x.isfinite(), self.x, 0.0)
        phi = self._exact_rows(psi)
        self.absorb(phi, psi if self.relaxation is not None else self._exact_columns(phi))

    def _exact_rows(self, psi: Tensor) -> Tensor:
        phi = -self.problem.geometry.soft_rows(psi + self.log_b, self.epsilon)
        return torch.where(phi.isfinite(), phi, 0.0)

    def _exact_columns(self, phi: Tensor) -> Tensor:
        psi = -self.problem.geometry.transposed().soft_rows(phi + self.log_a, self.epsilon)
        return torch.where(psi.isfinite(), psi, 0.0)

    def absorb(self, phi: Float[Tensor, "B n"], psi: Float[Tensor, "B m"]) -> None:
        """Build the kernel around these log-scalings."""
        self.phi, self.psi = phi, psi
        self.x = torch.zeros_like(psi)
        self._build()

    def _build(self) -> None:
        self.kernel: Kernel = self.problem.geometry.kernel(
            self.phi + torch.where(self.live_rows, self.log_a - self.scale_a, -torch.inf),
            self.psi + torch.where(self.live_columns, self.log_b - self.scale_b, -torch.inf),
            self.epsilon,
        )

    def sweep(self) -> None:
        """Scale rows at the present columns; leave the change of x and the column error."""
        b = self.problem.b
        v = self.x.exp()
        self.log_u = _ratio(
            self.log_a - self.scale_a, self.kernel.rows(v), self.scale_b, self.live_rows
        )
        sums = self.kernel.columns(self.log_u.exp())
        self.change = (
            _ratio(self.log_b - self.scale_b, sums, self.scale_a, self.live_columns) - self.x
        )
        wanted = b
        if self.relaxation is not None:
            omega = (self.relaxation / (self.relaxation + self.epsilon))[:, None]
            self.change = omega * (self.change + self.x) - (1 - omega) * self.psi - self.x
            wanted = b * torch.exp(-(self.psi + self.x) * (self.epsilon / self.relaxation)[:, None])
        columns = v * sums * (self.scale_a + self.scale_b).exp()
        self.error = (columns - wanted).abs().sum(-1) / self.total
        if self.relaxation is None:  # a constant moves freely between rows and columns
            shift = (self.change * b).sum(-1, keepdim=True) / self.total[:, None]
            self.change = self.change - shift

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
        size = torch.maximum(self.x.abs().amax(), self.log_u.abs().amax())
        if bool(size <= self._reach):
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
            phi = torch.where(self.live_rows, phi, self._exact_rows(psi))
        return phi * self.epsilon[:, None], psi * self.epsilon[:, None]

    def take(self, problems: Tensor) -> "_Scaling":
        """Some problems, as a smaller batch."""
        new = object.__new__(_Scaling)
        new.problem, new.epsilon = self.problem.take(problems), self.epsilon[problems]
        new.relaxation = None if self.relaxation is None else self.relaxation[problems]
        for name in _CARRIED:
            setattr(new, name, getattr(self, name)[problems])
        new._reach = self._reach
        new._build()
        return new


def _ratio(
    log_wanted: Tensor, sums: Tensor, log_scale: Tensor, live: Bool[Tensor, "B n"]
) -> Tensor:
    """Logarithm of wanted over sums; one where there is no live mass to scale.

    A live sum of zero is an underflow: the ratio is infinite, and is seen.
    """
    return torch.where(live, log_wanted - log_scale - sums.log(), 0.0)


def _iterated(state: _Scaling, settings: Settings, count: Int[Tensor, "B"]) -> Solution:
    """Sweep until each problem is within tolerance or has spent its sweeps."""
    here = torch.arange(len(count), device=count.device)
    f, g = torch.zeros_like(state.problem.a), torch.zeros_like(state.problem.b)
    error = torch.full_like(state.epsilon, torch.inf)
    walk = _Walk(state, settings.accelerate)
    while True:
        state.sweep()
        count[here] += 1
        out_of_sweeps = count[here] >= settings.max_iterations
        done = (state.error <= settings.tolerance) | out_of_sweeps
        if bool(done.any()):
            ended = done & (error[here] > settings.tolerance)
            where = here[ended]
            rows, columns = state.settle()
            f[where], g[where], error[where] = rows[ended], columns[ended], state.error[ended]
            going = (error[here] > settings.tolerance) & ~out_of_sweeps
            left = int(going.sum())
            if left == 0:
                break
            if left <= len(here) // 2:
                keep = going.nonzero()[:, 0]
                here, state, walk = here[keep], state.take(keep), walk.take(keep)
        walk.advance(state)
    return Solution(f=f, g=g, error=error, iterations=count, converged=error <= settings.tolerance)


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
        self._rest = torch.full_like(state.epsilon, _SETTLE)
        self._slack = torch.zeros_like(state.epsilon)

    def take(self, problems: Tensor) -> "_Walk":
        """Some problems, as a smaller batch."""
        new = object.__new__(_Walk)
        new._memory = None if self._memory is None else self._memory.take(problems)
        last = self._last
        new._last = None if last is None else (last[0][problems], last[1][problems])
        for name in ("_plain", "_rest", "_slack"):
            setattr(new, name, getattr(self, name)[problems])
        return new

    def advance(self, state: _Scaling) -> None:
        """Move every problem to its next iterate."""
        plain = state.x + state.change
        if self._memory is None:
            state.x = plain
            state.hold()
            return
        bad = self._fallen(state)
        log_u, x = state.log_u, state.x
        if self._last is not None:
            log_u = torch.where(bad[:, None], self._last[0], log_u)
            x = torch.where(bad[:, None], self._last[1], x)
        mixed = self._memory.step(state.x, state.change)
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
        unit = _ROUNDING * torch.finfo(state.x.dtype).eps * state.total
        slack, self._slack = 1 + self._slack, torch.zeros_like(self._slack)
        return lost | ~(gain >= -unit * slack)
