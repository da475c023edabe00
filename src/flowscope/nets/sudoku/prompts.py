"""Puzzles as prompts of a denoiser: masked text, places to fill, the only right answer."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from flowscope.errors import InvalidInputError
from flowscope.nets.sudoku.generation import dug
from flowscope.nets.sudoku.shapes import Shape, shape_named
from flowscope.nets.sudoku.splits import grids_of
from flowscope.nets.sudoku.text import CHARACTERS, cells_in_text, tokens_of

__all__ = ["Puzzles", "puzzles"]


@dataclass(frozen=True, eq=False)
class Puzzles:
    """Puzzles of one task, all of the same length.

    Attributes
    ----------
    shape
        Shape of the grids.
    prompts, answers
        Tokens with the blanks masked, and with the only solution; a token is a place in
        ``CHARACTERS`` and an id of the bundled denoiser's tokenizer.
    region
        The positions to fill: the answer.
    """

    shape: Shape
    prompts: Int[np.ndarray, "n tokens"]
    answers: Int[np.ndarray, "n tokens"]
    region: Bool[np.ndarray, "n tokens"]

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def texts(self) -> list[str]:
        """The masked texts."""
        return ["".join(CHARACTERS[token] for token in row) for row in self.prompts]

    @property
    def blanks(self) -> Int[np.ndarray, "n"]:
        """Masked cells of every puzzle."""
        found: Int[np.ndarray, "n"] = self.region.sum(1)
        return found

    @property
    def digits(self) -> list[int]:
        """The only tokens that an answer may hold."""
        return [CHARACTERS.index(str(digit)) for digit in range(1, self.shape.side + 1)]

    def solved(self, filled: Int[np.ndarray, "n tokens"]) -> Bool[np.ndarray, "n"]:
        """Whether each filled text is a complete grid that keeps the givens.

        Rows, columns and boxes are checked, not the recorded answer; the two agree because a
        puzzle has one solution.

        Raises
        ------
        InvalidInputError
            When the texts have another shape than the prompts.
        """
        if np.shape(filled) != self.prompts.shape:
            raise InvalidInputError(
                f"There are {len(self)} prompts of {self.prompts.shape[1]} tokens; got filled "
                f"texts of shape {list(np.shape(filled))}."
            )
        kept = ((filled == self.prompts) | self.region).all(1)
        digits = filled[:, cells_in_text(self.shape)].astype(np.int64) - self.digits[0]
        inside = ((digits >= 0) & (digits < self.shape.side)).all(1)
        seen = (1 << digits.clip(0, self.shape.side))[:, self.shape.units]
        whole = np.bitwise_or.reduce(seen, 2) == (1 << self.shape.side) - 1
        verdict: Bool[np.ndarray, "n"] = kept & inside & whole.all(1)
        return verdict


def puzzles(
    task: str,
    count: int,
    seed: int,
    split: str = "test",
    blanks: tuple[int, int] | None = None,
) -> Puzzles:
    """Puzzles with one solution each.

    Parameters
    ----------
    task
        ``sudoku-4x4``, ``sudoku-6x6`` or ``sudoku-9x9``: 4 to 10, 12 to 24, 25 to 50 blanks.
    count, seed
        Number of puzzles, and seed of the generator; a smaller number is not a beginning of a
        larger one.
    split
        ``test``, ``validation`` or ``train``: the part of the grids.
    blanks
        Fewest and most masked cells, each number as likely; without it those of the task. The
        more, the harder: 45 to 57 of a 9×9 leave a good denoiser something to wait for.

    Raises
    ------
    InvalidInputError
        For an unknown task or part, no puzzle, or blanks that leave several solutions.

    Examples
    --------
    >>> found = puzzles("sudoku-4x4", 3, seed=0)
    >>> found.texts[0]
    '④abcd2_13A___2B__31C13__D'
    >>> found.solved(found.answers).tolist()
    [True, True, True]
    """
    shape = shape_named(task)
    if count < 1:
        raise InvalidInputError(f"Puzzles are made one or more at a time; got {count}.")
    draw = np.random.default_rng([seed, shape.side])
    fewest, most = blanks or (shape.fewest, shape.most)
    if not 1 <= fewest <= most <= shape.deepest:
        raise InvalidInputError(
            f"The blanks of a {task} are 1 to {shape.deepest}, the fewer first; deeper puzzles "
            f"with one solution are rare. Got {fewest} to {most}."
        )
    grids = grids_of(count, shape, split, draw)
    wanted = draw.integers(fewest, most + 1, size=count)
    empty = dug(grids, shape, wanted, draw)
    while (short := np.flatnonzero(empty.sum(1) < wanted)).size:
        grids[short] = grids_of(len(short), shape, split, draw)
        empty[short] = dug(grids[short], shape, wanted[short], draw)
    answers = tokens_of(grids, shape)
    region = np.zeros(answers.shape, dtype=bool)
    region[:, cells_in_text(shape)] = empty
    return Puzzles(shape, tokens_of(np.where(empty, 0, grids), shape), answers, region)
