r"""The statistics of a block of rows by plain tensor operations on four scratch buffers.

Every operation writes into a buffer that is already there, and a block is small enough for all of
them to stay in cache: an allocation per operation would cost more than the arithmetic. The step is
measured from the outcome that was the peak at its start, u = Δz − Δz_a, which makes each term of

.. math:: \mathrm{KL}(p' \| p) = \sum_j p'_j u_j - c, \qquad
          c = (\max z' - z'_a) + \log(1 + E_1') - \log(1 + E_1)

of the order of the tail mass. For a small step the two parts still cancel; such rows are summed
again in terms that cannot, see :func:`step_terms`.
"""

import math

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.flows.steps import StepStatistics
from flowscope.flows.sums import Peak, StateSums, lift, peak_place

__all__ = ["EagerPasses", "balanced_variation", "step_terms", "variation_sums"]

# A divergence below this many rounding units of its parts has lost more than four digits.
_CANCELLED = 2.0**17


def step_terms(
    q: Float[Tensor, "rows V"], p: Float[Tensor, "rows V"], r: Float[Tensor, "rows V"]
) -> tuple[Float[Tensor, "rows V"], Float[Tensor, "rows V"]]:
    r"""Terms of KL(q ‖ p) and q − p, outcome by outcome, r = log q/p being known apart from both.

    .. math:: q_j r_j - q_j + p_j = q_j \phi(r_j) \ge 0, \qquad q_j - p_j = q_j (r_j - \phi(r_j)),
              \qquad \phi(r) = r + e^{-r} - 1

    For |r| < ½, φ is its series r²/2 − r³/6 + …, so that nothing cancels, also at a peak near one;
    an error of r common to all outcomes then enters the divergence with the weight Σ(q − p) = 0.
    """
    order = 18 if r.dtype == torch.float64 else 10
    series = torch.full_like(r, 1 / math.factorial(order))
    for k in range(order - 1, 1, -1):
        series = 1 / math.factorial(k) - r * series
    phi, near = r * r * series, r.abs() < 0.5
    gap = torch.where(near, q * (r - phi), q - p)
    return torch.where(near, q * phi, q * r - gap), gap


