r"""Dormand and Prince's method for many states at once, with one wait for the device per step.

.. math:: x' = x + h \sum_{i} b_i k_i, \qquad
          e = h \sum_i (b_i - \hat b_i) k_i, \qquad k_i = v\Big(t + c_i h,\; x + h \sum_{j<i} a_{ij}
          k_j\Big)

The steps are those of :func:`flowscope.flows.sampling.ode_path` with "dopri5": the same tableau,
first step, control and interpolation (torchdiffeq's), and the largest error decides. What differs
is the work around the velocity: the slopes k lie in one tensor, so that a stage is one product, the
clock is a number of the host, and of a step the host is told two numbers. There are no gradients.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.fields import Field, as_clock, as_start, check_count, field_at
from flowscope.flows.sampling.ode import BLOWN_UP, OdePath, Status, Stop
from flowscope.flows.sampling.trial import RecordedTrial
from flowscope.simplex.probability import ArrayLike

__all__ = ["smooth_path"]

_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (
    35 / 384 - 1951 / 21600, 0.0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720,
    -2187 / 6784 + 12231 / 42400, 11 / 84 - 649 / 6300, -1 / 60,
)  # fmt: skip
_MIDDLE = (
    6025192743 / 30085553152 / 2, 0.0, 51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2, 187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2, 11237099 / 235043384 / 2,
)  # fmt: skip
_SAFETY, _LEAST, _MOST, _ORDER = 0.9, 0.2, 10.0, 5
# Error of a trial step that met something not finite: too large to accept, small enough to compute.
_REJECTED = 1e30


@torch.no_grad()
def smooth_path(
    velocity: Field,
    x0: Float[Tensor, "..."] | ArrayLike,
    times: Float[Tensor, " T"] | ArrayLike,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    max_steps: int = 2000,
    recorded: bool = False,
) -> OdePath:
    r"""Path of a smooth velocity from a starting point, without gradients.

    .. math:: x(t) = x_0 + \int_{t_0}^t v(s, x(s))\,ds

    Parameters
    ----------
    velocity : v(t, x), t a tensor without axes on the CPU, of the shape of x.
    x0 : x₀, any shape.
    times : t₀ and the times whose states are wanted; strictly increasing.
    rtol, atol : every entry's error per step is below atol + rtol |x|.
    max_steps : trial steps over the whole path after which it gives up.
    recorded : the velocity is tensor operations alone, the same at every call, and takes t on the
        device of x. On a GPU a trial step is then recorded as a CUDA graph and replayed, several
        times as fast; elsewhere this changes rounding alone.

    Raises
    ------
    InvalidInputError
        If x₀ or a time is not finite, the times are not increasing, a tolerance or count is not
        positive, or the velocity has another shape than x.

    Notes
    -----
    Memory nine states. Where it differs from "dopri5" is rounding alone. States after a stop are
    NaN; those before it are kept.

    Examples
    --------
    >>> path = smooth_path(lambda t, x: -x, torch.tensor([1.0, 2.0]), [0.0, 1.0])
    >>> path.states[-1], path.status
    (tensor([0.3679, 0.7358]), 'ok')
    """
    x = as_start(x0)
    clock = as_clock(times, torch.device("cpu"))
    check_count(max_steps, "max_steps")
    if not (rtol > 0 and atol > 0):
        raise InvalidInputError(f"rtol and atol must be > 0; found {rtol:.3g} and {atol:.3g}.")
    walk = _Walk(velocity, x, rtol, atol, max_steps)
    if recorded:
        walk.record()
    return walk.path(clock)


class _Stopped(NamedTuple):
    status: Stop
    because: str


class _Walk:
    """One integration on its way."""

    def __init__(
        self, velocity: Field, x: Tensor, rtol: float, atol: float, max_steps: int
    ) -> None:
        self._velocity, self._x = velocity, x
        self._rtol, self._atol, self._most = rtol, atol, max_steps
        self._slopes = torch.empty(len(_ERROR), *x.shape, dtype=x.dtype, device=x.device)
        self._flat = self._slopes.flatten(1).mT if x.ndim else self._slopes[None]
        rows = (*_STAGES, _ERROR, _MIDDLE)
        self._weights = [torch.tensor(row, dtype=x.dtype).to(x.device) for row in rows]
        self._large = BLOWN_UP * (1 + float(x.abs().amax()))
        self._broken = False
        self._evaluations = self._steps = 0
        self._recorded: RecordedTrial | None = None

    def record(self) -> None:
        """Have trial steps done as one piece of work."""
        self._recorded = RecordedTrial(
            self._velocity, self._x, self._slopes, _STAGES, _ERROR,
            rtol=self._rtol, atol=self._atol,
        )  # fmt: skip
        self._x = self._recorded.x

    def path(self, clock: Tensor) -> OdePath:
        """States at the times of a clock."""
        times: list[float] = clock.tolist()
        x, t = self._x, times[0]
        states = torch.full((len(times), *x.shape), torch.nan, dtype=x.dtype, device=x.device)
        states[0] = x
        self._slopes[0] = self._at(t, x)
        step, wanted = self._first_step(t, x), 1
        stop: _Stopped | None = None
        finite = True
        while wanted < len(times):
            stop = self._stop(t, x, step, finite)
            if stop is not None:
                break
            new, ratio, finite_after = self._trial(t, x, step)
            if ratio <= 1:
                wanted = self._passed(times, wanted, states, (t, t + step), (x, new), step)
                t, x, finite = t + step, self._accepted(new), finite_after
            step = step * _factor(ratio)
        reached = t if stop is not None else times[-1]
        return self._result(states, clock, stop, reached)

    def _result(
        self, states: Tensor, clock: Tensor, stop: _Stopped | None, reached: float
    ) -> OdePath:
        status: Status = "ok" if stop is None else stop.status
        because = None if stop is None else stop.because
        if stop is None and not bool(states.isfinite().all()):
            lost = int((~states.flatten(1).isfinite().all(1)).nonzero()[0])
            states[lost:] = torch.nan
            because = f"The state was not finite at t = {float(clock[lost]):.6g}."
            status, reached = "diverged", float(clock[lost - 1])
        return OdePath(
            states=states,
            times=clock.to(states.device),
            status=status,
            because=because,
            reached=reached,
            evaluations=self._evaluations,
            steps=self._steps,
        )

    def _at(self, t: float, x: Tensor) -> Tensor:
        self._evaluations += 1
        when = torch.tensor(t, dtype=x.dtype)
        if self._recorded is not None:
            when = when.to(x.device)
        return field_at(self._velocity, when, x, "velocity")

    def _combined(self, number: int, x: Tensor | None, step: float) -> Tensor:
        """Add a weighted sum of the slopes, times the step, to x."""
        weights = self._weights[number]
        slopes = self._flat[:, : len(weights)]
        if x is None:
            return torch.mv(slopes, weights * step).view(self._x.shape)
        return torch.addmv(x.reshape(-1), slopes, weights, alpha=step).view(self._x.shape)

    def _trial(self, t: float, x: Tensor, step: float) -> tuple[Tensor, float, bool]:
        """State after a trial step, its largest error by its tolerance, whether it is finite."""
        self._steps += 1
        # Just before the end of the step, in case the velocity jumps there.
        end = _before(t + step, x.dtype)
        times = [end if share == 1 else t + share * step for share in _TIMES]
        if self._recorded is not None:
            self._evaluations += len(times)
            new = self._recorded.new
            found, largest = self._recorded(times, step)
        else:
            new, found, largest = self._tried(times, x, step)
        self._broken = not math.isfinite(found)
        return new, _REJECTED if self._broken else found, math.isfinite(largest)

    def _tried(self, times: list[float], x: Tensor, step: float) -> tuple[Tensor, float, float]:
        """State after a trial step, its largest error by its tolerance, and its largest entry."""
        new = x
        for number, when in enumerate(times):
            new = self._combined(number, x, step)
            self._slopes[number + 1] = self._at(when, new)
        error = self._combined(len(_STAGES), None, step)
        size = torch.maximum(x.abs(), new.abs())
        ratio = (error / torch.add(self._atol, size, alpha=self._rtol)).abs().amax()
        found, largest = torch.stack([ratio, new.abs().amax()]).tolist()
        return new, found, largest

    def _accepted(self, new: Tensor) -> Tensor:
        """Go on from the new state."""
        if self._recorded is not None:
            return self._recorded.accept()
        self._slopes[0] = self._slopes[-1]
        return new

    def _passed(
        self,
        times: Sequence[float],
        wanted: int,
        states: Tensor,
        span: tuple[float, float],
        ends: tuple[Tensor, Tensor],
        step: float,
    ) -> int:
        """Write states at the times that a step has passed; return which time is wanted next."""
        if times[wanted] > span[1]:
            return wanted
        (x, y), middle = ends, self._combined(len(_STAGES) + 1, ends[0], step)
        f, g = self._slopes[0] * step, self._slopes[-1] * step
        a = 2 * (g - f) - 8 * (y + x) + 16 * middle
        b = 5 * f - 3 * g + 18 * x + 14 * y - 32 * middle
        c = g - 4 * f - 11 * x - 5 * y + 16 * middle
        while wanted < len(times) and times[wanted] <= span[1]:
            s = (times[wanted] - span[0]) / (span[1] - span[0])
            states[wanted] = x + s * (f + s * (c + s * (b + s * a)))
            wanted += 1
        return wanted

    def _first_step(self, t: float, x: Tensor) -> float:
        """The step that Hairer, Nørsett and Wanner propose (§II.4)."""
        scale = self._atol + x.abs() * self._rtol
        f = self._slopes[0]
        size, speed = self._norm(x / scale), self._norm(f / scale)
        short = 1e-6 if size < 1e-5 or speed < 1e-5 else 0.01 * size / speed
        change = self._norm((self._at(t + short, x + short * f) - f) / scale) / short
        if speed <= 1e-15 and change <= 1e-15:
            long = max(1e-6, short * 1e-3)
        else:
            long = (0.01 / max(speed, change)) ** (1 / _ORDER)
        return min(100 * short, long)

    def _norm(self, ratio: Tensor) -> float:
        found = float(ratio.abs().amax())
        self._broken = self._broken or not math.isfinite(found)
        return _REJECTED if self._broken else found

    def _stop(self, t: float, x: Tensor, step: float, finite: bool) -> _Stopped | None:
        """Why no further step can be tried; None where one can."""
        broken, self._broken = self._broken, False
        if not finite:
            return _Stopped("diverged", f"The state was not finite at t = {t:.6g}.")
        if t + step == t or not step > 0:
            if broken:
                return _Stopped("diverged", f"The velocity was not finite near t = {t:.6g}.")
            return self._given_up(x, f"The step became too small to move time at t = {t:.9g}.")
        if self._steps >= self._most:
            return self._given_up(x, f"{self._steps} trial steps were used up at t = {t:.6g}.")
        return None

    def _given_up(self, x: Tensor, because: str) -> _Stopped:
        size = float(x.abs().amax())
        if size > self._large:
            return _Stopped("diverged", f"{because} The state had grown to {size:.3g}.")
        return _Stopped("stiff", because)


def _factor(ratio: float) -> float:
    """By how much the next step is larger."""
    if ratio == 0:
        return _MOST
    least = 1.0 if ratio < 1 else _LEAST
    return min(_MOST, max(_SAFETY / math.pow(ratio, 1 / _ORDER), least))


def _before(t: float, dtype: torch.dtype) -> float:
    """The largest number of a dtype that is less than t."""
    exact = torch.tensor(t, dtype=dtype)
    return float(torch.nextafter(exact, exact - 1))
