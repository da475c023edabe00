r"""Triton kernels: the two sweeps over a state and the one before it, one program per row.

*Sweep A* finds what the other needs: the two largest logits and the place of the first, the tail
sum E₁, mean and centred square of z and of Δz, the extremes of Δz, and ⟨p, Δz⟩ with p the law
before the step. *Sweep B* sums what needs both normalisers: TV, KL, first order, and E_w, E₂, E₃ of
the new state. Each reads both states once; a row leaves 18 numbers (`ROWS`), which are the start of
its next step.

The exponentials of sweep A refer to the largest logit so far, and what was summed is scaled when a
larger one comes: a reference from the layer before would leave the range of float32 where a state
jumps by more than 88, as early layers do. Moments refer to the mean of the row's first block, so
that little cancels when the mean is taken out.

Without Triton the module can be imported and its kernels cannot run.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch comes without it
    triton = tl = None

__all__ = ["INSTALLED", "INTERPRETED", "ROWS", "first_sweep", "second_sweep"]

INSTALLED = triton is not None
"""Whether Triton is there."""

ROWS = (
    "value", "place", "runner_up", "mass", "mean", "state_sq", "oscillation", "step_sq", "shift",
    "constant", "divergence", "spread", "total", "distance", "rising", "work", "square", "cube",
)  # fmt: skip
"""What the sweeps leave of each row, in the order in which it is stored."""


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


@_jit
def _log1p(mass):
    """log(1 + m) in float64, also of masses that vanish beside one."""
    series = mass * (1.0 - mass * (0.5 - mass * (1.0 / 3.0 - mass * 0.25)))
    return tl.where(mass < 1e-3, series, tl.log(1.0 + mass))


@_jit
def _centred(total, square, size):
    """Squared deviations from the mean of what was summed in lanes."""
    mean = tl.sum(total, 0).to(tl.float64) / size
    return (tl.sum(square, 0).to(tl.float64) - size * mean * mean).to(tl.float32)


@_jit
def first_sweep(
    x, y, start, end, V, x_stride, y_stride, start_stride, end_stride,
    BLOCK: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    """Sweep A of one row; ``x`` and ``start`` are read where the row moves only."""
    row = tl.program_id(0).to(tl.int64)
    x, y, start, end = x + row * x_stride, y + row * y_stride, start + row, end + row
    lane = tl.arange(0, BLOCK)
    inside = tl.minimum(V, BLOCK).to(tl.float32)
    z = tl.load(y + lane, mask=lane < V, other=0.0).to(tl.float32)
    centre = tl.sum(z, 0) / inside
    if MOVES:
        before = tl.load(x + lane, mask=lane < V, other=0.0).to(tl.float32)
        drift = tl.sum(z - before, 0) / inside
        x_top = tl.load(start)
        landed = tl.load(y + tl.load(start + start_stride).to(tl.int64)).to(tl.float32)
        x_mass = tl.load(start + 3 * start_stride).to(tl.float64)
        risen = landed - x_top

    zero, below = tl.zeros_like(z), tl.full([BLOCK], float("-inf"), tl.float32)
    first, second, highest, lowest = below, below, below, -below
    tail, z_sum, z_square, u_sum, u_square, u_along = zero, zero, zero, zero, zero, zero
    top, demoted = tl.full([], float("-inf"), tl.float32), tl.full([], 0.0, tl.float32)
    place = tl.full([], 0, tl.int32)
    for begin in range(0, V, BLOCK):
        j = begin + lane
        here = j < V
        z = tl.load(y + j, mask=here, other=float("-inf")).to(tl.float32)
        second = tl.maximum(second, tl.minimum(first, z))
        first = tl.maximum(first, z)
        new_top = tl.max(first, 0)
        if new_top > top:  # a handful of blocks per row
            scale = tl.exp(top - new_top)
            demoted, tail = (demoted + 1.0) * scale, tail * scale
            place = tl.min(tl.where(z == new_top, j, V), 0)
            top = new_top
        tail += tl.where(j == place, 0.0, tl.exp(z - top))
        away = tl.where(here, z - centre, 0.0)
        z_sum += away
        z_square += away * away
        if MOVES:
            before = tl.load(x + j, mask=here, other=0.0).to(tl.float32)
            step = z - before
            highest = tl.maximum(highest, step)
            lowest = tl.minimum(lowest, tl.where(here, step, float("inf")))
            off = tl.where(here, step - drift, 0.0)
            u_sum += off
            u_square += off * off
            u_along += tl.where(here, tl.exp(before - x_top) * (step - risen), 0.0)

    mass = tl.sum(tail, 0) + demoted
    tl.store(end, top)
    tl.store(end + end_stride, place.to(tl.float32))
    tl.store(end + 2 * end_stride, tl.max(tl.where(lane == place % BLOCK, second, first), 0) - top)
    tl.store(end + 3 * end_stride, mass)
    tl.store(end + 4 * end_stride, centre + tl.sum(z_sum, 0) / V)
    tl.store(end + 5 * end_stride, _centred(z_sum, z_square, V.to(tl.float64)))
    if MOVES:
        tl.store(end + 6 * end_stride, tl.max(highest, 0) - tl.min(lowest, 0))
        tl.store(end + 7 * end_stride, _centred(u_sum, u_square, V.to(tl.float64)))
        along = tl.sum(u_along, 0).to(tl.float64) / (1.0 + x_mass)
        tl.store(end + 8 * end_stride, along.to(tl.float32))
        constant = (top - landed).to(tl.float64) + _log1p(mass.to(tl.float64)) - _log1p(x_mass)
        tl.store(end + 9 * end_stride, constant.to(tl.float32))


@_jit
def second_sweep(
    x, y, start, end, V, x_stride, y_stride, start_stride, end_stride,
    BLOCK: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    """Sweep B of one row, after sweep A has left its numbers in ``end``."""
    row = tl.program_id(0).to(tl.int64)
    x, y, start, end = x + row * x_stride, y + row * y_stride, start + row, end + row
    lane = tl.arange(0, BLOCK)
    top, place = tl.load(end), tl.load(end + end_stride).to(tl.int32)
    q_peak = 1.0 / (1.0 + tl.load(end + 3 * end_stride))
    if MOVES:
        shift, constant = tl.load(end + 8 * end_stride), tl.load(end + 9 * end_stride)
        x_top = tl.load(start)
        at = tl.load(start + start_stride).to(tl.int64)
        p_peak = 1.0 / (1.0 + tl.load(start + 3 * start_stride))
        risen = tl.load(y + at).to(tl.float32) - x_top

    work = tl.zeros([BLOCK], tl.float32)
    square, cube = tl.zeros_like(work), tl.zeros_like(work)
    divergence, spread = tl.zeros_like(work), tl.zeros_like(work)
    total, distance, rising = tl.zeros_like(work), tl.zeros_like(work), tl.zeros_like(work)
    for begin in range(0, V, BLOCK):
        j = begin + lane
        here = j < V
        z = tl.load(y + j, mask=here, other=0.0).to(tl.float32)
        w = z - top
        e = tl.where(here, tl.exp(w), 0.0)
        in_tail = tl.where(j == place, 0.0, e)
        lifted = in_tail * 1125899906842624.0  # 2^50: squares of a small tail must not vanish
        squared = lifted * lifted
        work += in_tail * w
        square += squared
        cube += squared * in_tail
        if MOVES:
            before = tl.load(x + j, mask=here, other=0.0).to(tl.float32)
            u = (z - before) - risen
            p = tl.where(here, tl.exp(before - x_top) * p_peak, 0.0)
            q = e * q_peak
            r = u - constant
            near = tl.abs(r) < 0.5
            series = 2.4801587301587302e-05 - r * 2.7557319223985893e-06
            series = 1.984126984126984e-04 - r * series
            series = 1.388888888888889e-03 - r * series
            series = 8.333333333333333e-03 - r * series
            series = 4.1666666666666664e-02 - r * series
            series = 1.6666666666666666e-01 - r * series
            phi = r * r * (0.5 - r * series)
            gap = tl.where(near, q * (r - phi), q - p)
            divergence += tl.where(near, q * phi, q * r - gap)
            spread += p * tl.abs(u - shift)
            total += gap
            distance += tl.abs(gap)
            rising += tl.where(gap > 0, p, 0.0)

    tl.store(end + 15 * end_stride, tl.sum(work, 0))
    tl.store(end + 16 * end_stride, tl.sum(square, 0))
    tl.store(end + 17 * end_stride, tl.sum(cube, 0))
    if MOVES:
        tl.store(end + 10 * end_stride, tl.sum(divergence, 0))
        tl.store(end + 11 * end_stride, tl.sum(spread, 0))
        tl.store(end + 12 * end_stride, tl.sum(total, 0))
        tl.store(end + 13 * end_stride, tl.sum(distance, 0))
        tl.store(end + 14 * end_stride, tl.sum(rising, 0))


INTERPRETED = type(first_sweep).__name__ == "InterpretedFunction"
"""Whether kernels run in Python, on any device, as they do under ``TRITON_INTERPRET=1``."""