def variation_sums(
    gap: Float[Tensor, "rows V"], p: Float[Tensor, "rows V"]
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """Σ(q − p), Σ|q − p|, and the mass that p has where q − p is positive."""
    return gap.sum(-1), gap.abs().sum(-1), torch.where(gap > 0, p, 0.0).sum(-1)


def balanced_variation(
    total: Float64[Tensor, " rows"],
    distance: Float64[Tensor, " rows"],
    rising: Float64[Tensor, " rows"],
) -> Float64[Tensor, " rows"]:
    r"""Total variation from gaps that share an error.

    .. math:: \mathrm{TV} = (1 - P_+)\,A + P_+ B, \qquad A = \sum (q_j - p_j)_+, \quad
              B = \sum (p_j - q_j)_+

    A and B are equal if Σ(q − p) = 0. An error η of log q/p common to all outcomes takes ηP₊ from A
    and adds η(1 − P₊) to B, P₊ being the mass of p where q is larger: this mean of both is free of
    it. Near a vertex it is the sum that the peak has no part in.
    """
    return (1 - rising) * (distance + total) / 2 + rising * (distance - total) / 2


class EagerPasses:
    """Sums and steps of blocks of at most so many rows."""

    def __init__(self, rows: int, vocabulary: int, dtype: torch.dtype, device: torch.device):
        self._scratch = torch.empty(4, rows, vocabulary, dtype=dtype, device=device)

    def state(self, y: Float[Tensor, "rows V"]) -> StateSums:
        """Sums of a block of states."""
        y, a, tail = y.to(self._scratch.dtype), *self._scratch[:2, : len(y)]
        place = peak_place(y)
        value = y.gather(-1, place)
        mean = y.mean(-1, keepdim=True)
        state_sq = _squared_norm(torch.sub(y, mean, out=a))
        w = torch.sub(y, value, out=a)
        runner_up = w.scatter_(-1, place, -torch.inf).amax(-1).double()
        w.scatter_(-1, place, 0.0)
        peak = _tail(y, place, tail)
        mass = tail.sum(-1).double() / peak
        work = torch.linalg.vecdot(tail, w).double() / peak
        lifted = torch.mul(tail, lift(y.dtype), out=a)
        squares = lifted.mul_(lifted)
        unit = (peak * lift(y.dtype)).square()
        return StateSums(
            value=value[:, 0].double(),
            place=place[:, 0],
            mean=mean[:, 0].double(),
            state_sq=state_sq,
            runner_up=runner_up,
            mass=mass,
            work=work,
            square=squares.sum(-1).double() / unit,
            cube=torch.linalg.vecdot(squares, tail).double() / unit / peak,
        )

    def step(
        self, x: Float[Tensor, "rows V"], y: Float[Tensor, "rows V"], start: Peak
    ) -> tuple[StateSums, StepStatistics]:
        """Sums of the states y, and statistics of the steps x → y."""
        dtype = self._scratch.dtype
        x, y, end = x.to(dtype), y.to(dtype), self.state(y)
        _, _, u, p = self._scratch[:, : len(y)]  # the second is the tail that `state` has left
        torch.sub(y, x, out=u)
        oscillation = u.amax(-1).double() - u.amin(-1).double()
        step_sq = _squared_norm(u.sub_(u.mean(-1, keepdim=True)))
        at = start.place[:, None]
        u.sub_(u.gather(-1, at))
        peak = _tail(x, at, p)
        divergence, c, small = self._divergence(y, start, end, peak)
        again = self._summed_again(small, start, end, peak, c) if len(small) else None
        first_order = self._first_order(peak)
        variation = self._total_variation(at, end)
        if again is not None:
            divergence[small], variation[small] = again
        return end, StepStatistics(
            step_sq=step_sq,
            oscillation=oscillation,
            total_variation=variation,
            kl_divergence=divergence,
            first_order=first_order,
        )

    def _divergence(
        self, y: Float[Tensor, "rows V"], start: Peak, end: StateSums, p_peak: Float64[Tensor, " b"]
    ) -> tuple[Float64[Tensor, " rows"], Float64[Tensor, " rows"], Int64[Tensor, " small"]]:
        """KL(p′ ‖ p), the constant c, and the rows in which they have cancelled."""
        _, q, u, _ = self._scratch[:, : len(y)]
        q_peak = 1 / (1 + end.mass)
        at_end = u.gather(-1, end.place[:, None])[:, 0].double()
        mean = torch.linalg.vecdot(q, u).double() + q_peak * at_end
        dropped = end.value - y.gather(-1, start.place[:, None])[:, 0].double()
        c = dropped + torch.log1p(end.mass) - torch.log1p(start.mass)
        parts = mean.abs() + end.mass * q_peak + start.mass * p_peak
        cancelled = mean - c < _CANCELLED * torch.finfo(u.dtype).eps * parts
        return mean - c, c, cancelled.nonzero()[:, 0]

    def _summed_again(
        self, small: Int64[Tensor, " small"], start: Peak, end: StateSums, *numbers: Tensor
    ) -> tuple[Float64[Tensor, " small"], Float64[Tensor, " small"]]:
        """Divergence and total variation of the small steps, from terms that cannot cancel."""
        p_peak, c = (number[small, None].to(self._scratch.dtype) for number in numbers)
        _, q, u, p = self._scratch[:, small]
        at, q_peak = start.place[small, None], 1 / (1 + end.mass[small, None])
        q.scatter_(-1, end.place[small, None], q_peak.to(q.dtype))
        divergence, gap = step_terms(q, p.scatter_(-1, at, p_peak), u - c)
        sums = (found.double() for found in variation_sums(gap, p))
        return divergence.sum(-1).double(), balanced_variation(*sums)

    def _first_order(self, p_peak: Float64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
        a, _, u, p = self._scratch[:, : len(p_peak)]
        mean = torch.linalg.vecdot(p, u)
        distance = torch.sub(u, mean[:, None], out=a).abs_()
        tail = torch.linalg.vecdot(p, distance).double()
        return torch.add(tail, p_peak * mean.double().abs()) / 2

    def _total_variation(
        self, at: Int64[Tensor, "rows 1"], end: StateSums
    ) -> Float64[Tensor, " rows"]:
        _, q, _, p = self._scratch[:, : len(at)]
        q_peak = (1 / (1 + end.mass))[:, None].to(q.dtype)
        q.scatter_(-1, end.place[:, None], q_peak).scatter_(-1, at, 0.0)
        gap = q.sub_(p)  # without the start's peak, whose difference is minus that of the others
        distance: Tensor = gap.sum(-1).double().abs() + gap.abs_().sum(-1).double()
        return distance / 2


def _squared_norm(x: Float[Tensor, "rows V"]) -> Float64[Tensor, " rows"]:
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm.double().square()


def _tail(
    z: Float[Tensor, "rows V"], place: Int64[Tensor, "rows 1"], out: Float[Tensor, "rows V"]
) -> Float64[Tensor, " rows"]:
    """Leave softmax(z) without its peak in `out`; return the peak."""
    torch.softmax(z, -1, out=out)
    peak = out.gather(-1, place)[:, 0].double()
    out.scatter_(-1, place, 0.0)
    return peak
