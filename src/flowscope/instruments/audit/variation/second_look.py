"""A second pass over a few prompts, once the segments are known: chords, top tokens, one path.

The first pass keeps scalars only. What needs two states far apart in depth (the straight line
between the ends of a segment) or names of outcomes is read here, on prompts few and stated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.flows import Segment, line_relative_variation, mass_residual
from flowscope.models.prompts import Batch
from flowscope.probes import (
    InputBatch,
    Piece,
    Rows,
    TapProbe,
    pooled_readout,
    positions_readout,
    rows_at_once,
    tap_pass,
)
from flowscope.records import Unavailable
from flowscope.tap import BlockPass, Chain, Operands, Tail

__all__ = ["SecondLook", "second_look"]

_LOGITS_AT_ONCE = 2**20
_COPIES = 16  # eight in float64


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondLook:
    """What the second pass found.

    Attributes
    ----------
    straight
        Per segment, S̄ of the straight line between its ends: median over the tokens looked at.
    chord
        Per segment, the length of that line: ‖z^last − z^first‖, median over tokens.
    mass_residual
        Largest |Σp − 1| in float64.
    vocabulary
        Number of outcomes.
    path
        One row's probabilities of two outcomes along depth, and which they are.
    """

    straight: NDArray[np.float64]
    chord: NDArray[np.float64]
    mass_residual: float
    vocabulary: int
    path: pd.DataFrame


class _Chords(TapProbe):
    """Reads both ends of every segment, and all layers of the first batch."""

    def __init__(self, segments: Sequence[Segment], operands: Operands) -> None:
        self._segments, self._operands = segments, operands
        self._batch: InputBatch | None = None
        self._starts: dict[int, Tensor] = {}
        self.straight: list[list[Tensor]] = [[] for _ in segments]
        self.length: list[list[Tensor]] = [[] for _ in segments]
        self.residuals: list[Tensor] = []
        self.vocabulary = 0
        self.states: list[Tensor] = []

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        assert isinstance(tail, Tail)
        made = positions_readout if tail.positionwise else pooled_readout
        self.readout = made(tail, self._operands)

    def begin(self, batch: InputBatch) -> None:
        self._batch, self._rows = batch, Rows.of_mask(batch.prompts, batch.named)

    def block(self, event: BlockPass) -> None:
        if event.site.index == 0:
            self._layer(0, event.hidden_in)
        self._layer(event.site.index + 1, event.hidden_out)

    def _layer(self, layer: int, hidden: Tensor) -> None:
        rows = self._chosen(hidden)
        if self._batch is not None and self._batch.prompts[0] == 0:  # the first batch shows a path
            self.states.append(rows)
        for number, segment in enumerate(self._segments):
            if layer == segment.first - 1:
                self._starts[number] = rows
            if layer == segment.last:
                self._chord(number, self._starts.pop(number), rows, segment)

    def _chosen(self, hidden: Tensor) -> Tensor:
        assert self._batch is not None
        rows = hidden.detach() if self.readout.pooled else self._rows.taken(hidden)
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def end(self) -> Piece:
        self._starts.clear()
        return Piece()

    def _chord(self, number: int, first: Tensor, last: Tensor, segment: Segment) -> None:
        steps = segment.last - segment.first + 1
        width = self.readout.width
        rows = rows_at_once(width, first.device, _LOGITS_AT_ONCE, copies=_COPIES)
        few = rows_at_once(width, torch.device("cpu"), _LOGITS_AT_ONCE)
        for start in range(0, len(first), rows):
            a, b = (self.readout(x[start : start + rows]).double() for x in (first, last))
            a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
            norms = a.square().sum(-1), b.square().sum(-1), (a * b).sum(-1)
            self.straight[number].append(line_relative_variation(*norms, steps=steps))
            self.length[number].append((a - b).norm(dim=-1))
            self.vocabulary = b.shape[-1]
            if start == 0:
                self.residuals.append(mass_residual(b[:few]).max())


@torch.no_grad()
def second_look(
    model: nn.Module,
    batches: Iterable[Batch],
    segments: Sequence[Segment],
    position: int,
    operands: Operands = "exact",
) -> SecondLook:
    """Look at a few batches again, with the segments known.

    Parameters
    ----------
    model, batches, segments
        What, on what, between which layers.
    position
        Row of the first batch whose path is drawn.
    operands
        What the output product reads, see `Tail.widened`.
    """
    chords = _Chords(segments, operands)
    tap_pass(model, batches, {"chords": chords})
    return SecondLook(
        straight=np.array([float(torch.cat(x).median()) for x in chords.straight]),
        chord=np.array([float(torch.cat(x).median()) for x in chords.length]),
        mass_residual=max((float(residual) for residual in chords.residuals), default=0.0),
        vocabulary=chords.vocabulary,
        path=_path(chords, position),
    )


def _path(chords: _Chords, position: int) -> pd.DataFrame:
    """Probabilities of the final top outcome, its strongest rival on the way, and the rest."""
    rows = [state[position : position + 1] for state in chords.states]
    p = torch.cat([torch.softmax(chords.readout(row).double(), -1) for row in rows]).cpu()
    first = int(p[-1].argmax())
    rivals = p.clone()
    rivals[:, first] = -1.0
    second = int(rivals.max(0).values.argmax())
    return pd.DataFrame(
        {
            "layer": np.arange(len(p)),
            "first": p[:, first].numpy(),
            "second": p[:, second].numpy(),
            "rest": (1 - p[:, first] - p[:, second]).clamp_min(0).numpy(),
            "first_id": first,
            "second_id": second,
        }
    )
