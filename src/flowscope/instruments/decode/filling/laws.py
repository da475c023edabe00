"""What one pass says about each masked position: leading tokens, certainty, change since before."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.models.infilling.infiller import Infiller
from flowscope.simplex import entropy, kl_divergence, mobility_frobenius, total_variation

__all__ = ["LawReader", "Laws"]

_WIDENED = 2**24
"""Probabilities that are held in double precision at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Laws:
    """Laws of the masked positions in one pass, ``[rows, positions]``; NaN elsewhere.

    Attributes
    ----------
    top
        Token that would be filled in; −1 elsewhere.
    first, second
        Probability of that token, and the largest of the others.
    gap
        Logit of that token over the largest of the others.
    entropy
        In nats.
    mobility
        Frobenius norm of the mobility; NaN where it is not recorded.
    divergence, variation
        KL(now ‖ before) and total variation from the pass before; infinite and 1 in the first.
    cool_divergence, cool_margin
        KL and top-2 margin of the laws at half the temperature; NaN where they are not recorded.
    """

    top: Int[Tensor, "rows positions"]
    first: Float[Tensor, "rows positions"]
    second: Float[Tensor, "rows positions"]
    gap: Float[Tensor, "rows positions"]
    entropy: Float[Tensor, "rows positions"]
    mobility: Float[Tensor, "rows positions"]
    divergence: Float[Tensor, "rows positions"]
    variation: Float[Tensor, "rows positions"]
    cool_divergence: Float[Tensor, "rows positions"]
    cool_margin: Float[Tensor, "rows positions"]

    @property
    def margin(self) -> Float[Tensor, "rows positions"]:
        """Top-2 margin."""
        return self.first - self.second

    def at(self, rows: Int[Tensor, "some"]) -> Laws:
        """The laws of some rows."""
        return Laws(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


class LawReader:
    """Reads laws pass by pass and compares each with the one before.

    Parameters
    ----------
    made
        The model.
    temperature, seed, numbers
        At a temperature above 0 the token of a position is drawn: the largest of logit/temperature
        plus Gumbel noise that belongs to prompt and position, so that two runs whose laws are equal
        draw equal tokens.
    recording, changes
        Whether everything is recorded, and whether laws are compared with those before.
    batch
        Rows in one pass of the model.
    """

    def __init__(
        self,
        made: Infiller,
        numbers: NDArray[np.int64],
        *,
        temperature: float = 0.0,
        seed: int = 0,
        recording: bool = False,
        changes: bool = True,
        batch: int = 64,
    ) -> None:
        self.made, self._numbers = made, numbers
        self._temperature, self._seed = temperature, seed
        self._recording, self._changes, self._batch = recording, changes, batch
        self._places: Tensor | None = None  # where the law of a position stands among those before
        self._before: Tensor | None = None

    def read(
        self,
        ids: Int[Tensor, "rows positions"],
        present: Bool[Tensor, "rows positions"],
        masked: Bool[Tensor, "rows positions"],
        rows: Int[Tensor, "rows"],
    ) -> Laws:
        """Run the model on the rows of that number and return the laws of their masked positions.

        The laws are kept as those before the next call.
        """
        named = self.logits(ids, present, masked)
        laws, logarithms = self.described(named, masked, rows)
        self.keep(logarithms, masked, rows)
        return laws

    def logits(self, ids: Tensor, present: Tensor, masked: Tensor) -> Tensor:
        """Logits of all masked positions, in passes of at most ``batch`` rows."""
        parts = [
            self.made.logits(*(x[start : start + self._batch] for x in (ids, present, masked)))
            for start in range(0, len(ids), self._batch)
        ]
        return torch.cat(parts)

    def keep(self, logarithms: Tensor, masked: Tensor, rows: Tensor) -> None:
        """Remember laws as those before the next pass."""
        if not self._changes:
            return
        most, width = int(rows.max()) + 1, masked.shape[1]
        places = masked.new_full((max(most, len(self._numbers)), width), -1, dtype=torch.long)
        flat = torch.full_like(masked, -1, dtype=torch.long)
        flat[masked] = torch.arange(int(masked.sum()), device=masked.device)
        places[rows] = flat
        self._places, self._before = places, logarithms

    def described(self, named: Tensor, masked: Tensor, rows: Tensor) -> tuple[Laws, Tensor]:
        """Laws of logits at masked positions, and their logarithms in single precision."""
        place = (rows[:, None].expand_as(masked)[masked], masked.nonzero(as_tuple=True)[1])
        before = self._earlier(place)
        size = max(1, _WIDENED // named.shape[-1])
        columns: list[tuple[Tensor, ...]] = []
        kept: list[Tensor] = []
        for start in range(0, len(named), size):
            part = slice(start, start + size)
            where = (place[0][part], place[1][part])
            earlier = None if before is None else before[part]
            values, p = self._part(named[part], where, earlier)
            columns.append(values)
            kept.append(p)
        flat = [torch.cat(parts) for parts in zip(*columns, strict=True)]
        spread: list[Tensor] = []
        for number, column in enumerate(flat):
            empty: float = torch.nan if number else -1
            target = torch.full(masked.shape, empty, dtype=column.dtype, device=masked.device)
            target[masked] = column
            spread.append(target)
        names = [field.name for field in fields(Laws)]
        return Laws(**dict(zip(names, spread, strict=True))), torch.cat(kept)

    def _earlier(self, place: tuple[Tensor, Tensor]) -> Tensor | None:
        """Logarithms of the laws before at these positions, or None in the first pass."""
        if self._before is None or self._places is None:
            return None
        return self._before[self._places[place]]

    def _part(
        self, named: Tensor, place: tuple[Tensor, Tensor], before: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        logits = named.double()
        kept = torch.log_softmax(logits, -1)
        p = torch.softmax(logits, -1)
        top = logits.argmax(-1) if not self._temperature else self._drawn(logits, place)
        others = logits.scatter(-1, top[:, None], -torch.inf)
        second = others.argmax(-1, keepdim=True)
        gap = logits.gather(-1, top[:, None]) - others.gather(-1, second)
        nothing = torch.full_like(p[:, 0], torch.nan)
        then = None if before is None else before.double()
        values = (
            top, p.gather(-1, top[:, None])[:, 0], p.gather(-1, second)[:, 0], gap[:, 0],
            entropy(p), mobility_frobenius(p) if self._recording else nothing,
            *_changes(p, then), *(_cooled(kept, then) if self._recording else (nothing, nothing)),
        )  # fmt: skip
        return values, kept.float()

    def _drawn(self, logits: Tensor, place: tuple[Tensor, Tensor]) -> Tensor:
        """Tokens drawn with the noise of each prompt and position."""
        noise = torch.empty(logits.shape, dtype=torch.float64)
        for k, (row, position) in enumerate(zip(*(x.tolist() for x in place), strict=True)):
            key = [self._seed, int(self._numbers[row]), position]
            state = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) >> 1
            uniform = torch.rand(
                logits.shape[-1], generator=torch.Generator().manual_seed(state),
                dtype=torch.float64,
            )  # fmt: skip
            noise[k] = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        return (logits / self._temperature + noise.to(logits.device)).argmax(-1)


def _changes(p: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Divergence and distance from the laws before, given by their logarithms."""
    if before is None:
        return torch.full_like(p[:, 0], torch.inf), torch.ones_like(p[:, 0])
    then = torch.softmax(before, -1)
    return kl_divergence(p, then), total_variation(p, then)


def _cooled(logarithms: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Divergence and margin at half the temperature."""
    p = torch.softmax(2 * logarithms, -1)
    two = p.topk(2, dim=-1).values
    change, _ = _changes(p, None if before is None else 2 * before)
    return change, two[:, 0] - two[:, 1]
