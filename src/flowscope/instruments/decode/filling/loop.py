"""Fill masked positions pass by pass until none is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.filling.drafting import Drafts
from flowscope.instruments.decode.filling.laws import LawReader, Laws
from flowscope.instruments.decode.filling.steps import (
    Plan,
    Step,
    advanced,
    best_positions,
    open_positions,
    order_scores,
    planned_passes,
)
from flowscope.models.infilling.infiller import Infiller
from flowscope.models.infilling.templates import Canvas

__all__ = ["Filled", "Filler", "Listener", "filled"]

Listener = Callable[[Step, Int[Tensor, "rows"]], None]
"""Called in every pass with what the policy sees and with the numbers of the rows."""


class Filler(Protocol):
    """What decides which positions are filled in a pass.

    Attributes
    ----------
    name
        Its name, for messages and tables.
    patience
        How many passes back it looks.
    drafts
        How many commits of the reference are drafted and verified in a pass; 0 for none.
    """

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def patience(self) -> int:
        """Passes back that it looks."""

    @property
    def drafts(self) -> int:
        """Commits that are drafted."""

    def commits(self, step: Step) -> Bool[Tensor, "rows positions"]:
        """Masked positions that are filled now, at least one in each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Filled:
    """Sequences without masks, and what they cost.

    Attributes
    ----------
    ids
        ``[rows, positions]``.
    passes, rows
        Passes of the model that each row was in, and sequences that were run for it.
    planned
        Passes of the reference.
    filled_at
        Pass in which each blank was filled, from 1; 0 elsewhere.
    seconds
        Time of the whole batch.
    """

    ids: Int[Tensor, "rows positions"]
    passes: Int[Tensor, "rows"]
    rows: Int[Tensor, "rows"]
    planned: Int[Tensor, "rows"]
    filled_at: Int[Tensor, "rows positions"]
    seconds: float


def filled(
    made: Infiller,
    canvas: Canvas,
    filler: Filler,
    plan: Plan,
    *,
    batch: int = 64,
    listener: Listener | None = None,
    recording: bool = False,
) -> Filled:
    """Fill every blank of a canvas.

    Parameters
    ----------
    made, canvas
        The model, and what it fills.
    filler
        What decides when a position is filled; rows finish when they are full.
    plan
        The reference: what a filler falls back on.
    batch
        Sequences in one pass of the model.
    listener
        Called in every pass.
    recording
        Whether laws hold what only a record needs.

    Raises
    ------
    InvalidInputError
        The filler leaves a row as it is: it would never end.
    """
    start = time.perf_counter()
    with torch.no_grad():
        work = _Work(made, canvas, filler, plan, batch, listener, recording)
        while len(work.rows):
            work.run()
    return Filled(
        ids=work.ids, passes=work.passes, rows=work.sequences, planned=work.planned,
        filled_at=work.filled_at, seconds=time.perf_counter() - start,
    )  # fmt: skip


class _Work:
    """Sequences on their way."""

    def __init__(
        self,
        made: Infiller,
        canvas: Canvas,
        filler: Filler,
        plan: Plan,
        batch: int,
        listener: Listener | None,
        recording: bool,
    ) -> None:
        self._canvas, self._filler, self._plan = canvas, filler, plan
        self._listener = listener
        self._reader = LawReader(
            made, canvas.numbers, temperature=plan.temperature, seed=plan.seed, recording=recording,
            changes=listener is not None or filler.patience > 1, batch=batch,
        )  # fmt: skip
        self._drafts = Drafts(self._reader, canvas, plan, filler.drafts)
        self.ids, self._masked = canvas.ids.clone(), canvas.blank.clone()
        self.planned = planned_passes(canvas.blank, plan)
        self.passes, self.sequences = (torch.zeros_like(self.planned) for _ in range(2))
        self.filled_at = torch.zeros_like(canvas.ids)
        self.rows = torch.arange(len(canvas), device=self.ids.device)
        self._trail: list[Laws] = []

    def run(self) -> None:
        """One pass: read laws, ask the policy, fill, let full rows go."""
        drafting = bool(self._filler.drafts and self._trail)
        if drafting:
            self._fill(self.rows, self._step(self.rows).best, self._trail[-1])
            self._release()
        rows = self.rows
        if not len(rows):
            return
        self.passes[rows] += 1
        if drafting:
            self._verify(rows)
            return
        laws = self._reader.read(
            self.ids[rows], self._canvas.present[rows], self._masked[rows], rows
        )
        self.sequences[rows] += 1
        self._trail = [*self._trail, laws][-self._filler.patience :]
        step = self._step(rows)
        if self._listener is not None:
            self._listener(step, rows)
        if not self._filler.drafts:  # a drafting pass begins with what the reference fills now
            self._fill(rows, self._chosen(step, rows), laws)
            self._release()

    def _step(self, rows: Tensor) -> Step:
        plan, masked, laws = self._plan, self._masked[rows], self._trail[-1]
        score = order_scores(laws, plan, self._canvas.numbers[rows.cpu().numpy()])
        open = open_positions(masked, self._canvas.blank[rows], plan.block)
        return Step(
            trail=self._trail, masked=masked, region=self._canvas.region[rows], open=open,
            best=best_positions(score, open, plan.tokens), score=score,
            passes=self.passes[rows], planned=self.planned[rows],
        )  # fmt: skip

    def _chosen(self, step: Step, rows: Tensor) -> Tensor:
        chosen = self._filler.commits(step) & step.masked
        idle = ~chosen.any(1)
        if bool(idle.any()):
            row = int(idle.nonzero()[0])
            raise InvalidInputError(
                f"The policy {self._filler.name!r} fills no position of prompt "
                f"{int(self._canvas.numbers[int(rows[row])])} in pass {int(step.passes[row])}, so "
                "that it would never end. Return at least step.best for each row."
            )
        return chosen

    def _fill(self, rows: Tensor, chosen: Tensor, laws: Laws) -> None:
        before = self._masked[rows]
        ids, masked = advanced(self.ids[rows], before, chosen, laws.top, self._plan)
        self.ids[rows], self._masked[rows] = ids, masked
        self._note(rows, before & ~masked)

    def _verify(self, rows: Tensor) -> None:
        """Run drafts of the next commits; keep the deepest state that the reference reaches too."""
        before = self._masked[rows]
        found = self._drafts.verified(rows, self.ids[rows], before, self._trail[-1])
        self.sequences[rows] += found.sequences
        self.ids[rows], self._masked[rows] = found.ids, found.masked
        self._note(rows, before & ~found.masked)
        self._trail = [found.laws]
        self._release()

    def _note(self, rows: Tensor, now: Tensor) -> None:
        self.filled_at[rows] = torch.where(now, self.passes[rows, None], self.filled_at[rows])

    def _release(self) -> None:
        """Let full rows go."""
        left = self._masked[self.rows].any(1).nonzero()[:, 0]
        self._trail = [laws.at(left) for laws in self._trail]
        self.rows = self.rows[left]
