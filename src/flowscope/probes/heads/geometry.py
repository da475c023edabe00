r"""The Markov geometry of every head, text by text: a few scalars per prompt, layer and head.

For each sequence the logits of a head are formed, its chain (`flowscope.probes.heads.chains`) is
summarised (`flowscope.markov.chain_quantities`) and they are dropped; the sectors of its scores
come from the logits without mask.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.markov import QUANTITIES, chain_quantities, quasi_quantities, sector_quantities
from flowscope.probes.heads.chains import ChainKind, HeadLogits, head_logits
from flowscope.probes.heads.curvature import hashed
from flowscope.probes.reducer import Reducer
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall
from flowscope.workers import Workers

__all__ = ["GeometryProbe", "self_attention"]

_SALT = 2  # of the permutation of keys
_TOGETHER = 2**21  # logits that are read at once: many short operations cost more than few long


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
    NaN where a head has no such number. `because` says why, by layer (from 0); `crossed` are the
    layers that attend to another sequence too, which has no chain.

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
        self.crossed: set[int] = set()

    def begin(self, prompts: NDArray[np.int64], mask: Tensor) -> None:
        """A batch starts: the prompt of each row, and which positions count."""
        self._prompts, self._mask = prompts, mask.bool().cpu()
        self._found, self._tokens = {}, np.zeros(len(prompts), np.int64)

    def update(self, call: AttentionCall) -> None:
        """One attention call of the chain of blocks; the first of a block counts."""
        layer = call.site.index
        if call.cross:
            self.crossed.add(layer)
        if layer in self._found:
            return
        refused = self_attention(call)
        if refused:
            self.because.setdefault(layer, refused)
            return
        self.because.pop(layer, None)
        heads = call.q.shape[-3]
        found = np.full((len(QUANTITIES), len(self._prompts), heads), np.nan)
        workers = _pool(torch.get_num_threads() if call.q.device.type == "cpu" else 1)
        workers.each(
            lambda _, rows: self._read(call, rows, found), self._groups(call, workers.count)
        )
        self._found[layer] = found

    def _groups(self, call: AttentionCall, count: int) -> list[list[int]]:
        """Sequences of one length to be read together, one group or more for each worker."""
        tokens = call.q.shape[-2]
        for row, mask in enumerate(self._mask):
            # A mask of one entry stands for a whole image: all its patches count.
            self._tokens[row] = int(mask.sum()) if len(mask) == tokens else tokens
        groups: list[list[int]] = []
        for length in np.unique(self._tokens):
            rows = np.flatnonzero(self._tokens == length).tolist()
            size = max(-(-len(rows) // count), 1)
            groups += [rows[k : k + size] for k in range(0, len(rows), size)]
        return groups

    @torch.no_grad()
    def _read(self, call: AttentionCall, rows: list[int], found: NDArray[np.float64]) -> None:
        """Every quantity of every head on some sequences, into ``[quantities, rows, heads]``."""
        layer, tokens = call.site.index, call.q.shape[-2]
        held: list[_Piece] = []
        for row in rows:
            mask = self._mask[row]
            at = mask.nonzero()[:, 0] if len(mask) == tokens else None
            for part in head_logits(call, row, at):
                piece = self._piece(part, row)
                if isinstance(piece, Unavailable):
                    self.because[layer] = piece.reason
                    continue
                held.append(piece)
                if sum(one.logits.numel() for one in held) >= _TOGETHER:
                    self._fill(found, held, layer)
                    held = []
        if held:
            self._fill(found, held, layer)

    def _piece(self, part: HeadLogits, row: int) -> "_Piece | Unavailable":
        logits = part.of_chain(self._chain)
        if isinstance(logits, Unavailable):
            return logits
        if self._permuted:
            if not bool(logits.isfinite().all()):
                return Unavailable("a mask says which keys there are: they cannot be permuted")
            keys = hashed(int(self._prompts[row]), np.arange(logits.shape[-1]), _SALT)
            order = torch.as_tensor(np.argsort(keys, kind="stable"), device=logits.device)
            return _Piece(row, part.heads, logits[..., order], None)
        every = part.visible is None or (not part.mutual and not part.biased)
        return _Piece(row, part.heads, logits, part.free if every else None)

    def _fill(self, found: NDArray[np.float64], held: list["_Piece"], layer: int) -> None:
        """The quantities of some pieces at once; one by one where one of them is refused."""
        try:
            values = self._quantities(held)
        except FlowscopeError as error:
            if len(held) == 1:
                self.because[layer] = str(error)
            else:
                for piece in held:
                    self._fill(found, [piece], layer)
            return
        done = 0
        for piece in held:
            size = len(piece.logits)
            found[:, piece.row, piece.heads] = values[:, done : done + size]
            done += size

    def _quantities(self, held: list["_Piece"]) -> NDArray[np.float64]:
        logits = torch.cat([piece.logits for piece in held]) if len(held) > 1 else held[0].logits
        if self._chain == "quasi-stationary":
            values = quasi_quantities(logits)
        else:
            values = chain_quantities(logits, self._damping if self._chain == "damped" else 0.0)
        free = [piece.free for piece in held if piece.free is not None]
        if len(free) == len(held):
            same = all(piece.free is piece.logits for piece in held)
            values |= sector_quantities(logits if same else torch.cat(free))
        blank = torch.full((len(logits),), torch.nan)
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


class _Piece(NamedTuple):
    """Logits of the chain of some heads on one sequence, and those of every pair if there are."""

    row: int
    heads: slice
    logits: Tensor
    free: Tensor | None
