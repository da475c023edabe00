r"""The statistics of a block of rows by three compiled loops.

The same sums as :mod:`flowscope.flows.eager`, each loop reading the two states once: the first
finds the extremes and means, the second the sums around them, the third what needs both
normalisers. What a loop needs of the one before is one number per row, so nothing of the size of a
state is stored between them. Outcomes are told apart by value (w < 0) and not by place, which keeps
the loops free of index arithmetic; equal maxima are counted and put back.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.flows.eager import balanced_variation, step_terms, variation_sums
from flowscope.flows.steps import StepStatistics
from flowscope.flows.sums import Peak, StateSums, lift, peak_place

__all__ = ["FusedPasses"]

Loop: TypeAlias = Callable[..., tuple[Tensor, ...]]
Options: TypeAlias = dict[str, str | int | bool | Callable[..., object]]


def _extremes(x: Tensor, y: Tensor, wide: torch.dtype) -> tuple[Tensor, ...]:
    x, y = x.to(wide), y.to(wide)
    step = y - x
    return y.mean(-1), step.amax(-1), step.amin(-1), step.mean(-1)


def _moments(x: Tensor, y: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
    top, mean, step_mean, step_peak, x_top, p_peak = numbers[..., None]
    x, y = x.to(numbers.dtype), y.to(numbers.dtype)
    w, step = y - top, y - x
    off = w < 0
    e = torch.where(off, torch.exp(w), 0.0)
    squares = (lift(numbers.dtype) * e).square()
    p = torch.exp(x - x_top) * p_peak
    return (
        (y - mean).square().sum(-1),
        torch.where(off, w, -torch.inf).amax(-1),
        torch.where(off, 0.0, 1.0).sum(-1),
        e.sum(-1),
        (e * w).sum(-1),
        squares.sum(-1),
        (squares * e).sum(-1),
        (step - step_mean).square().sum(-1),
        (p * (step - step_peak)).sum(-1),
    )


def _differences(x: Tensor, y: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
    top, q_peak, step_peak, x_top, p_peak, mean, c = numbers[..., None]
    x, y = x.to(numbers.dtype), y.to(numbers.dtype)
    p, q, u = torch.exp(x - x_top) * p_peak, torch.exp(y - top) * q_peak, y - x - step_peak
    divergence, gap = step_terms(q, p, u - c)
    return divergence.sum(-1), (p * (u - mean).abs()).sum(-1), *variation_sums(gap, p)


class FusedPasses:
    """Sums and steps of blocks of rows; compiled, and run once, on construction.

    Compiled they take two rows at least and raise whatever the compiler raises. Plain they are the
    eager way of an accelerator: more memory than :class:`flowscope.flows.eager.EagerPasses`, and
    never a wait for what was computed.
    """

    def __init__(
        self,
        vocabulary: int,
        dtype: torch.dtype,
        wide: torch.dtype,
        device: torch.device,
        *,
        compiled: bool = True,
    ):
        self._wide, self._dynamic = wide, compiled
        if not compiled:
            self._extremes: Loop = _extremes
            self._moments: Loop = _moments
            self._differences: Loop = _differences
            return
        # A whole graph or an error: past the limit of recompilations a loop would run unfused.
        # On CPU a wrapper in C++ lets go of the interpreter, so that blocks can run side by side.
        how: Options = {"cpp_wrapper": True} if device.type == "cpu" else {}
        self._extremes = torch.compile(_extremes, fullgraph=True, options=how)
        self._moments = torch.compile(_moments, fullgraph=True, options=how)
        self._differences = torch.compile(_differences, fullgraph=True, options=how)
        sample = torch.zeros(4, vocabulary, dtype=dtype, device=device)
        number = torch.zeros(4, dtype=torch.float64, device=device)
        self.step(sample, sample.clone(), Peak(number, number.long(), number))

    def state(self, y: Float[Tensor, "rows V"]) -> StateSums:
        """Sums of a block of states, by the loops of a step that stands still."""
        zero = torch.zeros(len(y), dtype=torch.float64, device=y.device)
        return self._step(y.view_as(y), y, Peak(zero, zero.long(), zero))[0]

    def step(
        self, x: Float[Tensor, "rows V"], y: Float[Tensor, "rows V"], start: Peak
    ) -> tuple[StateSums, StepStatistics]:
        """Sums of the states y, and statistics of the steps x → y."""
        end, step_sq, oscillation, of_both = self._step(x, y, start)
        divergence, spread, *gaps = self._run(self._differences, x, y, of_both)
        return end, StepStatistics(
            step_sq=step_sq,
            oscillation=oscillation,
            total_variation=balanced_variation(*gaps),
            kl_divergence=divergence,
            first_order=spread / 2,
        )

    def _step(
        self, x: Tensor, y: Tensor, start: Peak
    ) -> tuple[StateSums, Tensor, Tensor, list[Tensor]]:
        """What the first two loops give, and the numbers of each row that the third needs."""
        if self._dynamic:
            for rows in (x, y):
                torch._dynamo.mark_dynamic(rows, 0)
        mean, highest, lowest, step_mean = torch.stack(self._extremes(x, y, self._wide)).double()
        place = peak_place(y)
        places = torch.cat([place, start.place[:, None]], -1)
        (top, y_at), (_, x_at) = (z.gather(-1, places).double().unbind(-1) for z in (y, x))
        of_start = [y_at - x_at, start.value, 1 / (1 + start.mass)]
        *sums, step_sq, shift = self._run(self._moments, x, y, [top, mean, step_mean, *of_start])
        end = _state_sums(top, place[:, 0], mean, sums, lift(self._wide))
        c = top - y_at + torch.log1p(end.mass) - torch.log1p(start.mass)
        of_both = [top, 1 / (1 + end.mass), *of_start, shift, c]
        return end, step_sq, highest - lowest, of_both

    def _run(self, loop: Loop, x: Tensor, y: Tensor, numbers: list[Tensor]) -> list[Tensor]:
        stacked = torch.stack(numbers).to(self._wide)
        if self._dynamic:
            torch._dynamo.mark_dynamic(stacked, 1)
        return list(torch.stack(loop(x, y, stacked)).double())


def _state_sums(
    top: Float64[Tensor, " rows"],
    place: Int64[Tensor, " rows"],
    mean: Float64[Tensor, " rows"],
    sums: list[Tensor],
    lifted: float,
) -> StateSums:
    state_sq, below, maxima, mass, work, square, cube = sums
    others = maxima - 1  # each other maximum is an outcome of the tail with w = 0 and e = 1
    return StateSums(
        value=top,
        place=place,
        mean=mean,
        state_sq=state_sq,
        runner_up=below.where(others == 0, 0.0),
        mass=mass + others,
        work=work,
        square=square / lifted / lifted + others,
        cube=cube / lifted / lifted + others,
    )
