"""Seeded sudoku with one solution, split so that no test grid is symmetric to a training grid."""

import numpy as np
from jaxtyping import Bool, Int

from flowscope.nets.sudoku.shapes import Shape
from flowscope.nets.sudoku.solver import candidates_of, eliminated, solution_counts

__all__ = ["complete_grids", "dug"]


def complete_grids(
    count: int, shape: Shape, draw: np.random.Generator
) -> Int[np.ndarray, "count cells"]:
    """Random complete grids: a random candidate of a cell with the fewest, elimination, again.

    A board that contradicts itself starts again, so that the law over grids is broad but not
    uniform.
    """
    blank = candidates_of(np.zeros((1, shape.cells), dtype=np.uint8), shape)
    boards = np.tile(blank, (1, count))
    status = np.zeros(count, dtype=np.int8)
    while (rows := np.flatnonzero(status == 0)).size:
        part = boards[:, rows]
        options = ((part[None] >> np.arange(shape.side)[:, None, None]) & 1).sum(0)
        few = np.where(options > 1, options, 99) + draw.random(options.shape)
        cell = few.argmin(0)
        chosen = part[cell, np.arange(len(rows))]
        has = (chosen >> np.arange(shape.side)[:, None]) & 1
        digit = (has * (1 + draw.random(has.shape))).argmax(0)
        part[cell, np.arange(len(rows))] = (1 << digit).astype(part.dtype)
        part, found = eliminated(part, shape)
        part[:, found < 0] = blank
        boards[:, rows], status[rows] = part, np.maximum(found, 0)
    digits: Int[np.ndarray, "count cells"] = np.log2(boards.T).astype(np.uint8) + 1
    return digits


def dug(
    grids: Int[np.ndarray, "n cells"],
    shape: Shape,
    blanks: Int[np.ndarray, "n"],
    draw: np.random.Generator,
) -> Bool[np.ndarray, "n cells"]:
    """Which cells are blank: cells in random order, each where the solution stays the only one.

    A cell is blanked when no other digit there leaves a solution. A grid stops at its number in
    ``blanks``; it may stay below it when no further cell can go.
    """
    n = len(grids)
    full = candidates_of(grids, shape)
    free = np.uint16((1 << shape.side) - 1)
    boards, order = full.copy(), draw.permuted(np.tile(np.arange(shape.cells), (n, 1)), axis=1)
    empty = np.zeros((shape.cells, n), dtype=bool)
    for cells in order.T:
        rows = np.flatnonzero(empty.sum(0) < blanks)
        if not rows.size:
            break
        trial, at = boards[:, rows].copy(), np.arange(len(rows))
        trial[cells[rows], at] = free & ~full[cells[rows], rows]
        unique = solution_counts(trial, shape, limit=1) == 0
        gone = rows[unique]
        boards[cells[gone], gone] = free
        empty[cells[gone], gone] = True
    return empty.T
