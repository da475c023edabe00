r"""Paths of an ordinary differential equation, and what stopped them.

.. math:: \dot x = v(t, x), \qquad x(t_0) = x_0

Steps are torchdiffeq's. Three things are ours. The adaptive step is judged by the *largest* error
over all entries, where torchdiffeq takes the root mean square: among ten thousand easy samples a
hard one would have its error divided by a hundred. A trial step that meets a velocity that is not
finite is rejected and made smaller, where torchdiffeq gives up. And an integration that cannot go
on says so in its result, with the states it did reach.

One step size serves the whole batch: the hardest sample sets it, and a sample that cannot be
integrated stops all. Its neighbours are otherwise untouched. Integrate such a sample alone.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torchdiffeq import odeint

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.fields import (
    Field,
    as_clock,
    as_start,
    check_choice,
    check_count,
    field_at,
    refined,
)
from flowscope.simplex.probability import ArrayLike

__all__ = ["BLOWN_UP", "OdePath", "Status", "Stop", "ode_path"]

Stop: TypeAlias = Literal["stiff", "diverged"]
Status: TypeAlias = Literal["ok", "stiff", "diverged"]
Method: TypeAlias = Literal["dopri5", "euler", "midpoint", "heun", "rk4"]

_ADAPTIVE = "dopri5"
_FIXED = {"euler": "euler", "midpoint": "midpoint", "heun": "heun2", "rk4": "rk4"}
# Error of a trial step that met something not finite: too large to accept, small enough to compute.
_REJECTED = 1e30

BLOWN_UP = 1e6
"""A state this many times its start when the steps vanish has blown up, and is not merely stiff."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OdePath:
    """States at the asked times, and how the integration ended.

    ``status`` is "ok", "stiff" (the steps ran out or became too small to move time) or "diverged"
    (something was not finite, or grew past all measure); ``because`` is then a sentence. States
    after ``reached`` are NaN. ``steps`` counts trial steps, ``evaluations`` calls of the velocity.
    """

    states: Float[Tensor, "T ..."]
    times: Float64[Tensor, " T"]
    status: Status
    because: str | None
    reached: float
    evaluations: int
    steps: int


def ode_path(
    velocity: Field,
    x0: Float[Tensor, "..."] | ArrayLike,
    times: Float[Tensor, " T"] | ArrayLike,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    max_steps: int = 2000,
    method: Method = "dopri5",
    substeps: int = 1,
) -> OdePath:
    r"""Path of a velocity from a starting point.

    .. math:: x(t) = x_0 + \int_{t_0}^t v(s, x(s))\,ds

    Parameters
    ----------
    velocity : v(t, x), t a tensor without axes, of the shape of x.
    x0 : x₀, any shape.
    times : t₀ and the times whose states are wanted; strictly increasing or strictly decreasing.
    rtol, atol : of "dopri5"; every entry's error per step is below atol + rtol |x|.
    max_steps : trial steps over the whole path after which "dopri5" gives up.
    method : "dopri5", which adapts its step; or "euler", "midpoint", "heun" (explicit trapezoid),
        "rk4" (3/8 rule) with a fixed one.
    substeps : equal steps per interval of a fixed-step method.

    Raises
    ------
    InvalidInputError
        If x₀ or a time is not finite, the times are not ordered, a tolerance or count is not
        positive, the method is unknown, or the velocity has another shape than x.

    Notes
    -----
    Time is float64; the velocity sees it in the dtype of the state. Differentiable in x₀ and
    whatever the velocity holds. After a stop the path is integrated again up to the last time it
    had passed, which costs as much as the first try. A fixed-step method knows no stiffness: it
    can only diverge. Source 000 Thm. 6.2 (the deterministic flow).

    Examples
    --------
    >>> path = ode_path(lambda t, x: -x, torch.tensor([1.0, 2.0]), [0.0, 1.0])
    >>> path.states[-1], path.status
    (tensor([0.3679, 0.7358]), 'ok')
    """
    x = as_start(x0)
    t = as_clock(times, x.device, backwards=True)
    _check_options(method, rtol, atol, max_steps, substeps)
    how = _How(rtol, atol, max_steps, method, substeps)
    states, watched, stop = _integrated(velocity, x, t, how)
    if stop is None:
        status, because, reached = _overflow(states, t)
    else:
        status, because, reached = stop.status, stop.because, watched.reached
        passed = int(((t - reached) * watched.direction <= 0).sum())
        states = torch.full((len(t), *x.shape), torch.nan, dtype=x.dtype, device=x.device)
        states[0] = x
        if passed > 1:
            # torchdiffeq drops what it had passed. Its steps do not depend on the asked times, so
            # this second run takes the same ones and ends before the place of the stop.
            states[:passed] = _integrated(velocity, x, t[:passed], how)[0]
    return OdePath(
        states=states,
        times=t,
        status=status,
        because=because,
        reached=reached,
        evaluations=watched.evaluations,
        steps=watched.steps,
    )


