r"""Chains of every head, text by text: what the probes of heads have in common.

For each sequence the logits of a head are formed, its chain (`flowscope.probes.heads.chains`) is
summarised and they are dropped. What is summarised is for a subclass to say.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.probes.heads.chains import ChainKind, HeadLogits, head_logits
from flowscope.probes.reducer import Reducer
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall
from flowscope.workers import Workers

__all__ = ["ChainPiece", "ChainProbe", "self_attention"]

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


class ChainPiece(NamedTuple):
    """Logits of the chain of some heads on one sequence.

    Attributes
    ----------
    row, prompt, layer
        Which sequence of the batch, the number of its prompt, and the layer, from 0.
    heads
        Which heads.
    logits
        Those of the chain.
    free
        Those of every pair, where there are such.
    """

    row: int
    prompt: int
    layer: int
    heads: slice
    logits: Tensor
    free: Tensor | None


class ChainProbe(Reducer, ABC):
    """Numbers of the chain of every head of a model's chain of blocks.

    `arrays` has one row per prompt: ``PREFIX_prompt``, ``PREFIX_tokens``, and for each name of
    `names` an array ``PREFIX_NAME`` of shape ``[prompts, layers, heads]``, NaN where a head has no
    such number. `because` says why, by layer (from 0); `crossed` are the layers that attend to
    another sequence too, which has no chain.

    Parameters
    ----------
    layers
        Number of blocks in the chain of blocks.
    chain, damping
        Which kernel walks, and the probability δ of a jump for the damped one.
    """

    prefix: ClassVar[str] = "chain"

    def __init__(
        self, layers: int, *, chain: ChainKind = "unmasked", damping: float = 0.01
    ) -> None:
        super().__init__()
        self.keys = (f"{self.prefix}_prompt",)
        self._layers, self._chain, self._damping = layers, chain, damping
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._mask = torch.zeros(0)
        self._tokens: NDArray[np.int64] = np.zeros(0, np.int64)
        self._values: dict[int, NDArray[np.float64]] = {}
        self.because: dict[int, str] = {}
        self.crossed: set[int] = set()

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""

    @abstractmethod
    def _quantities(self, pieces: list[ChainPiece], logits: Tensor) -> NDArray[np.float64]:
        """Numbers of some heads, ``[names, heads]``, in the order of the joined logits."""

    def _refused(self, logits: Tensor) -> str:
        """Why these logits are not read; empty where they are."""
        return ""

    @property
    def _jump(self) -> float:
        """Probability of a jump of the chain that walks."""
        return self._damping if self._chain == "damped" else 0.0

    def begin(self, prompts: NDArray[np.int64], mask: Tensor) -> None:
        """A batch starts: the prompt of each row, and which positions count."""
        self._prompts, self._mask = prompts, mask.bool().cpu()
        self._values, self._tokens = {}, np.zeros(len(prompts), np.int64)

    def update(self, call: AttentionCall) -> None:
        """One attention call of the chain of blocks; the first of a block counts."""
        layer = call.site.index
        if call.cross:
            self.crossed.add(layer)
        if layer in self._values:
            return
        refused = self_attention(call)
        if refused:
            self.because.setdefault(layer, refused)
            return
        self.because.pop(layer, None)
        heads = call.q.shape[-3]
        values = np.full((len(self.names), len(self._prompts), heads), np.nan)
        workers = _pool(torch.get_num_threads() if call.q.device.type == "cpu" else 1)
        workers.each(
            lambda _, rows: self._read(call, rows, values), self._groups(call, workers.count)
        )
        self._values[layer] = values

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
    def _read(self, call: AttentionCall, rows: list[int], values: NDArray[np.float64]) -> None:
        """Every number of every head on some sequences, into ``[names, rows, heads]``."""
        layer, tokens = call.site.index, call.q.shape[-2]
        held: list[ChainPiece] = []
        for row in rows:
            mask = self._mask[row]
            at = mask.nonzero()[:, 0] if len(mask) == tokens else None
            for part in head_logits(call, row, at):
                piece = self._piece(part, row, layer)
                if isinstance(piece, Unavailable):
                    self.because[layer] = piece.reason
                    continue
                held.append(piece)
                if sum(piece.logits.numel() for piece in held) >= _TOGETHER:
                    self._fill(values, held, layer)
                    held = []
        if held:
            self._fill(values, held, layer)

    def _piece(self, part: HeadLogits, row: int, layer: int) -> ChainPiece | Unavailable:
        logits = part.of_chain(self._chain)
        if isinstance(logits, Unavailable):
            return logits
        refused = self._refused(logits)
        if refused:
            return Unavailable(refused)
        every = part.visible is None or (not part.mutual and not part.biased)
        prompt = int(self._prompts[row])
        return ChainPiece(row, prompt, layer, part.heads, logits, part.free if every else None)

    def _fill(self, values: NDArray[np.float64], held: list[ChainPiece], layer: int) -> None:
        """The numbers of some pieces at once; one by one where one of them is refused."""
        logits = torch.cat([piece.logits for piece in held]) if len(held) > 1 else held[0].logits
        try:
            numbers = self._quantities(held, logits)
        except FlowscopeError as error:
            if len(held) == 1:
                self.because[layer] = str(error)
            else:
                for piece in held:
                    self._fill(values, [piece], layer)
            return
        done = 0
        for piece in held:
            size = len(piece.logits)
            values[:, piece.row, piece.heads] = numbers[:, done : done + size]
            done += size

    def end(self) -> None:
        """The batch is over; scalars per prompt, layer and head stay."""
        if self._values:
            heads = max(values.shape[-1] for values in self._values.values())
            shape = (len(self.names), len(self._prompts), self._layers, heads)
            whole = np.full(shape, np.nan)
            for layer, values in self._values.items():
                whole[:, :, layer, : values.shape[-1]] = values
            table = {f"{self.prefix}_{name}": whole[k] for k, name in enumerate(self.names)}
            rows = {"prompt": self._prompts, "tokens": self._tokens}
            self.take({**{f"{self.prefix}_{name}": v for name, v in rows.items()}, **table})
        self._values = {}
