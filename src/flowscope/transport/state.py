r"""State of a batch of scalings at one ε, and one sweep of it.

See :mod:`flowscope.transport.scaling` for the iteration that it is part of.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.transport.geometry import Kernel
from flowscope.transport.problem import Problem

__all__ = ["Scaling"]

_NEAR = 3.0  # multiples of the reach up to which sums are still numbers
_CARRIED = (
    *("log_a", "log_b", "weight_a", "weight_b", "wanted_a", "wanted_b", "scale"),
    *("live_rows", "live_columns"),
    *("phi", "psi", "x", "log_u", "change", "error", "size"),
)


class Scaling:
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
        self.reach = 30.0 if g.dtype == torch.float32 else 200.0
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
        size = float(torch.maximum(self.x.abs().amax(), self.size.amax()))
        if size <= self.reach:
            return False
        if size <= _NEAR * self.reach:  # recentring is enough, and what was lost comes back
            self.absorb(self.phi + self.log_u, self.psi + self.x)
        else:
            self.renew()
        return True

    def column_potential(self) -> Float[Tensor, "B m"]:
        """Column potential g where the iteration stands; zero where it is not finite."""
        psi = self.psi + self.x
        return torch.where(psi.isfinite(), psi, 0.0) * self.epsilon[:, None]

    def restart(self, g: Float[Tensor, "B m"]) -> None:
        """Go on from another column potential."""
        self.normalise(g / self.epsilon[:, None])
        if not bool(self.x.abs().amax() <= self.reach):
            self.renew()

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

    def take(self, problems: Tensor) -> "Scaling":
        """Some problems, as a smaller batch."""
        new = object.__new__(Scaling)
        new.problem, new.epsilon = self.problem.take(problems), self.epsilon[problems]
        new.relaxation = None if self.relaxation is None else self.relaxation[problems]
        for name in _CARRIED:
            setattr(new, name, getattr(self, name)[problems])
        new.reach = self.reach
        new._build()
        return new
