"""Sudoku as text: one character a cell, column letters above, a row letter behind every row.

A 4×4 puzzle is the 25 characters of ``④abcd``, ``1_3_A``, ``__1_B``, ``2__3C``, ``_3__D`` in one
line: a mark of the task, column letters, rows. ``_`` is a masked cell. The letters stand at the
same places in every text of a task, so that a model without an own sense of rows and columns reads
from them where a cell lies.
"""

import numpy as np
from jaxtyping import Int

from flowscope.nets.sudoku.shapes import SHAPES, Shape

__all__ = ["CHARACTERS", "MASK", "PAD", "cells_in_text", "drawn", "tokens_of"]

MASK, PAD = "_", "#"
_MARKS = dict(zip(SHAPES, "④⑥⑨", strict=True))
_COLUMNS, _ROWS = "abcdefghi", "ABCDEFGHI"
CHARACTERS = MASK + PAD + "123456789" + "".join(_MARKS.values()) + _COLUMNS + _ROWS
"""The vocabulary: the token of a character is its place here."""

_TOKEN = {character: token for token, character in enumerate(CHARACTERS)}
# Tokens of a blank and of the digits 1 to 9.
_CELLS = np.array([_TOKEN[MASK], *(_TOKEN[digit] for digit in "123456789")], dtype=np.uint8)


def cells_in_text(shape: Shape) -> Int[np.ndarray, "cells"]:
    """Where each cell stands in the text."""
    stride = shape.side + 1
    return (stride * np.arange(1, stride)[:, None] + np.arange(shape.side)).reshape(-1)


def tokens_of(grids: Int[np.ndarray, "n cells"], shape: Shape) -> Int[np.ndarray, "n tokens"]:
    """The tokens of grids or puzzles; a blank (0) is the mask."""
    side = shape.side
    row = "".join(_MARKS[shape.name] + _COLUMNS[:side]) + "".join(
        MASK * side + letter for letter in _ROWS[:side]
    )
    tokens = np.tile(np.array([_TOKEN[c] for c in row], dtype=np.uint8), (len(grids), 1))
    tokens[:, cells_in_text(shape)] = _CELLS[grids]
    return tokens


def drawn(tokens: Int[np.ndarray, "tokens"], shape: Shape) -> str:
    """A text as lines, for people."""
    characters = "".join(CHARACTERS[token] for token in tokens)
    stride = shape.side + 1
    return "\n".join(characters[i : i + stride] for i in range(0, len(characters), stride))
