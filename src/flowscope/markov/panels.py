"""Rectangles of large matrices, one after the other in one piece of memory."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["Scratch", "Tiles", "rectangles"]

Tiles: TypeAlias = Callable[[slice, slice], Tensor]
"""Rows and columns in, the rectangle out; to be used up before the next one is asked for."""


class Scratch:
    """One piece of memory for rectangles that come one after the other.

    A new tensor for each would leave the heap in pieces: three times the memory, on some days.
    """

    def __init__(self) -> None:
        self._held = torch.empty(0)

    def room(self, shape: tuple[int, int], like: Tensor) -> Tensor:
        """Room for a rectangle of that shape, of the kind of another tensor."""
        size = shape[0] * shape[1]
        if self._held.numel() < size:
            self._held = like.new_empty(size)
        return self._held[:size].view(shape)

    def like(self, tensor: Tensor) -> Tensor:
        """Room for a rectangle like this one."""
        return self.room((tensor.shape[0], tensor.shape[1]), tensor)


def rectangles(left: Tensor, right: Tensor) -> Tiles:
    """Rectangles of left · rightᵀ in one piece of memory."""
    scratch = Scratch()

    def tile(rows: slice, columns: slice) -> Tensor:
        a, b = left[rows], right[columns]
        return torch.mm(a, b.mT, out=scratch.room((len(a), len(b)), a))

    return tile
