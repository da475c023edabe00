r"""A Triton kernel: two sweeps over a state and the one before it, one program per row.

*Sweep A* finds what the other needs: the two largest logits and the place of the first, the tail
sum E₁, mean and centred square of z and of Δz, the extremes of Δz, and ⟨p, Δz⟩ with p the law
before the step. *Sweep B* sums what needs both normalisers: TV, KL, first order, and E_w, E₂, E₃ of
the new state. Each reads both states once; a row leaves 18 numbers (`ROWS`), which are the start of
its next step. Sweep B runs from the end of the row to its start: what sweep A read last is still in
the cache.

The exponentials of sweep A refer to the largest logit of the first block of the row, so that the
loop waits for no maximum of all lanes; every lane holds its own largest logit back, because the
tail sum leaves out the largest of all. A row that rises by more than 60 above its first block is
summed again around its maximum. (A reference from the layer before would depend on the step, and a
step that stands still would not be exactly zero.) Moments refer to the mean of the first block, so
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

__all__ = ["INSTALLED", "INTERPRETED", "ROWS", "both_sweeps"]

INSTALLED = triton is not None
"""Whether Triton is there."""

ROWS = (
    "value", "place", "runner_up", "mass", "mean", "state_sq", "oscillation", "step_sq", "shift",
    "constant", "divergence", "spread", "total", "distance", "rising", "work", "square", "cube",
)  # fmt: skip
"""What the sweeps leave of each row, in the order in which it is stored."""


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


def _jit_once(function: Any) -> Any:
    """Compile a kernel once for every layout of the sums that it reads and writes."""
    sums = ["start", "end", "donors"]
    strides = ["start_stride", "end_stride", "donor_stride"]
    if triton is None:
        return function
    return triton.jit(do_not_specialize=strides, do_not_specialize_on_alignment=sums)(function)


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
def _exp(x, FAST: tl.constexpr):
    """Exponential; the fast one flushes what is smaller than any normal float32 to zero."""
    if FAST:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r, r", [x * 1.4426950408889634],
            dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    return tl.exp(x)


@_jit
def _states(x, y, j, V, REST: tl.constexpr, MOVES: tl.constexpr, LENT: tl.constexpr):
    """A block of the state after, before, and of the step; −∞, 0 and −∞ beyond the end of a row."""
    if REST:
        z = tl.load(y + j, mask=j < V, other=float("-inf")).to(tl.float32)
    else:
        z = tl.load(y + j).to(tl.float32)
    before = tl.zeros_like(z)
    if MOVES:
        if REST:
            before = tl.load(x + j, mask=j < V, other=0.0).to(tl.float32)
        else:
            before = tl.load(x + j).to(tl.float32)
    step = z
    if LENT:
        z += before
    else:
        step = z - before
    return z, before, step


@_jit
def _change(r, p, q):
    """Gap q − p and the part of KL(q ‖ p) of outcomes whose log-ratio log(q / p) is r.

    With φ(r) = e^{−r} − 1 + r they are q (r − φ) and q φ, without cancellation where r is small.
    """
    near = tl.abs(r) < 0.25
    series = 1.388888888888889e-03 - r * 1.984126984126984e-04
    series = 8.333333333333333e-03 - r * series
    series = 4.1666666666666664e-02 - r * series
    series = 1.6666666666666666e-01 - r * series
    phi = r * r * (0.5 - r * series)
    gap = tl.where(near, q * (r - phi), q - p)
    return gap, tl.where(near, q * phi, q * r - gap)


@_jit
def _tail(x, y, V, reference, place, BLOCK: tl.constexpr, LENT: tl.constexpr):
    """Sum of the exponentials of a row around a reference, but for the largest one."""
    lane = tl.arange(0, BLOCK)
    tail = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, V, BLOCK):
        j = begin + lane
        z, _, _ = _states(x, y, j, V, True, LENT, LENT)
        tail += tl.where(j == place, 0.0, tl.exp(z - reference))
    return tl.sum(tail, 0)


@_jit
def _first_sweep(
    x, y, x_top, risen, V,
    BLOCK: tl.constexpr, MOVES: tl.constexpr, LENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Sweep A of one row; ``x`` is read where the row moves only."""
    lane = tl.arange(0, BLOCK)
    inside = tl.minimum(V, BLOCK).to(tl.float32)
    z, before, step = _states(x, y, lane, V, True, MOVES, LENT)
    reference = tl.max(z, 0)
    z, step = tl.where(lane < V, z, 0.0), tl.where(lane < V, step, 0.0)
    centre, drift = tl.sum(z, 0) / inside, tl.sum(step, 0) / inside

    zero = tl.zeros([BLOCK], tl.float32)
    below = tl.full([BLOCK], float("-inf"), tl.float32)
    first, second, highest, lowest = below, below, below, -below
    tail, z_sum, z_square, u_sum, u_square, u_along = zero, zero, zero, zero, zero, zero
    where = tl.zeros([BLOCK], tl.int32)
    whole = V // BLOCK * BLOCK
    for rest in tl.static_range(2):  # whole blocks, which need no mask, and what is left
        for begin in range(whole if rest else 0, V if rest else whole, BLOCK):
            j = begin + lane
            z, before, step = _states(x, y, j, V, rest == 1, MOVES, LENT)
            lesser = tl.minimum(first, z)  # each lane holds its largest back from its sum
            tail += _exp(lesser - reference, FAST)
            second = tl.maximum(second, lesser)
            where = tl.where(z > first, j, where)
            first = tl.maximum(first, z)
            away = z - centre
            if rest:
                away = tl.where(j < V, away, 0.0)
            z_sum += away
            z_square += away * away
            if MOVES:
                low, off = step, step - drift
                along = _exp(before - x_top, FAST) * (step - risen)
                if rest:
                    low = tl.where(j < V, low, float("inf"))
                    off, along = tl.where(j < V, off, 0.0), tl.where(j < V, along, 0.0)
                highest, lowest = tl.maximum(highest, step), tl.minimum(lowest, low)
                u_sum += off
                u_square += off * off
                u_along += along

    top = tl.max(first, 0)
    place = tl.min(tl.where(first == top, where, V), 0)
    own = where == place
    mass = tl.sum(tail, 0) + tl.sum(tl.where(own, 0.0, tl.exp(first - reference)), 0)
    mass = mass * tl.exp(reference - top)
    if top - reference > 60.0:  # the sum may have left the range of float32
        mass = _tail(x, y, V, top, place, BLOCK, LENT)
    runner_up = tl.max(tl.where(own, second, first), 0) - top
    size = V.to(tl.float64)
    mean, state_sq = centre + tl.sum(z_sum, 0) / V, _centred(z_sum, z_square, size)
    oscillation = tl.max(highest, 0) - tl.min(lowest, 0)
    step_sq, along_sum = _centred(u_sum, u_square, size), tl.sum(u_along, 0)
    return top, place, runner_up, mass, mean, state_sq, oscillation, step_sq, along_sum


