"""The depth path of a batch: every state and step statistic, layer by layer, as blocks pass.

At each block the output the model would give from there is replayed through the tail and compared
with the one before. One buffer of logits for the tokens of the *batch* is held, whatever the number
of layers or prompts; what is kept per token and layer is a few scalars.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.flows import DepthMeter
from flowscope.probes.layers.readouts import Readout, rows_at_once
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.tap import BlockPass

__all__ = ["DepthProbe", "Rows"]


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

    def at(self, numbers: NDArray[np.int64]) -> Self:
        """Some of the rows that count, by their numbers in ascending order."""
        places = self._numbers[torch.from_numpy(numbers)]
        chosen = torch.zeros(self.chosen.numel(), dtype=torch.bool)
        chosen[places] = True
        return type(self)(
            prompt=self.prompt[numbers],
            position=self.position[numbers],
            chosen=chosen.reshape(self.chosen.shape),
        )

    def taken(self, hidden: Tensor) -> Tensor:
        """The rows of a hidden state ``[batch, length, d]`` that count, as ``[rows, d]``."""
        flat = hidden.detach().flatten(0, 1)
        if len(self._numbers) == len(flat):
            return flat
        if hidden.device not in self._places:  # once per device: a mask would make the host wait
            self._places[hidden.device] = self._numbers.to(hidden.device)
        return flat.index_select(0, self._places[hidden.device])

    def places_of(self, others: "Rows") -> Tensor | None:
        """Numbers, among these rows, of others of the batch; None where one is not here."""
        if self.chosen.shape != others.chosen.shape:
            return None
        mine, wanted = self._numbers, others._numbers
        found = torch.searchsorted(mine, wanted).clamp_max(max(len(mine) - 1, 0))
        here = len(mine) > 0 and torch.equal(mine[found], wanted)
        return found if here else None

    @cached_property
    def _numbers(self) -> Tensor:
        return self.chosen.cpu().flatten().nonzero()[:, 0]

    @cached_property
    def _places(self) -> dict[torch.device, Tensor]:
        return {}


class DepthProbe(Reducer):
    """Reduces block passes to scalars per token and layer.

    ``update`` takes the passes of one chain and stream in order; ``begin`` and ``end`` bracket a
    batch. `arrays` has one row per token: state statistics ``[rows, L + 1]``, step statistics
    ``[rows, L]``.

    Parameters
    ----------
    readout
        From chosen hidden states to logits (`positions_readout`, `pooled_readout`); of a pooled
        one a batch row is one row. As many rows are read at a time as fill a few megabytes, and on
        a GPU as fit.
    """

    keys = ("prompt", "position")

    def __init__(self, readout: Readout) -> None:
        super().__init__()
        self._readout, self._pooled = readout, readout.pooled
        self._chunk = 0
        self._rows: Rows | None = None
        self._meter: DepthMeter | None = None
        self._state = -1  # the newest that was read in this batch

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        if self._rows is not None:  # the last batch broke off
            self._meter = None
        self._rows, self._chunk, self._state = rows, 0, -1

    def update(self, event: BlockPass) -> None:
        """One block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("A depth probe must begin a batch before it is updated.")
        if event.site.index == 0:
            if not self._pooled:
                self._rows = self._rows.over(event.hidden_in.shape[1])
            self._advance(event.hidden_in)
        self._advance(event.hidden_out)

    def places_of(self, rows: Rows) -> Tensor | None:
        """Numbers of other rows of the batch for `held_logits`; None where they are not read."""
        return None if self._rows is None or self._pooled else self._rows.places_of(rows)

    def held_logits(self, state: int, places: Tensor) -> Tensor | None:
        """Logits of some rows at one of the two newest states of the batch; None at any other."""
        back = self._state - state
        if self._rows is None or self._meter is None or back not in (0, 1):
            return None
        # A model may be split over devices: its logits are where its head is.
        return self._meter.held(places.to(self._meter.device), before=back == 1)

    def _advance(self, hidden: Tensor) -> None:
        assert self._rows is not None
        self._state += 1
        chosen = hidden.detach() if self._pooled else self._rows.taken(hidden)
        chosen = chosen.to(torch.promote_types(hidden.dtype, torch.float32))
        self._chunk = self._chunk or rows_at_once(self._readout.width, hidden.device)
        for start in range(0, len(chosen), self._chunk):
            piece = slice(start, min(start + self._chunk, len(chosen)))
            meter = self._meter
            fits = meter is not None and meter.device.type != "cpu" and meter.rows == len(chosen)
            logits = self._readout(chosen[piece], meter.room(piece) if meter and fits else None)
            self._fitting_meter(len(chosen), logits).record(piece, logits)

    def _fitting_meter(self, rows: int, logits: Tensor) -> DepthMeter:
        """The meter of the batch before, where it fits, or another."""
        meter, width = self._meter, logits.shape[-1]
        if meter is not None and meter.fits(rows, width, logits.dtype, logits.device):
            return meter
        self._meter = DepthMeter(rows, width, dtype=logits.dtype, device=logits.device)
        return self._meter

    def end(self) -> None:
        """The batch is over; only its scalars stay."""
        assert self._rows is not None
        arrays: Arrays = {}
        for numbers in () if self._meter is None else self._meter.recorded():
            arrays |= {name: column.cpu().numpy() for name, column in vars(numbers).items()}
        arrays["prompt"], arrays["position"] = self._rows.prompt, self._rows.position
        self.take(arrays)
        self._rows = None
        if self._meter is not None and self._meter.device.type == "cpu":
            self._meter = None  # its logits are memory that the next pass of the model wants
