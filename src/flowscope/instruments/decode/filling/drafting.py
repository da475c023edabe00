"""Drafts of the reference's next commits, verified in one batched pass.

The present laws say what the reference fills now; that is certain, and it is filled. What follows
is drafted from the same laws, state after state, and all these states are run at once. The laws of
each state then say whether the reference reaches the next one: the deepest state that it does is
kept. Nothing is accepted that the reference would not do, so that the answer is the reference's,
whatever the drafts are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from flowscope.instruments.decode.filling.laws import LawReader, Laws
from flowscope.instruments.decode.filling.steps import (
    Plan,
    advanced,
    best_positions,
    open_positions,
    order_scores,
)
from flowscope.models.infilling.templates import Canvas

__all__ = ["Drafts", "Verified"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Verified:
    """States that the reference reaches, with their laws.

    Attributes
    ----------
    ids, masked
        Sequences and masks.
    laws
        Laws of these states; of no meaning where a row is full.
    sequences
        Sequences that were run for each row.
    """

    ids: Int[Tensor, "rows positions"]
    masked: Bool[Tensor, "rows positions"]
    laws: Laws
    sequences: Int[Tensor, "rows"]


class Drafts:
    """Drafts and verifies ``count`` commits."""

    def __init__(self, reader: LawReader, canvas: Canvas, plan: Plan, count: int) -> None:
        self._reader, self._canvas, self._plan, self._count = reader, canvas, plan, count

    def verified(self, rows: Tensor, ids: Tensor, masked: Tensor, laws: Laws) -> Verified:
        """Deepest states that the reference reaches from some states.

        Parameters
        ----------
        rows
            Their numbers in the canvas.
        ids, masked
            The states; none is full.
        laws
            Laws of the states before, from which the next commits are drafted.
        """
        states = [(ids, masked)]
        for _ in range(self._count):
            states.append(self._next(rows, *states[-1], laws))
        run = [state[1].any(1) for state in states]  # in a full state nothing is left to name
        drawn = self._run(rows, states, run)
        at_laws, going = drawn[0], run[0].clone()
        for number in range(1, len(states)):
            then = self._next(rows, *states[number - 1], drawn[number - 1])
            same = (then[0] == states[number][0]).all(1) & (then[1] == states[number][1]).all(1)
            going &= same
            ids = torch.where(going[:, None], states[number][0], ids)
            masked = torch.where(going[:, None], states[number][1], masked)
            at_laws = _chosen(going, drawn[number], at_laws)
            going &= run[number]
        sequences = torch.stack(run).sum(0)
        return Verified(ids=ids, masked=masked, laws=at_laws, sequences=sequences)

    def _next(self, rows: Tensor, ids: Tensor, masked: Tensor, laws: Laws) -> tuple[Tensor, Tensor]:
        """State after the reference's next commit, if the laws were these; full rows stay."""
        numbers = self._canvas.numbers[rows.cpu().numpy()]
        score = order_scores(laws, self._plan, numbers).masked_fill(~masked, -torch.inf)
        open = open_positions(masked, self._canvas.blank[rows], self._plan.block)
        best = best_positions(score, open, self._plan.tokens)
        return advanced(ids, masked, best, laws.top, self._plan)

    def _run(
        self, rows: Tensor, states: list[tuple[Tensor, Tensor]], run: list[Tensor]
    ) -> list[Laws]:
        """Laws of every state, all in one pass; rows that are full are left out."""
        at = torch.stack(run)
        ids, masked = (torch.stack([state[k] for state in states])[at] for k in range(2))
        which = rows.expand(len(states), -1)[at]
        named = self._reader.logits(ids, self._canvas.present[which], masked)
        laws, _ = self._reader.described(named, masked, which)
        place = torch.zeros(at.shape, dtype=torch.long, device=at.device)
        place[at] = torch.arange(int(at.sum()), device=at.device)
        return [laws.at(numbers) for numbers in place]


def _chosen(where: Tensor, yes: Laws, no: Laws) -> Laws:
    """Laws of one or the other, row by row."""
    parts = {
        name: torch.where(where[:, None], getattr(yes, name), value)
        for name, value in vars(no).items()
    }
    return Laws(**parts)
