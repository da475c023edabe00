"""Readouts: the output a model would give from hidden states of any layer, row by row or pooled."""

import torch
from torch import Tensor

from flowscope.simplex.blocks import free_bytes
from flowscope.tap import Operands, Tail

__all__ = ["Readout", "pooled_readout", "positions_readout", "rows_at_once"]

_LOGITS_AT_ONCE = 2**24
_SHARE = 4  # of a GPU's free memory, one part in four may be taken


class Readout:
    """From chosen hidden states, widened to float32, to float32 logits.

    Parameters
    ----------
    tail
        What the model does after its last block.
    pooled
        Whether whole sequences are read, of a model that pools before its output.
    operands
        What the output product reads: see `Tail.widened`.
    """

    def __init__(self, tail: Tail, *, pooled: bool = False, operands: Operands = "exact") -> None:
        self._tail, self.pooled = tail.widened(operands), pooled
        self.width = tail.width

    def __call__(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """Logits of the hidden states, in ``out`` where it is given and the readout can use it."""
        return self._tail(hidden) if self.pooled else self._tail.rows(hidden, out)


def positions_readout(tail: Tail, operands: Operands = "exact") -> Readout:
    """Logits of each chosen position on its own."""
    return Readout(tail, operands=operands)


def pooled_readout(tail: Tail, operands: Operands = "exact") -> Readout:
    """Logits of each sequence as a whole, for models that pool before their output."""
    return Readout(tail, pooled=True, operands=operands)


def rows_at_once(
    width: int, device: torch.device, most: int = _LOGITS_AT_ONCE, *, copies: int = 1
) -> int:
    """How many rows of logits are made in one call: as many as a GPU has room for, at least 16.

    Parameters
    ----------
    width
        Outcomes of a row.
    device
        Where the logits will be.
    most
        Logits of one call on the CPU, whose caches want small pieces.
    copies
        About how many tensors of the size of the logits, in float32, the caller needs beside them.

    Examples
    --------
    >>> rows_at_once(2**20, torch.device("cpu"))
    16
    """
    if device.type != "cpu":
        most = free_bytes(device) // (_SHARE * copies * torch.float32.itemsize)
    return max(most // width, 16)
