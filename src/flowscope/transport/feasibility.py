"""Masks that grow row by row, and whether masses fit through them.

The iterations of attention ask the same of unit rows over interval masks, where two prefix sums
do (`iterations`); here masses are weighted and masks any nested ones.
"""

import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.transport.geometry import Geometry
from flowscope.transport.problem import Problem

__all__ = ["causal", "check_staircase"]


def causal(geometry: Geometry) -> bool:
    """Whether some problem's mask is square and triangular, one way or the other."""
    mask = geometry.mask()
    if mask is None or geometry.n != geometry.m or geometry.n == 1:
        return False
    sides = (torch.triu(mask, 1), torch.tril(mask, -1))
    return any(bool((~side.flatten(-2).any(-1)).any()) for side in sides)


def check_staircase(problem: Problem) -> None:
    """Raise unless the masses of the first rows fit, strictly, into the columns they reach."""
    mask = problem.geometry.mask()
    if mask is None:
        return
    a, b = problem.a.detach().double(), problem.b.detach().double()
    size = mask.sum(-1)
    order = torch.argsort(size, stable=True)
    sorted_mask = mask.gather(-2, order[..., None].expand_as(mask))
    if bool((sorted_mask[..., :-1, :] & ~sorted_mask[..., 1:, :]).any()):
        raise InvalidInputError(
            "prescribed needs a mask whose rows are nested, as those of a causal mask are; found "
            "two rows that each reach a column the other does not. Use unbalanced, which takes "
            "any mask."
        )
    demand = a.gather(-1, order).cumsum(-1)
    room = (sorted_mask * b[..., None, :]).sum(-1)
    # rows that reach the same columns are judged together, by the last of them
    reach = size.gather(-1, order)
    last = torch.ones_like(reach, dtype=torch.bool)
    last[..., :-1] = reach[..., :-1] != reach[..., 1:]
    full = a.sum(-1, keepdim=True)
    slack = torch.finfo(problem.a.dtype).eps * full * problem.geometry.n
    outside = (full - demand) > slack  # once all rows are in, equality is the total itself
    _refuse_full(last & outside & (demand >= room - slack), demand, room, order)


def _refuse_full(full: Tensor, demand: Tensor, room: Tensor, order: Tensor) -> None:
    if not bool(full.any()):
        return
    place = tuple(full.nonzero()[0].tolist())
    problem = f" of problem {place[:-1]}" if place[:-1] else ""
    raise InvalidInputError(
        "prescribed column masses must leave room under the mask: the first rows' mass must be "
        f"less than that of the columns they reach; the prefix of {place[-1] + 1} rows{problem} "
        f"(up to row {order[place].item()}) holds {demand[place].item():.6g} and its columns "
        f"{room[place].item():.6g}. Move column mass to earlier columns."
    )
