"""Whole depth paths of a few sampled tokens: what a flow is fitted to and judged on.

A path is the hidden state of one token after every block. Keeping those of a whole run would be
keeping its activations; a bounded number per prompt, chosen by the smallest hash, is enough for a
drift and the same whatever the batches were.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.probes.heads.curvature import hashed
from flowscope.probes.layers.depth import Rows
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.tap import BlockPass

__all__ = ["PathProbe", "sampled_rows"]


def sampled_rows(rows: Rows, count: int) -> NDArray[np.int64]:
    """Which rows of a batch are sampled: at most ``count`` per prompt, by the smallest hash."""
    chosen = []
    for prompt in np.unique(rows.prompt):
        own = np.flatnonzero(rows.prompt == prompt)
        order = np.argsort(hashed(int(prompt), rows.position[own]), kind="stable")
        chosen.append(own[order[:count]])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


class PathProbe(Reducer):
    """Hidden states of sampled tokens at every layer.

    `arrays` has one row per token: ``path_prompt``, ``path_position``, ``path_hidden``
    ``[rows, L + 1, d]``, and with ``between`` the states between the writes of each block,
    ``path_between`` ``[rows, L, writes − 1, d]``, where every block has the same number of them.

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
        self._chosen: NDArray[np.int64] = np.zeros(0, np.int64)
        self._states: list[Tensor] = []
        self._between: list[Tensor] = []

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        self._rows, self._states, self._between = rows, [], []
        self._chosen = sampled_rows(rows, self._positions)

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
        assert self._rows is not None
        rows = hidden.detach()[self._rows.chosen.to(hidden.device)]
        rows = rows[torch.as_tensor(self._chosen, device=rows.device)]
        return rows.to(torch.promote_types(rows.dtype, torch.float32)).cpu()

    def end(self) -> None:
        """The batch is over; the paths of its sampled tokens stay."""
        assert self._rows is not None
        arrays: Arrays = {
            "path_prompt": self._rows.prompt[self._chosen],
            "path_position": self._rows.position[self._chosen],
            "path_hidden": torch.stack(self._states, 1).numpy(),
        }
        if len(self._between) == len(self._states) - 1:
            same = len({part.shape for part in self._between}) == 1
            if same:
                arrays["path_between"] = torch.stack(self._between, 1).numpy()
        self.take(arrays)
        self._rows, self._states, self._between = None, [], []
