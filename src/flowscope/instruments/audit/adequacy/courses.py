"""Courses of tokens along a segment: their coordinates, and where a drift takes them.

A drift by nearest neighbours jumps where neighbours change, which an adaptive step would resolve
one by one: it is integrated by Heun's method with a fixed step, the others by Dormand–Prince.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.flows.drift import Drift, DriftSample, drift_sample
from flowscope.flows.sampling import OdePath, heun_path, smooth_path

__all__ = ["Course", "one_layer", "onward"]

_HEUN_STEPS = 2
_MOST_STEPS = 30  # per layer; a smooth field takes about five, and a stiff one is no forecast
_RTOL, _ATOL = 1e-4, 1e-5  # total variation is read to a thousandth; a network is float32


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """Coordinates of tokens along a segment, with what a rich drift sees beside them."""

    y: Float[Tensor, "n states r"]
    times: Float[Tensor, "states"]
    context: Float[Tensor, "n steps c"] | None
    prompt: Tensor
    labels: Int64[Tensor, "n columns"]

    @property
    def step(self) -> float:
        """Time of one layer."""
        return float(self.times[1] - self.times[0])

    def at(self, rows: Tensor) -> "Course":
        """The courses of some tokens."""
        context = None if self.context is None else self.context[rows]
        return replace(
            self,
            y=self.y[rows],
            context=context,
            prompt=self.prompt[rows],
            labels=self.labels[rows],
        )

    def pairs(self) -> DriftSample:
        """Pairs of state and velocity."""
        return drift_sample(self.y, self.times, self.prompt, self.context)


def one_layer(drift: Drift, kind: str, course: Course) -> tuple[Tensor, str]:
    """Coordinates one layer after each state: one path for all of them, on clocks of their own."""
    n, states, r = course.y.shape
    starts, field = course.times[:-1].repeat(n), getattr(drift, "unchecked", drift)
    each = None if course.context is None else course.context.flatten(0, 1)
    path = _integrated(
        kind,
        lambda t, x: field(starts + t, x, each),
        course.y[:, :-1].reshape(-1, r),
        torch.tensor([0.0, course.step], dtype=torch.float64, device=course.y.device),
    )
    return path.states[-1].reshape(n, states - 1, r), _stop(path)


def onward(drift: Drift, kind: str, course: Course) -> tuple[Tensor, str]:
    """Coordinates from the first state on, with the context frozen there."""
    first = None if course.context is None else course.context[:, 0]
    field = getattr(drift, "unchecked", drift)
    path = _integrated(kind, lambda t, x: field(t, x, first), course.y[:, 0], course.times)
    return path.states[1:].transpose(0, 1), _stop(path)


def _stop(path: OdePath) -> str:
    """Why an integration stopped; empty when it did not."""
    return "" if path.status == "ok" else path.because or path.status


def _integrated(
    kind: str, velocity: Callable[[Tensor, Tensor], Tensor], start: Tensor, times: Tensor
) -> OdePath:
    if kind == "neighbours":
        return heun_path(velocity, start, times, substeps=_HEUN_STEPS)
    most = _MOST_STEPS * (len(times) - 1)
    return smooth_path(
        velocity, start, times, rtol=_RTOL, atol=_ATOL, max_steps=most, recorded=True
    )