@_jit
def _second_sweep(
    x, y, end, end_stride, top, place, mass, x_top, x_mass, risen, shift, constant, V,
    BLOCK: tl.constexpr, MOVES: tl.constexpr, LENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Sweep B of one row, from its end to its start: what was read last is read first."""
    lane = tl.arange(0, BLOCK)
    q_peak, p_peak = 1.0 / (1.0 + mass), 1.0 / (1.0 + x_mass)
    work = tl.zeros([BLOCK], tl.float32)
    square, cube = tl.zeros_like(work), tl.zeros_like(work)
    divergence, spread = tl.zeros_like(work), tl.zeros_like(work)
    total, distance, rising = tl.zeros_like(work), tl.zeros_like(work), tl.zeros_like(work)
    whole = V // BLOCK * BLOCK
    for back in tl.static_range(2):  # what is left beside whole blocks, and these
        for begin in range(0, whole if back else V - whole, BLOCK):
            j = (whole - BLOCK - begin if back else whole) + lane
            z, before, step = _states(x, y, j, V, back == 0, MOVES, LENT)
            w = z - top
            e = _exp(w, FAST)
            in_tail = tl.where(j == place, 0.0, e)
            lifted = in_tail * 1125899906842624.0  # 2^50: squares of a small tail must not vanish
            squared = lifted * lifted
            worked = in_tail * w
            if not back:
                worked = tl.where(j < V, worked, 0.0)
            work += worked
            square += squared
            cube += squared * in_tail
            if MOVES:
                u = step - risen
                p = _exp(before - x_top, FAST) * p_peak
                if not back:
                    u, p = tl.where(j < V, u, 0.0), tl.where(j < V, p, 0.0)
                q = e * q_peak
                gap, excess = _change(u - constant, p, q)
                divergence += excess
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


@_jit_once
def both_sweeps(
    x, y, start, end, donors, V, x_stride, y_stride, start_stride, end_stride, donor_stride,
    BLOCK: tl.constexpr, MOVES: tl.constexpr, LENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Both sweeps of one row; ``x`` and ``start`` are read where the row moves only.

    ``y`` holds states, or, where steps are lent, steps: each row is given that of its donor.
    """
    row = tl.program_id(0).to(tl.int64)
    other = row
    if LENT:
        other = tl.load(donors + row * donor_stride).to(tl.int64)
    x, y, start, end = x + row * x_stride, y + other * y_stride, start + row, end + row
    zero = tl.full([], 0.0, tl.float32)
    x_top, x_mass, risen, landed, shift, constant = zero, zero, zero, zero, zero, zero
    if MOVES:
        x_top, x_mass = tl.load(start), tl.load(start + 3 * start_stride)
        landed = tl.load(y + tl.load(start + start_stride).to(tl.int64)).to(tl.float32)
        risen = landed - x_top
        if LENT:
            risen = landed
            landed = x_top + risen
    top, place, runner_up, mass, mean, state_sq, oscillation, step_sq, along = _first_sweep(
        x, y, x_top, risen, V, BLOCK, MOVES, LENT, FAST
    )
    if MOVES:
        moved = along.to(tl.float64) / (1.0 + x_mass.to(tl.float64))
        shift = moved.to(tl.float32)
        gained = _log1p(mass.to(tl.float64)) - _log1p(x_mass.to(tl.float64))
        constant = ((top - landed).to(tl.float64) + gained).to(tl.float32)
        # The same mass, summed in another kernel, may differ in its last digit.
        constant = tl.where(oscillation == 0.0, 0.0, constant)
        tl.store(end + 6 * end_stride, oscillation)
        tl.store(end + 7 * end_stride, step_sq)
        tl.store(end + 8 * end_stride, shift)
        tl.store(end + 9 * end_stride, constant)
    tl.store(end, top)
    tl.store(end + end_stride, place.to(tl.float32))
    tl.store(end + 2 * end_stride, runner_up)
    tl.store(end + 3 * end_stride, mass)
    tl.store(end + 4 * end_stride, mean)
    tl.store(end + 5 * end_stride, state_sq)
    _second_sweep(
        x, y, end, end_stride, top, place, mass, x_top, x_mass, risen, shift, constant, V,
        BLOCK, MOVES, LENT, FAST,
    )  # fmt: skip


INTERPRETED = type(both_sweeps).__name__ == "InterpretedFunction"
"""Whether kernels run in Python, on any device, as they do under ``TRITON_INTERPRET=1``."""
