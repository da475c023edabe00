"""The depth path of a batch: every state and step statistic, layer by layer, as blocks pass.

At each block the output the model would give from there is replayed through the tail and compared
with the one before. One buffer of logits for the tokens of the *batch* is held, whatever the number
of layers or prompts; what is kept per token and layer is a few scalars.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.flows import DepthMeter
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.tap import BlockPass, Tail

__all__ = ["DepthProbe", "Rows", "pooled_readout", "positions_readout"]

Readout = Callable[[Tensor], Tensor]
_LOGITS_AT_ONCE = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Which rows of a batch count: the prompt and position of each, in reading order.

    Attributes
    ----------
    prompt, position
        One entry per row that counts.
    chosen
        Boolean ``[batch, length]``: the rows of the hidden state that count (padding does not).
    """

    prompt: NDArray[np.int64]
    position: NDArray[np.int64]
    chosen: Tensor

    @classmethod
    def of_mask(cls, prompts: NDArray[np.int64], mask: Tensor) -> Self:
        """Every position that an attention mask keeps."""
        row, position = np.nonzero(mask.cpu().numpy())
        return cls(prompt=prompts[row], position=position, chosen=mask.bool())

    def over(self, length: int) -> Self:
        """The same rows of inputs with ``length`` positions.

        A mask of one entry stands for a whole image or sound: all its positions count.
        """
        if self.chosen.shape[1] != 1 or length == 1:
            return self
        whole = self.chosen.cpu().expand(-1, length)
        position = np.tile(np.arange(length), len(self.prompt))
        return type(self)(prompt=np.repeat(self.prompt, length), position=position, chosen=whole)


def positions_readout(tail: Tail) -> Readout:
    """Logits of each chosen position on its own."""
    wide = tail.widened()
    return lambda hidden: wide.rows(hidden)


def pooled_readout(tail: Tail) -> Readout:
    """Logits of each sequence as a whole, for models that pool before their output."""
    wide = tail.widened()
    return lambda hidden: wide(hidden)


class DepthProbe(Reducer):
    """Reduces block passes to scalars per token and layer.

    ``update`` takes the passes of one chain and stream in order; ``begin`` and ``end`` bracket a
    batch. `arrays` has one row per token: state statistics ``[rows, L + 1]``, step statistics
    ``[rows, L]``.

    Parameters
    ----------
    readout
        From chosen hidden states to logits (`positions_readout`, `pooled_readout`).
    pooled
        Whether the readout takes whole sequences: then a batch row is one row.
    width
        Size of the vocabulary: as many rows are read at a time as fill a few megabytes.
    """

    keys = ("prompt", "position")

    def __init__(self, readout: Readout, *, width: int, pooled: bool = False) -> None:
        super().__init__()
        self._readout, self._pooled = readout, pooled
        self._chunk = max(_LOGITS_AT_ONCE // width, 16)
        self._rows: Rows | None = None
        self._meter: DepthMeter | None = None
        self._columns: dict[str, list[Tensor]] = {}

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        self._rows, self._meter, self._columns = rows, None, {}

    def update(self, event: BlockPass) -> None:
        """One block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("A depth probe must begin a batch before it is updated.")
        if event.site.index == 0:
            if not self._pooled:
                self._rows = self._rows.over(event.hidden_in.shape[1])
            self._advance(event.hidden_in)
        self._advance(event.hidden_out)

    def _advance(self, hidden: Tensor) -> None:
        assert self._rows is not None
        chosen = hidden if self._pooled else hidden[self._rows.chosen.to(hidden.device)]
        chosen = chosen.detach().to(torch.promote_types(hidden.dtype, torch.float32))
        first = self._meter is None
        parts: dict[str, list[Tensor]] = {}
        for start in range(0, len(chosen), self._chunk):
            piece = slice(start, min(start + self._chunk, len(chosen)))
            logits = self._readout(chosen[piece])
            if self._meter is None:
                self._meter = DepthMeter(
                    len(chosen), logits.shape[-1], dtype=logits.dtype, device=logits.device
                )
            meter = self._meter
            told = [meter.start(piece, logits)] if first else meter.advance(piece, logits)
            for numbers in told:
                for field in fields(numbers):
                    parts.setdefault(field.name, []).append(getattr(numbers, field.name))
        for name, pieces in parts.items():
            self._columns.setdefault(name, []).append(torch.cat(pieces).cpu())

    def end(self) -> None:
        """The batch is over; only its scalars stay."""
        assert self._rows is not None
        arrays: Arrays = {
            name: torch.stack(columns, 1).numpy() for name, columns in self._columns.items()
        }
        arrays["prompt"], arrays["position"] = self._rows.prompt, self._rows.position
        self.take(arrays)
        self._rows, self._meter, self._columns = None, None, {}
