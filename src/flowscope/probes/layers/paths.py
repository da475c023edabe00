"""Whole depth paths of a few sampled tokens: what a flow is fitted to and judged on.

A path is the hidden state of one token after every block. Keeping those of a whole run would be
keeping its activations; a bounded number per prompt, chosen by the smallest hash, is enough for a
drift and the same whatever the batches were.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.probes.heads.curvature import hashed
from flowscope.probes.layers.depth import Rows
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.tap import BlockPass

__all__ = ["PathProbe", "Paths", "sampled_rows"]


def sampled_rows(rows: Rows, count: int) -> NDArray[np.int64]:
    """Which rows of a batch are sampled: at most ``count`` per prompt, by the smallest hash."""
    chosen = []
    for prompt in np.unique(rows.prompt):
        own = np.flatnonzero(rows.prompt == prompt)
        order = np.argsort(hashed(int(prompt), rows.position[own]), kind="stable")
        chosen.append(own[order[:count]])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


class Paths(NamedTuple):
    """Paths of sampled tokens, sorted by prompt and position; the states are where the model is.

    ``hidden`` is ``[rows, L + 1, d]``, ``between`` ``[rows, L, writes − 1, d]`` or None.
    """

    prompt: NDArray[np.int64]
    position: NDArray[np.int64]
    hidden: Tensor
    between: Tensor | None


class PathProbe(Reducer):
    """Hidden states of sampled tokens at every layer.

    `arrays` has one row per token: ``path_prompt``, ``path_position``, ``path_hidden``
    ``[rows, L + 1, d]``, and with ``between`` the states between the writes of each block,
    ``path_between`` ``[rows, L, writes − 1, d]``, where every block has the same number of them.
    `paths` has the same without a copy to the CPU.

    Parameters
    ----------
    positions
        Tokens per prompt, by the smallest hash; fewer positions give a subset of more.
    between
        Whether to keep what the residual stream is between two writes of a block.
    """

    keys = ("path_prompt", "path_position")

    def __init__(self, *, positions: int, between: bool = False) -> None:
        super().__init__()
        self._positions, self._asked = positions, between
        self._rows: Rows | None = None
        self._sampled: Rows | None = None
        self._states: list[Tensor] = []
        self._between: list[Tensor] = []
        self._batches: list[Paths] = []

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        self._rows, self._states, self._between = rows, [], []
        self._sampled = rows.at(sampled_rows(rows, self._positions))

    def update(self, event: BlockPass) -> None:
        """One block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("A path probe must begin a batch before it is updated.")
        if event.site.index == 0:
            self._states.append(self._taken(event.hidden_in))
        self._states.append(self._taken(event.hidden_out))
        if self._asked and len(event.writes) > 1:
            state, along = self._taken(event.hidden_in), []
            for write in event.writes[:-1]:
                state = state + self._taken(write.tensor)
                along.append(state)
            self._between.append(torch.stack(along, 1))

    def _taken(self, hidden: Tensor) -> Tensor:
        assert self._sampled is not None
        rows = self._sampled.taken(hidden)
        return rows.to(torch.promote_types(rows.dtype, torch.float32), copy=True)

    def end(self) -> None:
        """The batch is over; the paths of its sampled tokens stay."""
        assert self._sampled is not None
        between = None
        if len(self._between) == len(self._states) - 1:
            same = len({part.shape for part in self._between}) == 1
            between = torch.stack(_together(self._between), 1) if same else None
        sampled, hidden = self._sampled, torch.stack(_together(self._states), 1)
        self._batches.append(Paths(sampled.prompt, sampled.position, hidden, between))
        self._rows, self._sampled, self._states, self._between = None, None, [], []

    def paths(self) -> Paths:
        """Paths of all batches."""
        prompt, position = (
            np.concatenate([getattr(batch, name) for batch in self._batches])
            for name in ("prompt", "position")
        )
        order = np.lexsort([position, prompt])
        rows = torch.from_numpy(order)
        parts = [batch.between for batch in self._batches if batch.between is not None]
        whole = len(parts) == len(self._batches)
        return Paths(
            prompt=prompt[order],
            position=position[order],
            hidden=_in_order([batch.hidden for batch in self._batches], rows),
            between=_in_order(parts, rows) if whole else None,
        )

    def merge(self, other: Self) -> None:
        """Add everything another probe of the same kind has kept."""
        self._batches.extend(other._batches)

    def clear(self) -> None:
        """Forget everything that was kept."""
        self._batches.clear()

    def arrays(self) -> Arrays:
        """The same as one table on the CPU; empty when nothing was kept."""
        if not self._batches:
            return {}
        found = self.paths()
        arrays: Arrays = {
            "path_prompt": found.prompt,
            "path_position": found.position,
            "path_hidden": found.hidden.cpu().numpy(),
        }
        if found.between is not None:
            arrays["path_between"] = found.between.cpu().numpy()
        return arrays


def _together(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors of blocks that may lie on several devices, on that of the last."""
    return [tensor.to(tensors[-1].device) for tensor in tensors]


def _in_order(parts: list[Tensor], rows: Tensor) -> Tensor:
    whole = torch.cat(parts)
    return whole[rows.to(whole.device)]
