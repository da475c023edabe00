"""Solutions of many sudoku at once: candidates as bits, elimination, branching.

A cell's candidates are the bits of an integer. Elimination removes a decided digit from the other
cells of its units (naked singles) and decides a digit that fits one cell of a unit only (hidden
singles), for all boards at once, until nothing changes. A board that is neither solved nor
contradictory is replaced by one board for each candidate of a cell with the fewest. The search is
exhaustive, so that the count is exact up to ``limit``.
"""

import numpy as np
from jaxtyping import Int

from flowscope.errors import InvalidInputError
from flowscope.nets.sudoku.shapes import Shape

__all__ = ["candidates_of", "eliminated", "solution_counts"]

# Boards in one array: the intermediate arrays stay in the cache.
_BATCH = 4096
_COUNT = np.array([bin(bits).count("1") for bits in range(1 << 9)], dtype=np.uint8)


def candidates_of(grids: Int[np.ndarray, "n cells"], shape: Shape) -> Int[np.ndarray, "cells n"]:
    """Candidates as bits: all digits for a blank (0), one for a given digit.

    Raises
    ------
    InvalidInputError
        When the grids have another size than the shape or a digit that it lacks.
    """
    if grids.ndim != 2 or grids.shape[1] != shape.cells:
        raise InvalidInputError(
            f"A {shape.name} has {shape.cells} cells, one row a grid; got an array of shape "
            f"{list(grids.shape)}."
        )
    if grids.size and not (0 <= int(grids.min()) <= int(grids.max()) <= shape.side):
        raise InvalidInputError(
            f"Digits of a {shape.name} are 1 to {shape.side}, 0 is a blank; got "
            f"{int(grids.min())} to {int(grids.max())}."
        )
    bits = np.array([(1 << shape.side) - 1, *(1 << d for d in range(shape.side))], dtype=np.uint16)
    return np.ascontiguousarray(bits[grids].T)


def eliminated(
    candidates: Int[np.ndarray, "cells n"], shape: Shape
) -> tuple[Int[np.ndarray, "cells n"], Int[np.ndarray, "n"]]:
    """Candidates left when elimination changes nothing more, and the status of each board.

    The status is 1 for solved, 0 for open, −1 for a contradiction (its candidates mean nothing).
    """
    found = candidates.copy()
    status = np.zeros(found.shape[1], dtype=np.int8)
    rows = np.arange(found.shape[1])
    while len(rows):
        before = found[:, rows]
        after, broken = _once(before, shape)
        found[:, rows] = after
        moved = (after != before).any(0)
        solved = ~moved & ~broken & (_COUNT[after] == 1).all(0)
        status[rows[broken]], status[rows[solved]] = -1, 1
        rows = rows[moved & ~broken]
    return found, status


def _once(
    candidates: Int[np.ndarray, "cells n"], shape: Shape
) -> tuple[Int[np.ndarray, "cells n"], Int[np.ndarray, "n"]]:
    """One round of elimination, and which boards contradict themselves."""
    decided = np.where(_COUNT[candidates] == 1, candidates, 0).astype(np.uint16)
    size = (len(shape.units), candidates.shape[1])
    once, more, taken, twice = (np.zeros(size, dtype=np.uint16) for _ in range(4))
    for place in range(shape.side):
        cells = shape.units[:, place]
        bits, fixed = candidates[cells], decided[cells]
        more |= once & bits
        once |= bits
        twice |= taken & fixed
        taken |= fixed
    broken = (once != (1 << shape.side) - 1).any(0) | (twice != 0).any(0)
    row, column, box = shape.units_of_cells.T
    left = np.where(decided, candidates, candidates & ~(taken[row] | taken[column] | taken[box]))
    only = once & ~more
    hidden = left & (only[row] | only[column] | only[box])
    left = np.where(hidden, hidden, left).astype(np.uint16)
    broken |= (left == 0).any(0) | (_COUNT[hidden] > 1).any(0)
    return left, broken


def solution_counts(
    candidates: Int[np.ndarray, "cells n"], shape: Shape, limit: int = 2
) -> Int[np.ndarray, "n"]:
    """Number of solutions of each board, counted up to ``limit``.

    Parameters
    ----------
    candidates
        What `candidates_of` returns; a caller may have removed candidates.
    shape
        Shape of the boards.
    limit
        The count stops there.

    Examples
    --------
    >>> from flowscope.nets.sudoku.shapes import SHAPES
    >>> shape = SHAPES["sudoku-4x4"]
    >>> blank = np.zeros((1, 16), dtype=np.uint8)
    >>> solution_counts(candidates_of(blank, shape), shape, limit=1000).tolist()
    [288]
    """
    counts = np.zeros(candidates.shape[1], dtype=np.int64)
    boards, owner = candidates, np.arange(candidates.shape[1])
    while boards.shape[1]:
        # The last boards first: depth before breadth, so that few boards wait.
        waiting, part = boards[:, :-_BATCH], boards[:, -_BATCH:]
        owners, whose = owner[:-_BATCH], owner[-_BATCH:]
        part, status = eliminated(part, shape)
        np.add.at(counts, whose[status == 1], 1)
        part, whose = _branched(part[:, status == 0], whose[status == 0], shape)
        boards, owner = np.concatenate([waiting, part], 1), np.concatenate([owners, whose])
        needed = counts[owner] < limit
        if not needed.all():
            boards, owner = boards[:, needed], owner[needed]
    return np.minimum(counts, limit)


def _branched(
    boards: Int[np.ndarray, "cells n"], owner: Int[np.ndarray, "n"], shape: Shape
) -> tuple[Int[np.ndarray, "cells m"], Int[np.ndarray, "m"]]:
    """A board for every candidate of an open cell with the fewest."""
    open_cells = np.where(_COUNT[boards] > 1, _COUNT[boards], 99)
    cell = open_cells.argmin(0)
    chosen = boards[cell, np.arange(boards.shape[1])]
    parts, owners = [], []
    for digit in range(shape.side):
        has = np.flatnonzero(chosen >> digit & 1)
        part = boards[:, has]
        part[cell[has], np.arange(len(has))] = 1 << digit
        parts.append(part)
        owners.append(owner[has])
    return np.concatenate(parts, 1), np.concatenate(owners)
