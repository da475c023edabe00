"""Batches drawn on the device: a symmetry of a grid, and which of its cells are masked."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from flowscope.nets.sudoku import SHAPES, Shape
from flowscope.nets.sudoku.text import cells_in_text, tokens_of

__all__ = ["Source", "sources"]


class Source:
    """The rows of one task on a device.

    Half or more of the masks (``unique``) are subsets of a deep puzzle's blanks, of a size uniform
    from one to all of them: the masked digits follow from the others. The rest are uniform masks at
    a uniform level, as a diffusion over masks has them; there several digits may fit.
    """

    def __init__(
        self, shape: Shape, grids: np.ndarray, empty: np.ndarray, unique: float, device: str
    ) -> None:
        self.shape, self.unique, self.device = shape, unique, torch.device(device)
        self.grids = torch.from_numpy(grids.astype(np.int64)).to(device)
        self.empty = torch.from_numpy(empty).to(device)
        blank = tokens_of(np.zeros((1, shape.cells), dtype=np.uint8), shape)
        self.blank = torch.from_numpy(blank.astype(np.int64)).to(device)
        self.cells = torch.from_numpy(cells_in_text(shape)).to(device)
        self.first_digit = int(tokens_of(np.ones((1, shape.cells), np.uint8), shape)[0][-2])

    @property
    def tokens(self) -> int:
        """Length of a text."""
        return self.blank.shape[1]

    def batch(self, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Masked texts, the digits of all cells (from 0), and which cells are masked."""
        rows = torch.randint(len(self.grids), (count,), device=self.device, generator=draw)
        cells = self._moved(count, draw)
        digits = self.grids[rows].gather(1, cells) - 1
        empty = self.empty[rows].gather(1, cells)
        digits = self._order((count, self.shape.side), draw).gather(1, digits)
        masked = self._masked(empty, draw)
        texts = self.blank.repeat(count, 1)
        texts[:, self.cells] = torch.where(masked, 0, digits + self.first_digit)
        return texts, digits, masked

    def _order(self, size: tuple[int, ...], draw: torch.Generator) -> Tensor:
        return torch.rand(size, device=self.device, generator=draw).argsort(-1)

    def _moved(self, count: int, draw: torch.Generator) -> Tensor:
        """Where each cell is taken from, for a random symmetry in every row."""
        shape, side = self.shape, self.shape.side
        rows = self._lines(count, shape.high, shape.wide, draw)
        columns = self._lines(count, shape.wide, shape.high, draw)
        cells = rows[:, :, None] * side + columns[:, None, :]
        if shape.high == shape.wide:
            turned = torch.rand((count, 1, 1), device=self.device, generator=draw) < 0.5
            cells = torch.where(turned, cells.mT, cells)
        return cells.reshape(count, -1)

    def _lines(self, count: int, high: int, wide: int, draw: torch.Generator) -> Tensor:
        bands = self._order((count, wide), draw)[:, :, None] * high
        return (bands + self._order((count, wide, high), draw)).reshape(count, -1)

    def _masked(self, empty: Tensor, draw: torch.Generator) -> Tensor:
        count, cells = empty.shape
        chance = torch.rand((3, count, 1), device=self.device, generator=draw)
        noise = torch.rand((count, cells), device=self.device, generator=draw)
        size = 1 + (chance[0] * empty.sum(1, keepdim=True)).long()
        place = torch.where(empty, noise, 2.0).argsort(1).argsort(1)
        anywhere = noise.argsort(1).argsort(1) < 1 + (chance[1] * cells).long()
        return torch.where(chance[2] < self.unique, place < size, anywhere)


def sources(path: Path, unique: float, device: str) -> dict[str, Source]:
    """The sources of a file of `studies.denoising_training.data`."""
    with np.load(path) as content:
        return {
            task: Source(
                shape,
                content[f"{task}/grids"],
                np.unpackbits(content[f"{task}/empty"], axis=1, count=shape.cells).astype(bool),
                unique,
                device,
            )
            for task, shape in SHAPES.items()
        }
