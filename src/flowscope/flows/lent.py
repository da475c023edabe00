r"""Transplanted steps of many rows on an accelerator, by the sweeps of the depth meter.

What :func:`flowscope.simplex.transplanted_steps` says in float64 of one prompt, in float32 of all
prompts of a batch: one sort of V per row, and for each donor a step from the ranked logits to these
plus the ranked step of the donor,

.. math:: z_{i,\pi_i(k)} \mapsto z_{i,\pi_i(k)} + \Delta z_{d,\pi_d(k)},

whose total variation is that of any other step. Nothing waits for the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.flows.swept import RawSums, SweptPasses, raw_sums, state_sums, step_numbers
from flowscope.simplex import TransplantedSteps

__all__ = ["LentSteps", "joined_steps", "lent_steps", "ranked"]

# From so many rows on torch sorts each row by itself, which takes several times as long.
_SORTED = 127


@dataclass(frozen=True, eq=False)
class LentSteps:
    """Raw sums of the sweeps: of the own step of each row, and of those of its donors."""

    state: RawSums
    own: RawSums
    lent: Float[Tensor, "18 donors rows"]


def lent_steps(
    before: Float[Tensor, "n V"],
    after: Float[Tensor, "n V"],
    donors: Int64[Tensor, "n donors"],
    passes: SweptPasses,
) -> LentSteps:
    """Sums that say how far each row's own step and those of its donors move it.

    Parameters
    ----------
    before, after : logits before and after the step, in float32.
    donors : for each row the numbers of the rows whose steps it is given.
    passes : made for float32 logits of this vocabulary and device.

    Notes
    -----
    Memory 5nV numbers. Logits refer to the largest of their row, so that what weighs is small and
    keeps its digits when a step is added.
    """
    z, order = ranked(before)
    steps = after.gather(-1, order)
    steps -= z
    z -= z[:, :1].clone()
    state = raw_sums(z)
    passes.state(z, state)
    itself = torch.arange(len(z), device=z.device)
    moves = []
    for chosen in (itself, *donors.unbind(1)):
        moves.append(raw_sums(z))
        passes.lent_step(z, steps, chosen, state, moves[-1])
    own, *lent = moves
    return LentSteps(state, own, torch.stack(lent, 1))


def joined_steps(path: Sequence[LentSteps]) -> TransplantedSteps:
    """What the sums of several steps of the same rows say, in float64, steps on the second axis.

    Parameters
    ----------
    path : one element for each step.
    """
    own = step_numbers(torch.stack([part.own for part in path], -1))
    lent = step_numbers(torch.stack([part.lent for part in path], -1))
    states = state_sums(torch.stack([part.state for part in path], -1))
    return TransplantedSteps(
        tail_mass=states.statistics().tail_mass,
        total_variation=own.total_variation,
        transplanted=lent.total_variation.movedim(0, -1),
        half_oscillation=own.oscillation / 2,
    )


def ranked(z: Float[Tensor, "n V"]) -> tuple[Float[Tensor, "n V"], Int64[Tensor, "n V"]]:
    """Logits of each row from the largest to the smallest, and whose they are.

    Examples
    --------
    >>> ranked(torch.tensor([[1.0, 3.0, 2.0]]))
    (tensor([[3., 2., 1.]]), tensor([[1, 2, 0]]))
    """
    values, order = torch.empty_like(z), torch.empty_like(z, dtype=torch.int64)
    parts = zip(*(torch.split(rows, _SORTED) for rows in (z, values, order)), strict=True)
    for part, largest, whose in parts:
        torch.sort(part, dim=-1, descending=True, stable=True, out=(largest, whose))
    return values, order
