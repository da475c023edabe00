"""Shapes of sudoku: how many cells, and which cells hold every digit once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from flowscope.errors import InvalidInputError

__all__ = ["SHAPES", "Shape", "shape_named"]


@dataclass(frozen=True)
class Shape:
    """A square of ``side`` × ``side`` cells, cut into boxes of ``high`` × ``wide`` cells.

    ``fewest`` and ``most`` bound the blanks of a puzzle where nothing else is asked for; of random
    grids at least a quarter can be dug down to ``deepest`` blanks.
    """

    name: str
    high: int
    wide: int
    fewest: int
    most: int
    deepest: int

    @property
    def side(self) -> int:
        """Rows, columns, boxes, digits."""
        return self.high * self.wide

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.side**2

    @cached_property
    def units(self) -> Int[np.ndarray, "units side"]:
        """Cells of every row, then of every column, then of every box."""
        cells = np.arange(self.cells).reshape(self.side, self.side)
        boxes = cells.reshape(self.wide, self.high, self.high, self.wide).swapaxes(1, 2)
        return np.concatenate([cells, cells.T, boxes.reshape(self.side, self.side)])

    @cached_property
    def units_of_cells(self) -> Int[np.ndarray, "cells three"]:
        """The row, the column and the box of every cell, as rows of ``units``."""
        found = np.empty((self.cells, 3), dtype=np.int64)
        for kind in range(3):
            for unit in range(kind * self.side, (kind + 1) * self.side):
                found[self.units[unit], kind] = unit
        return found


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("sudoku-4x4", high=2, wide=2, fewest=4, most=10, deepest=11),
        Shape("sudoku-6x6", high=2, wide=3, fewest=12, most=24, deepest=26),
        Shape("sudoku-9x9", high=3, wide=3, fewest=25, most=50, deepest=57),
    )
}
"""Shapes by the name of their task."""


def shape_named(name: str) -> Shape:
    """The shape of a task.

    Raises
    ------
    InvalidInputError
        When no task has this name.
    """
    if name not in SHAPES:
        raise InvalidInputError(f"The tasks are {', '.join(SHAPES)}; got {name!r}.")
    return SHAPES[name]
