"""Symmetries of a sudoku grid, and the class of grids that are symmetric to each other.

Relabelled digits, rows permuted within a band, bands permuted, the same for columns, and, where
boxes are squares, the transpose, make a grid of a grid. Two rows of a grid make a permutation of
the digits (digit of the first row ↦ digit of the second row in the same column); its cycle lengths
change under none of the symmetries. The key of a class is a hash of the cycle lengths of all pairs
of rows and of columns, bands kept together: symmetric grids have one key, so that grids with
different keys are never symmetric to each other.
"""

from itertools import combinations

import numpy as np
from jaxtyping import Int

from flowscope.nets.sudoku.shapes import Shape

__all__ = ["class_keys", "line_orders", "moved"]


def line_orders(
    count: int, high: int, wide: int, draw: np.random.Generator
) -> Int[np.ndarray, "count lines"]:
    """Random orders of ``high`` × ``wide`` lines in ``wide`` bands of ``high``."""
    bands = draw.permuted(np.tile(np.arange(wide), (count, 1)), axis=1)
    lines = draw.permuted(np.tile(np.arange(high), (count * wide, 1)), axis=1)
    order: Int[np.ndarray, "count lines"] = bands[:, :, None] * high + lines.reshape(
        count, wide, high
    )
    return order.reshape(count, -1)


def moved(
    grids: Int[np.ndarray, "n cells"], shape: Shape, draw: np.random.Generator
) -> Int[np.ndarray, "n cells"]:
    """Every grid or puzzle under a random symmetry of its shape; blanks stay 0."""
    n, side = len(grids), shape.side
    rows = line_orders(n, shape.high, shape.wide, draw)
    columns = line_orders(n, shape.wide, shape.high, draw)
    cells = rows[:, :, None] * side + columns[:, None, :]
    if shape.high == shape.wide:
        turned = draw.random(n) < 0.5
        cells[turned] = cells[turned].swapaxes(1, 2)
    digits = draw.permuted(np.tile(np.arange(1, side + 1), (n, 1)), axis=1)
    labels = np.concatenate([np.zeros((n, 1), dtype=digits.dtype), digits], 1).astype(grids.dtype)
    placed = np.take_along_axis(grids, cells.reshape(n, -1), 1)
    return np.take_along_axis(labels, placed.astype(np.int64), 1)


def class_keys(grids: Int[np.ndarray, "n cells"], shape: Shape) -> Int[np.ndarray, "n"]:
    """A 64-bit key of the symmetry class of every complete grid.

    Examples
    --------
    >>> from flowscope.nets.sudoku.shapes import SHAPES
    >>> grid = np.array([[1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1]])
    >>> turned = grid.reshape(4, 4).T.reshape(1, 16)
    >>> shape = SHAPES["sudoku-4x4"]
    >>> bool(class_keys(grid, shape) == class_keys(turned, shape))
    True
    """
    square = grids.reshape(-1, shape.side, shape.side).astype(np.int64) - 1
    rows = _lines_key(square, shape.high)
    columns = _lines_key(square.swapaxes(1, 2), shape.wide)
    if shape.high == shape.wide:
        return _mixed(_mixed(rows) + _mixed(columns))
    return _mixed(_mixed(rows) + _mixed(columns ^ np.uint64(1)))


def _lines_key(square: Int[np.ndarray, "n side side"], high: int) -> Int[np.ndarray, "n"]:
    """Hash of the cycle lengths of pairs of rows: within each band, and between two bands."""
    side = square.shape[1]
    places = np.argsort(square, 2)
    bands: dict[tuple[int, int], Int[np.ndarray, "n"]] = {}
    for first, second in combinations(range(side), 2):
        step = np.take_along_axis(square[:, second], places[:, first], 1)
        pair = (first // high, second // high)
        bands[pair] = bands.get(pair, np.uint64(0)) + _mixed(_cycles(step))
    total = np.zeros(len(square), dtype=np.uint64)
    for (first, second), key in bands.items():
        total += _mixed(key ^ np.uint64(first == second))
    return total


def _cycles(step: Int[np.ndarray, "n side"]) -> Int[np.ndarray, "n"]:
    """Cycle lengths of permutations as one number: how many digits lie in a cycle of each length.

    A cycle length and the inverse permutation's are equal, so the order of the two rows is free.
    """
    size = step.shape[1]
    start = np.arange(size)
    place, length = step, np.zeros(step.shape, dtype=np.int64)
    for power in range(1, size + 1):
        length = np.where((place == start) & (length == 0), power, length)
        place = np.take_along_axis(step, place, 1)
    counts: Int[np.ndarray, "n side"] = np.uint64(1) << (4 * (length - 1)).astype(np.uint64)
    found: Int[np.ndarray, "n"] = counts.sum(1, dtype=np.uint64)
    return found


def _mixed(keys: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """The keys spread over 64 bits (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(keys, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
