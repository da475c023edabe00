"""States of chosen tokens at every depth, as unit directions and lengths.

The cloud of a layer is the set of these directions. What a run keeps is bounded by the number of
chosen tokens, whatever the number of prompts; nothing of it is written to disk.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.probes.field.cloud import massive_tokens, widened
from flowscope.probes.tap_loop import Hears, InputBatch, Piece, TapProbe
from flowscope.records import Unavailable
from flowscope.tap import BlockPass, Chain, Tail

__all__ = ["CloudProbe"]


class CloudProbe(TapProbe):
    """Directions of chosen tokens before the first block and after every block.

    A piece has ``prompt`` and ``position`` ``[n]``; ``directions`` ``[n, 1 + blocks, width]`` in
    single precision; ``lengths`` ``[n, 1 + blocks]``; and ``massive`` ``[n]``: whether the token is
    longer than 20 times the median of its prompt at some depth, or has no length.

    Parameters
    ----------
    chosen
        Positions that are kept of each prompt, by the prompt's number, ascending.

    Attributes
    ----------
    tail
        What follows the last block, once a batch was run.
    """

    hears: ClassVar[tuple[Hears, ...]] = ("blocks",)
    purpose: ClassVar[str] = "residual stream to read"
    prefix: ClassVar[str | None] = None

    def __init__(self, chosen: Mapping[int, NDArray[np.int64]]) -> None:
        self._chosen = chosen
        self.tail: Tail | Unavailable = Unavailable("no batch was run")
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._mask = torch.zeros(0, 0, dtype=torch.bool)
        self._rows = self._places = torch.zeros(0, dtype=torch.int64)
        self._massive = torch.zeros(0, dtype=torch.bool)
        self._states: list[Tensor] = []

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Receive the chain of blocks."""
        self.tail = tail

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""
        self._prompts, self._mask, self._states = batch.prompts, batch.mask.bool(), []
        places = [self._chosen.get(int(prompt), np.zeros(0, np.int64)) for prompt in batch.prompts]
        rows = [np.full(len(at), row) for row, at in enumerate(places)]
        self._rows = torch.as_tensor(np.concatenate(rows), dtype=torch.int64)
        self._places = torch.as_tensor(np.concatenate(places), dtype=torch.int64)
        self._massive = torch.zeros(len(self._rows), dtype=torch.bool)

    def block(self, event: BlockPass) -> None:
        """Keep the chosen tokens of one block, and of what entered the first."""
        states = (event.hidden_in, event.hidden_out)
        for state in states if event.site.index == 0 else states[1:]:
            self._keep(widened(state), event.site.index)

    def _keep(self, state: Tensor, index: int) -> None:
        if state.ndim != 3:
            raise InvalidInputError(
                "the state of a block must be [batch, tokens, width]; found shape "
                f"{tuple(state.shape)}."
            )
        if not bool(state.isfinite().all()):
            raise InvalidInputError(
                f"the state after block {index + 1} is not finite: the model overflows there. "
                "Load it in a wider precision."
            )
        if self._mask.shape != state.shape[:2]:
            self._mask = torch.ones(state.shape[:2], dtype=torch.bool)
        massive = massive_tokens(self._mask.to(state.device), state).cpu()
        kept = state[self._rows.to(state.device), self._places.to(state.device)].cpu()
        self._massive |= massive[self._rows, self._places] | (kept == 0).all(-1)
        self._states.append(kept.float())

    def end(self) -> Piece:
        """Return the directions of the batch."""
        states = torch.stack(self._states, 1)
        largest = states.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        scaled = states / largest
        sizes = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        directions = scaled / sizes.clamp_min(torch.finfo(torch.float32).tiny)
        piece = Piece(
            arrays={
                "prompt": np.asarray(self._prompts)[self._rows.numpy()],
                "position": self._places.numpy(),
                "directions": directions.numpy(),
                "lengths": (largest * sizes)[..., 0].numpy(),
                "massive": self._massive.numpy(),
            }
        )
        self._states = []
        return piece
