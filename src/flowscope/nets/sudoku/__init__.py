"""Sudoku of three sizes: seeded puzzles with one solution, as text for a masked denoiser."""

from flowscope.nets.sudoku.prompts import Puzzles, puzzles
from flowscope.nets.sudoku.shapes import SHAPES, Shape
from flowscope.nets.sudoku.text import CHARACTERS, MASK, PAD, drawn

__all__ = ["CHARACTERS", "MASK", "PAD", "SHAPES", "Puzzles", "Shape", "drawn", "puzzles"]
