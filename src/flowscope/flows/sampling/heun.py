r"""Heun's method with a fixed step for many states at once, as one piece of work per step.

.. math:: x' = x + \tfrac h2 \big(v(t, x) + v(t + h,\; x + h\,v(t, x))\big)

The numbers are those of :func:`flowscope.flows.sampling.ode_path` with "heun". What differs is that
no step waits for the device, and that on a GPU a step is recorded and replayed.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.flows.recording import Recording
from flowscope.flows.sampling.fields import (
    Field,
    as_clock,
    as_start,
    check_count,
    field_at,
    refined,
)
from flowscope.flows.sampling.ode import OdePath, ode_path
from flowscope.simplex.probability import ArrayLike

__all__ = ["heun_path"]


@torch.no_grad()
def heun_path(
    velocity: Field,
    x0: Float[Tensor, "..."] | ArrayLike,
    times: Float[Tensor, " T"] | Sequence[float],
    *,
    substeps: int = 1,
) -> OdePath:
    r"""Path of a velocity from a starting point by Heun's method, without gradients.

    Parameters
    ----------
    velocity : v(t, x) by tensor operations alone, the same at every call; t is a tensor without
        axes on the device of x.
    x0 : x₀, any shape.
    times : t₀ and the times whose states are wanted; strictly increasing.
    substeps : equal steps per interval.

    Raises
    ------
    InvalidInputError
        If x₀ or a time is not finite, the times are not increasing, the count is not positive, or
        the velocity has another shape than x.

    Notes
    -----
    A path that leaves the finite numbers is integrated again by
    :func:`flowscope.flows.sampling.ode_path`, which says where it did.

    Examples
    --------
    >>> path = heun_path(lambda t, x: -x, torch.tensor([1.0]), [0.0, 1.0], substeps=100)
    >>> path.states[-1], path.status
    (tensor([0.3679]), 'ok')
    """
    start = as_start(x0)
    clock = as_clock(times, torch.device("cpu"))
    check_count(substeps, "substeps")
    states = _walked(velocity, start, refined(clock, substeps))[::substeps]
    if not bool(states.isfinite().all()):
        return ode_path(velocity, start, clock, method="heun", substeps=substeps)
    steps = substeps * (len(clock) - 1)
    return OdePath(
        states=states,
        times=clock.to(start.device),
        status="ok",
        because=None,
        reached=float(clock[-1]),
        evaluations=2 * steps,
        steps=steps,
    )


def _walked(velocity: Field, start: Tensor, clock: Float64[Tensor, " K"]) -> Tensor:
    """States at all times of a clock."""
    x, states = start.clone(), torch.empty(len(clock), *start.shape, dtype=start.dtype)
    states = states.to(start.device)
    states[0] = start
    spans = torch.stack([clock[:-1], clock[1:], clock.diff()], 1).to(start)
    span = spans[0].clone()

    def step() -> None:
        first, last, size = span.unbind()
        slope = field_at(velocity, first, x, "velocity")
        slope = slope + field_at(velocity, last, x + size * slope, "velocity")
        x.add_(size / 2 * slope)

    recording = Recording(step, start.device)
    for number, times in enumerate(spans, 1):
        span.copy_(times)
        recording()
        states[number] = x
    return states
