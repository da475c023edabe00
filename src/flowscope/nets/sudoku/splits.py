"""Which grids a model may learn from: a property of the symmetry class, not of a seed.

A grid is of the part that the key of its class decides, so that a test grid is symmetric to no
grid of training, whoever draws it and with whatever seed. Of 9×9 and 6×6 grids two tenths of the
keys are test, one tenth validation. There are two classes of 4×4 grids only (192 and 96 grids): the
larger is training, the smaller is test, and validation has other puzzles of the larger class.
"""

import numpy as np
from jaxtyping import Bool, Int

from flowscope.errors import InvalidInputError
from flowscope.nets.sudoku.generation import complete_grids
from flowscope.nets.sudoku.shapes import Shape
from flowscope.nets.sudoku.symmetry import class_keys

__all__ = ["SPLITS", "grids_of", "within"]

SPLITS = ("train", "validation", "test")
"""Parts of the grids."""

# The 4×4 grids whose rows, paired within bands, swap digits: the class of 96 grids.
_SMALL_CLASS = np.array([[1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1]], dtype=np.uint8)
_TENTHS = {"train": range(3, 10), "validation": range(2, 3), "test": range(2)}


def within(grids: Int[np.ndarray, "n cells"], shape: Shape, split: str) -> Bool[np.ndarray, "n"]:
    """Which complete grids belong to a part.

    Raises
    ------
    InvalidInputError
        When there is no such part.
    """
    if split not in SPLITS:
        raise InvalidInputError(f"The parts are {', '.join(SPLITS)}; got {split!r}.")
    keys = class_keys(grids, shape)
    if shape.cells == _SMALL_CLASS.size:
        small: Bool[np.ndarray, "n"] = keys == class_keys(_SMALL_CLASS, shape)
        return small if split == "test" else ~small
    return np.isin(keys % np.uint64(10), np.array(_TENTHS[split], dtype=np.uint64))


def grids_of(
    count: int, shape: Shape, split: str, draw: np.random.Generator
) -> Int[np.ndarray, "count cells"]:
    """Random complete grids of a part."""
    parts: list[Int[np.ndarray, "m cells"]] = []
    missing = count
    while missing > 0:
        grids = complete_grids(min(4096, 64 + 2 * missing), shape, draw)
        parts.append(grids[within(grids, shape, split)][:missing])
        missing -= len(parts[-1])
    return np.concatenate([np.empty((0, shape.cells), dtype=np.uint8), *parts])