def _check_options(method: str, rtol: float, atol: float, max_steps: int, substeps: int) -> None:
    check_choice(method, (_ADAPTIVE, *_FIXED), "method")
    check_count(max_steps, "max_steps")
    check_count(substeps, "substeps")
    if not (rtol > 0 and atol > 0):
        raise InvalidInputError(
            f"rtol and atol must be > 0; found {rtol:.3g} and {atol:.3g}. Without an absolute part "
            "a state that passes zero cannot be integrated."
        )
    if method == _ADAPTIVE and substeps != 1:
        raise InvalidInputError(
            f"substeps belong to a fixed-step method; found {substeps} with {method!r}, which "
            "chooses its steps from rtol and atol. Leave them out or name a fixed-step method."
        )


class _How(NamedTuple):
    rtol: float
    atol: float
    max_steps: int
    method: str
    substeps: int

    @property
    def adaptive(self) -> bool:
        return self.method == _ADAPTIVE


def _integrated(
    velocity: Field, x: Tensor, t: Tensor, how: _How
) -> "tuple[Tensor, _Watched, _StoppedError | None]":
    watched = _Watched(velocity, x, float(t.diff()[0].sign()), how)
    options: dict[str, object] = {"norm": watched.largest_error}
    if not how.adaptive:
        options = {"grid_constructor": lambda f, y, grid: refined(grid, how.substeps)}
    name = _FIXED.get(how.method, how.method)
    try:
        states = odeint(watched, x, t, rtol=how.rtol, atol=how.atol, method=name, options=options)
    except _StoppedError as stop:
        return x[None], watched, stop
    return states, watched, None


class _StoppedError(Exception):
    def __init__(self, status: Stop, because: str) -> None:
        super().__init__(because)
        self.status, self.because = status, because


class _Watched:
    """The velocity, counted; torchdiffeq calls `callback_step` before each trial step.

    Its own guards are assertions, which ``python -O`` removes; these are not.
    """

    def __init__(self, velocity: Field, x0: Tensor, direction: float, how: _How) -> None:
        self.velocity, self.direction, self.how = velocity, direction, how
        self.large = BLOWN_UP * (1 + float(x0.detach().abs().amax()))
        self.evaluations = self.steps = 0
        self.reached = float("nan")
        self.broken = False  # something in the current trial step was not finite

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        value = field_at(self.velocity, t, x, "velocity")
        self.evaluations += 1
        self.broken = self.broken or not bool(value.isfinite().all())
        return value

    def largest_error(self, ratio: Tensor) -> Tensor:
        found = ratio.abs().amax()
        self.broken = self.broken or not bool(found.isfinite())
        return torch.full_like(found, _REJECTED) if self.broken else found

    def callback_step(self, t: Tensor, x: Tensor, dt: Tensor) -> None:
        now, step = float(t.detach()), float(dt.detach())
        was_broken, self.broken, self.reached = self.broken, False, now
        if not bool(x.isfinite().all()):
            raise _StoppedError("diverged", f"The state was not finite at t = {now:.6g}.")
        if now + self.direction * step == now or not step > 0:
            if was_broken:
                raise _StoppedError("diverged", f"The velocity was not finite near t = {now:.6g}.")
            raise self._given_up(x, f"The step became too small to move time at t = {now:.9g}.")
        if self.how.adaptive and self.steps >= self.how.max_steps:
            raise self._given_up(x, f"{self.steps} trial steps were used up at t = {now:.6g}.")
        self.steps += 1

    def _given_up(self, x: Tensor, because: str) -> _StoppedError:
        size = float(x.detach().abs().amax())
        if size > self.large:
            return _StoppedError("diverged", f"{because} The state had grown to {size:.3g}.")
        return _StoppedError("stiff", because)


def _overflow(
    states: Tensor, t: Tensor
) -> tuple[Literal["ok", "stiff", "diverged"], str | None, float]:
    """What an integration that came to its end still shows: an infinite last state."""
    lost = ~states.detach().flatten(1).isfinite().all(1)
    if not bool(lost.any()):
        return "ok", None, float(t[-1])
    first = int(lost.nonzero()[0])
    states[first:] = torch.nan
    because = f"The state was not finite at t = {float(t[first]):.6g}."
    return "diverged", because, float(t[first - 1])
