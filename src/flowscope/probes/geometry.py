r"""The Markov geometry of every head, text by text: a few scalars per prompt, layer and head.

For each sequence the logits of a head are formed, its chain (`flowscope.probes.chains`) is
summarised (`flowscope.markov.chain_summary`) and they are dropped; the sectors of its scores come
from the logits without mask.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.markov import QUANTITIES, chain_quantities, quasi_quantities, sector_quantities
from flowscope.probes.chains import ChainKind, HeadLogits, head_logits
from flowscope.probes.curvature import hashed
from flowscope.probes.reducer import Reducer
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall
from flowscope.workers import Workers

__all__ = ["GeometryProbe", "self_attention"]

_SALT = 2  # of the permutation of keys


@cache
def _pool(count: int) -> Workers:
    return Workers(count)


def self_attention(call: AttentionCall) -> str:
    """Why a call has no chain of its own; empty when it has."""
    if call.cross:
        return "cross-attention has no diagonal: its queries and keys are not the same tokens"
    if call.q.ndim != 4 or call.q.shape[-2] != call.k.shape[-2]:
        return (
            f"{call.q.shape[-2]} queries meet {call.k.shape[-2]} keys, as with a key-value cache "
            "or memory tokens: a chain needs the same tokens on both sides"
        )
    return ""


class GeometryProbe(Reducer):
    """Statistics of the chain of every head of a model's chain of blocks.

    `arrays` has one row per prompt: ``geometry_prompt``, ``geometry_tokens``, and for each name of
    `flowscope.markov.QUANTITIES` an array ``geometry_NAME`` of shape ``[prompts, layers, heads]``,
    NaN where a head has no such number. `because` says why, by layer (from 0).

    Parameters
    ----------
    layers
        Number of blocks in the chain of blocks.
    chain, damping
        Which kernel walks, and the probability δ of a jump for the damped one.
    permuted
        Whether the keys of a prompt are permuted, all rows and heads alike, before anything is
        read. Every row keeps its weights and so its effective keys, some token keeps being the one
        that all look at, but where $i$ looks has nothing to do with where $j$ looks: what is left
        is the irreversibility of unrelated directions. Only where every pair is there.
    """

    keys = ("geometry_prompt",)

    def __init__(
        self,
        layers: int,
        *,
        chain: ChainKind = "unmasked",
        damping: float = 0.01,
        permuted: bool = False,
    ) -> None:
        super().__init__()
        self._layers, self._chain, self._damping = layers, chain, damping
        self._permuted = permuted
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._mask = torch.zeros(0)
        self._tokens: NDArray[np.int64] = np.zeros(0, np.int64)
        self._found: dict[int, NDArray[np.float64]] = {}
        self.because: dict[int, str] = {}

    def begin(self, prompts: NDArray[np.int64], mask: Tensor) -> None:
        """A batch starts: the prompt of each row, and which positions count."""
        self._prompts, self._mask = prompts, mask.bool().cpu()
        self._found, self._tokens = {}, np.zeros(len(prompts), np.int64)

    def update(self, call: AttentionCall) -> None:
        """One attention call of the chain of blocks; the first of a block counts."""
        layer = call.site.index
        if layer in self._found:
            return
        refused = self_attention(call)
        if refused:
            self.because.setdefault(layer, refused)
            return
        self.because.pop(layer, None)
        rows = self._workers(call).each(lambda _, row: self._row(call, row), self._rows())
        self._found[layer] = np.stack(rows, 1)

    def _rows(self) -> range:
        return range(len(self._prompts))

    def _workers(self, call: AttentionCall) -> Workers:
        """Threads that take whole sequences: their operations are too short to be divided."""
        many = call.q.device.type == "cpu" and len(self._prompts) > 1
        return _pool(torch.get_num_threads() if many else 1)

    @torch.no_grad()
    def _row(self, call: AttentionCall, row: int) -> NDArray[np.float64]:
        """Every quantity of every head on one sequence, ``[quantities, heads]``."""
        mask, tokens = self._mask[row], call.q.shape[-2]
        # A mask of one entry stands for a whole image: all its patches count.
        at = mask.nonzero()[:, 0] if len(mask) == tokens else torch.arange(tokens)
        self._tokens[row] = len(at)
        found = np.full((len(QUANTITIES), call.q.shape[-3]), np.nan)
        for part in head_logits(call, row, at):
            try:
                found[:, part.heads] = self._quantities(part, int(self._prompts[row]))
            except FlowscopeError as error:
                self.because[call.site.index] = str(error)
        return found

    def _quantities(self, part: HeadLogits, prompt: int) -> NDArray[np.float64]:
        logits = part.of_chain(self._chain)
        if isinstance(logits, Unavailable):
            raise _RefusedError(logits.reason)
        if self._permuted:
            logits = _with_permuted_keys(logits, prompt)
        if self._chain == "quasi-stationary":
            values = quasi_quantities(logits)
        else:
            values = chain_quantities(logits, self._damping if self._chain == "damped" else 0.0)
        every = part.visible is None or (not part.mutual and not part.biased)
        if every and not self._permuted:
            values |= sector_quantities(part.free)
        blank = torch.full((len(part.free),), torch.nan)
        columns = [values.get(name, blank).double().cpu() for name in QUANTITIES]
        return np.stack([column.numpy() for column in columns])

    def end(self) -> None:
        """The batch is over; scalars per prompt, layer and head stay."""
        if self._found:
            heads = max(values.shape[-1] for values in self._found.values())
            shape = (len(QUANTITIES), len(self._prompts), self._layers, heads)
            whole = np.full(shape, np.nan)
            for layer, values in self._found.items():
                whole[:, :, layer, : values.shape[-1]] = values
            table = {f"geometry_{name}": whole[k] for k, name in enumerate(QUANTITIES)}
            self.take({"geometry_prompt": self._prompts, "geometry_tokens": self._tokens, **table})
        self._found = {}


def _with_permuted_keys(logits: Tensor, prompt: int) -> Tensor:
    if not bool(logits.isfinite().all()):
        raise _RefusedError("a mask says which keys there are: they cannot be permuted")
    order = np.argsort(hashed(prompt, np.arange(logits.shape[-1]), _SALT), kind="stable")
    return logits[..., torch.as_tensor(order, device=logits.device)]


class _RefusedError(FlowscopeError):
    """A head that has no chain of the kind that was asked for."""
