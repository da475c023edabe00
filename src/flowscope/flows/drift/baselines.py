r"""What a drift is, and the two that a fitted one has to beat.

A drift is a callable b(t, y, context) with a name. Persistence is b = 0: the path stays where it
is. The mean drift moves every token alike,

.. math:: b(t) = \operatorname{mean}\{v_i : t_i = t_\ell\}, \qquad t_\ell \le t < t_{\ell+1} .
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.samples import DriftSample

__all__ = ["Drift", "MeanDrift", "NamedDrift", "as_drift", "carried", "mean_drift", "persistence"]


class Drift(Protocol):
    """A velocity field that can be integrated: b(t, y, context), of the shape and dtype of y.

    ``t`` is a number or one per row of y; ``context`` has one row per row of y.
    """

    @property
    def name(self) -> str:
        """What the drift is called in tables."""
        ...

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedDrift:
    """Any callable (t, y, context) as a drift."""

    name: str
    velocity: Callable[[Tensor | float, Tensor, Tensor | None], Tensor]

    def __call__(
        self, t: Tensor | float, y: Float[Tensor, "*N r"], context: Tensor | None = None
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t, checked to have the shape of y."""
        found = self.velocity(t, y, context)
        if found.shape != y.shape:
            raise InvalidInputError(
                f"The drift {self.name!r} must return the shape of y, {tuple(y.shape)}; it "
                f"returned {tuple(found.shape)}."
            )
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanDrift:
    """One velocity per time, held until the next; see :func:`mean_drift`."""

    times: Float[Tensor, "steps"]
    velocities: Float[Tensor, "steps r"]
    name: str = "mean"

    def __call__(
        self, t: Tensor | float, y: Float[Tensor, "*N r"], context: Tensor | None = None
    ) -> Float[Tensor, "*N r"]:
        """Velocity at t, the same at every y."""
        when = torch.as_tensor(t, dtype=self.times.dtype, device=self.times.device)
        place = torch.searchsorted(self.times, when.contiguous(), right=True) - 1
        return self.velocities[place.clamp_min(0)].to(y).expand(y.shape)


def as_drift(velocity: Callable[..., Tensor], *, name: str) -> NamedDrift:
    r"""Any velocity field as a drift.

    .. math:: b(t, y, c) = f(t, y)

    Parameters
    ----------
    velocity : f, called as f(t, y), or as f(t, y, context) when a context is given.
    name : what tables call it.

    Raises
    ------
    InvalidInputError
        When called, if f does not return the shape of y.

    Examples
    --------
    >>> as_drift(lambda t, y: -y, name="decay")(0.0, torch.ones(1, 2))
    tensor([[-1., -1.]])
    """

    def called(t: Tensor | float, y: Tensor, context: Tensor | None) -> Tensor:
        return velocity(t, y) if context is None else velocity(t, y, context)

    return NamedDrift(name=name, velocity=called)


def persistence() -> NamedDrift:
    r"""The drift that leaves every path where it is.

    .. math:: b(t, y) = 0

    Examples
    --------
    >>> persistence()(0.5, torch.ones(1, 2))
    tensor([[0., 0.]])
    """
    return as_drift(lambda t, y, context=None: torch.zeros_like(y), name="persistence")


def mean_drift(sample: DriftSample) -> MeanDrift:
    r"""Mean velocity of each layer, whatever the state.

    .. math:: b(t) = \frac{1}{|\{i : t_i = t_\ell\}|} \sum_{i : t_i = t_\ell} v_i,
              \qquad t_\ell \le t < t_{\ell+1}

    Parameters
    ----------
    sample : pairs (y, v) with times t.

    Notes
    -----
    O(N·r). Constant before the first time and after the last. It jumps at the layers, so an
    integrator should stop there.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> paths = torch.tensor([[[0.0], [1.0]], [[0.0], [3.0]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))
    >>> mean_drift(sample)(0.5, torch.zeros(1, 1))
    tensor([[2.]])
    """
    times, place = torch.unique(sample.times, return_inverse=True)
    total = torch.zeros(len(times), sample.width, dtype=torch.float64, device=times.device)
    total.index_add_(0, place, sample.velocities.double())
    return MeanDrift(times=times, velocities=total / place.bincount()[:, None])


def carried(drift: Drift, context: Float[Tensor, "*N c"]) -> NamedDrift:
    r"""A drift with its context held fixed, ready for an integrator that knows only t and y.

    .. math:: \dot y = b(t, y, c_0), \qquad \dot c = 0

    Parameters
    ----------
    drift : b, fitted with a context.
    context : c₀, one row per path, in the order of the states that will be integrated.

    Notes
    -----
    A context that belongs to the token (its row entropy at the start, its prompt) is carried
    exactly. One that would move with y, like the velocity of the step before, is frozen at its
    starting value: from the second step on that is an approximation.

    Examples
    --------
    >>> sum_of = as_drift(lambda t, y, c: y + c, name="sum")
    >>> carried(sum_of, torch.ones(1, 1))(0.0, torch.ones(1, 1))
    tensor([[2.]])
    """
    return NamedDrift(name=drift.name, velocity=lambda t, y, _: drift(t, y, context))
