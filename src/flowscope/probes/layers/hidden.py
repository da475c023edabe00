"""Variation of the hidden states themselves, where a model has no output to read along depth."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.probes.layers.depth import Rows
from flowscope.probes.reducer import Reducer
from flowscope.tap import BlockPass

__all__ = ["HiddenProbe"]


class HiddenProbe(Reducer):
    """Squared steps and norms of the hidden state, per token and layer.

    It has the methods of `DepthProbe`; the arrays are ``step_sq`` ``[rows, L]`` and ``state_sq``
    ``[rows, L + 1]`` in the space of hidden states, not of logits.
    """

    keys = ("prompt", "position")

    def __init__(self) -> None:
        super().__init__()
        self._rows: Rows | None = None
        self._steps: list[Tensor] = []
        self._states: list[Tensor] = []

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        self._rows, self._steps, self._states = rows, [], []

    def update(self, event: BlockPass) -> None:
        """One block of the batch."""
        assert self._rows is not None
        if event.site.index == 0:
            self._rows = self._rows.over(event.hidden_in.shape[1])
        before, after = (
            self._rows.taken(hidden).to(torch.float32)
            for hidden in (event.hidden_in, event.hidden_out)
        )
        if event.site.index == 0:
            self._states.append(before.square().sum(-1))
        self._steps.append((after - before).square().sum(-1))
        self._states.append(after.square().sum(-1))

    def end(self) -> None:
        """The batch is over; only its scalars stay."""
        assert self._rows is not None
        self.take(
            {
                "step_sq": _columns(self._steps),
                "state_sq": _columns(self._states),
                "prompt": self._rows.prompt,
                "position": self._rows.position,
            }
        )
        self._rows = None


def _columns(layers: list[Tensor]) -> NDArray[np.float32]:
    """Numbers of every layer side by side, from wherever each layer was."""
    together = torch.stack([layer.to(layers[0].device) for layer in layers], 1)
    found: NDArray[np.float32] = together.cpu().numpy()
    return found
