"""Where the states of several models meet: token by token, or as clouds that know no tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.transport import PointCloud, barycenter_drift, sinkhorn

__all__ = ["EPSILON", "Meeting", "Middle", "paired_middle", "transport_middle"]

EPSILON = 0.02
"""ε of the couplings, in units of the median cost between tokens."""

_MOVES = 50  # of the points of a barycenter, at most
_TOLERANCE = 0.01  # of a move, in units of the spread of the tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Meeting:
    """The way of every state to the middle.

    Attributes
    ----------
    shifts
        T(x) − x for every model; zero for padded tokens.
    matched
        Share of tokens that are matched to themselves; None where tokens are paired.
    unsolved
        Rows whose couplings missed their tolerance.
    """

    shifts: list[Tensor]
    matched: float | None = None
    unsolved: int = 0


States = Sequence[Float[Tensor, "*batch d"]]
Present = Bool[Tensor, "*batch"] | None
"""Which tokens are no padding; None for all."""

Middle = Callable[[States, Present], Meeting]


def paired_middle(states: States, there: Present) -> Meeting:
    """The mean of the states of the same token over the models."""
    first = states[0]
    differences = [state - first for state in states[1:]]
    total = differences[0] if len(differences) == 1 else torch.stack(differences).sum(0)
    middle = torch.add(first, total, alpha=1 / len(states))
    shifts = [middle - state for state in states]
    if there is not None:
        shifts = [torch.where(there[..., None], shift, 0.0) for shift in shifts]
    return Meeting(shifts=shifts)


@torch.no_grad()
def transport_middle(states: States, there: Present) -> Meeting:
    """The entropic barycenter of the clouds of each row; no gradient flows through it."""
    if states[0].ndim != 3:
        raise InvalidInputError(
            f"Transport needs states [batch, tokens, features]; found shape "
            f"{list(states[0].shape)}."
        )
    if there is None:
        there = torch.ones(states[0].shape[:-1], dtype=torch.bool, device=states[0].device)
    shifts = [torch.zeros_like(state) for state in states]
    matched, tokens, unsolved = 0, 0, 0
    for row, present in enumerate(there):
        if int(present.sum()) < 2:  # a single token is its own cloud
            continue
        clouds = [state[row][present].double() for state in states]
        drift = barycenter_drift(
            clouds,
            1.0,
            support=clouds[0],
            relative_epsilon=EPSILON,
            tolerance=_TOLERANCE,
            max_iterations=_MOVES,
            on_failure="return",
        )
        for shift, velocity in zip(shifts, drift.velocities, strict=True):
            shift[row, present] = velocity.to(shift)
        matched += sum(_matched(clouds[0], cloud) for cloud in clouds[1:])
        tokens += len(clouds[0]) * (len(clouds) - 1)
        statuses = (drift.barycenter.status, *drift.statuses)
        unsolved += any(status != "converged" for status in statuses)
    return Meeting(shifts=shifts, matched=matched / tokens if tokens else None, unsolved=unsolved)


def _matched(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"]) -> int:
    """Tokens of x whose largest share goes to the token of the same place in y."""
    between = sinkhorn(PointCloud(x, y), relative_epsilon=EPSILON, on_failure="return")
    own = torch.arange(len(x), device=x.device)
    return int((between.matrix.argmax(-1) == own).sum())
