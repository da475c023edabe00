r"""How spread out each head's attention is: entropy against the entropy it could have.

For a query that sees $n$ keys the share is $H(P_i) / \log n \in [0, 1]$: 1 is uniform, 0 one key.
Rows that see a single key say nothing and are left out, and so is padding.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.probes.reducer import Reducer
from flowscope.tap import AttentionCall

__all__ = ["AttentionEntropyProbe"]

_PROBABILITIES = 2**25


class AttentionEntropyProbe(Reducer):
    """Mean entropy share of every head of a chain, kept as sums per prompt.

    Parameters
    ----------
    layers
        Number of blocks in the chain.
    chunk
        Query rows whose probabilities are formed at a time; more on a GPU, up to 2²⁵ probabilities.
    """

    keys = ("head_prompt",)

    def __init__(self, layers: int, *, chunk: int = 128) -> None:
        super().__init__()
        self._layers, self._chunk = layers, chunk
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._mask = torch.zeros(0)
        self._sums: dict[int, Tensor] = {}
        self._sizes: dict[int, Tensor] = {}

    def begin(self, prompts: NDArray[np.int64], mask: Tensor) -> None:
        """A batch starts: the prompt of each row, and which positions count."""
        self._prompts, self._mask = prompts, mask.bool()
        self._sums, self._sizes = {}, {}

    def update(self, call: AttentionCall) -> None:
        """One self-attention call of the chain; only the first of a block counts."""
        if call.cross or call.site.call != 0:
            return
        sums, sizes = [], []
        chunk = self._rows_at_once(call)
        for start in range(0, call.q.shape[-2], chunk):
            rows = slice(start, start + chunk)
            share, counted = _entropy_share(call.logits(rows))
            kept = counted & self._masked(counted.device)[:, None, rows]
            sums.append((share * kept).sum(-1, dtype=torch.float64))
            sizes.append(kept.sum(-1, dtype=torch.float64))
        if not sums:  # no query at all
            sums, sizes = ([call.q.new_zeros(call.q.shape[:2], dtype=torch.float64)] for _ in "ab")
        self._sums[call.site.index] = torch.stack(sums).sum(0)
        self._sizes[call.site.index] = torch.stack(sizes).sum(0)

    def _rows_at_once(self, call: AttentionCall) -> int:
        """Query rows of one piece: few for the caches of a CPU, many where launches cost most."""
        if call.q.is_cpu:
            return self._chunk
        keys = call.q.shape[0] * call.q.shape[1] * call.k.shape[-2]
        return max(self._chunk, _PROBABILITIES // max(keys, 1))

    def _masked(self, device: torch.device) -> Tensor:
        if self._mask.device != device:
            self._mask = self._mask.to(device)
        return self._mask

    def end(self) -> None:
        """The batch is over; ``[prompts, layers, heads]`` sums stay."""
        if len(self._sums) == self._layers:
            order = range(self._layers)
            self.take(
                {
                    "head_prompt": self._prompts,
                    "head_entropy": _columns([self._sums[i] for i in order]),
                    "head_rows": _columns([self._sizes[i] for i in order]),
                }
            )
        self._sums, self._sizes = {}, {}


def _columns(layers: list[Tensor]) -> NDArray[np.float64]:
    """Numbers of all layers on the CPU, layers on the second axis; waits once."""
    together = torch.stack([layer.to(layers[-1].device) for layer in layers], 1)
    found: NDArray[np.float64] = together.cpu().numpy()
    return found


def _entropy_share(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy share of each row, and whether the row sees at least two keys.

    Masks that are large negative numbers instead of −∞ hide a key all the same.
    """
    visible = (logits > torch.finfo(logits.dtype).min / 2).sum(-1)
    entropy = torch.special.entr(torch.softmax(logits, -1)).sum(-1)
    counted = visible >= 2
    return torch.where(counted, entropy / visible.clamp_min(2).log(), 0.0), counted
