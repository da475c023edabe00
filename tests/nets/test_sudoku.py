"""Laws of the sudoku generator: one solution, symmetric grids in one part, an honest checker."""

from itertools import permutations

import numpy as np
import pytest

from flowscope.errors import InvalidInputError
from flowscope.nets.sudoku import CHARACTERS, MASK, SHAPES, drawn, puzzles
from flowscope.nets.sudoku.generation import complete_grids, dug
from flowscope.nets.sudoku.solver import candidates_of, solution_counts
from flowscope.nets.sudoku.splits import SPLITS, grids_of, within
from flowscope.nets.sudoku.symmetry import class_keys, moved

FOUR, SIX, NINE = SHAPES.values()


def is_complete(grid, shape):
    square = grid.reshape(shape.side, shape.side)
    boxes = [
        square[r : r + shape.high, c : c + shape.wide].ravel()
        for r in range(0, shape.side, shape.high)
        for c in range(0, shape.side, shape.wide)
    ]
    digits = set(range(1, shape.side + 1))
    return all(set(unit) == digits for unit in [*square, *square.T, *boxes])


def all_four_by_four():
    """Every complete 4×4 grid: those with the first row 1 2 3 4, found by trial, relabelled."""
    rows = np.array(list(permutations((1, 2, 3, 4))), dtype=np.uint8)
    others = np.indices([24] * 3).reshape(3, -1).T
    square = rows[np.concatenate([np.zeros((len(others), 1), dtype=int), others], 1)]
    bits = np.uint8(1) << square
    columns = np.bitwise_or.reduce(bits, 1) == 30
    boxes = np.bitwise_or.reduce(bits.reshape(-1, 2, 2, 2, 2), (2, 4)) == 30
    normal = square[columns.all(1) & boxes.all((1, 2))].reshape(-1, 16)
    return np.concatenate([labels[normal - 1] for labels in rows])


@pytest.fixture(scope="module")
def small_grids():
    return all_four_by_four()


def test_counts_of_solutions_equal_those_of_all_grids_tried(small_grids):
    draw = np.random.default_rng(0)
    grids = small_grids[draw.integers(288, size=400)]
    given = draw.random(grids.shape) < draw.random((400, 1)) * 0.6
    found = solution_counts(candidates_of(np.where(given, grids, 0), FOUR), FOUR, limit=1000)
    fits = (small_grids[None] == grids[:, None]) | ~given[:, None]
    np.testing.assert_array_equal(found, fits.all(2).sum(1))
    assert len(set(found.tolist())) > 10
    assert len(small_grids) == 288


@pytest.mark.parametrize("limit", [1, 3])
def test_counting_stops_at_its_limit(limit):
    blank = np.zeros((2, SIX.cells), dtype=np.uint8)
    assert solution_counts(candidates_of(blank, SIX), SIX, limit).tolist() == [limit, limit]


def test_a_puzzle_known_to_be_hard_has_one_solution_and_none_when_a_digit_is_wrong():
    line = "..............3.85..1.2.......5.7.....4...1...9.......5......73..2.1........4...9"
    grid = np.array([[0 if c == "." else int(c) for c in line]])
    wrong = grid.copy()
    wrong[0, 0] = 4  # the solution has 9 there
    both = np.concatenate([grid, wrong])
    assert solution_counts(candidates_of(both, NINE), NINE).tolist() == [1, 0]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_generated_grids_are_complete_and_varied(shape):
    grids = complete_grids(60, shape, np.random.default_rng(1))
    assert all(is_complete(grid, shape) for grid in grids)
    assert len(np.unique(grids, axis=0)) > 45


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_symmetry_keeps_a_grid_complete_and_its_class(shape):
    draw = np.random.default_rng(2)
    grids = complete_grids(100, shape, draw)
    twin = moved(grids, shape, draw)
    assert all(is_complete(grid, shape) for grid in twin)
    assert (twin != grids).any(1).all()
    np.testing.assert_array_equal(class_keys(twin, shape), class_keys(grids, shape))


def test_four_by_four_has_two_classes_of_192_and_96_grids(small_grids):
    _, sizes = np.unique(class_keys(small_grids, FOUR), return_counts=True)
    assert sorted(sizes) == [96, 192]
    assert within(small_grids, FOUR, "test").sum() == 96


def test_six_by_six_has_no_more_keys_than_its_49_classes_and_nine_by_nine_one_a_grid():
    draw = np.random.default_rng(3)
    keys = {s.side: class_keys(complete_grids(600, s, draw), s) for s in (SIX, NINE)}
    assert 25 < len(np.unique(keys[6])) <= 49
    assert len(np.unique(keys[9])) == 600


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_no_test_grid_is_symmetric_to_a_training_grid(shape):
    draw = np.random.default_rng(4)
    keys = {s: set(class_keys(grids_of(60, shape, s, draw), shape).tolist()) for s in SPLITS}
    assert not keys["test"] & (keys["train"] | keys["validation"])
    if shape is not FOUR:  # of two classes one is test; validation then has other puzzles only
        assert not keys["train"] & keys["validation"]


@pytest.mark.parametrize("task", SHAPES)
def test_a_puzzle_has_one_solution_and_the_blanks_of_its_task(task):
    found = puzzles(task, 40, seed=5)
    shape = found.shape
    grids = np.array([[CHARACTERS.find(c) for c in text] for text in found.texts])
    assert solution_counts(candidates_of(cells(found), shape), shape).tolist() == [1] * 40
    assert shape.fewest <= found.blanks.min() < found.blanks.max() <= shape.most
    np.testing.assert_array_equal(grids, found.prompts)
    assert (found.region == (found.prompts == CHARACTERS.index(MASK))).all()


def cells(found):
    """The digits of the prompts, read from their lines."""
    lines = [drawn(row, found.shape).splitlines()[1:] for row in found.prompts]
    digits = [[c for line in board for c in line[:-1]] for board in lines]
    return np.array([[0 if c == MASK else int(c) for c in board] for board in digits])


def test_digging_goes_on_until_no_further_cell_can_go():
    draw = np.random.default_rng(6)
    grids = complete_grids(20, SIX, draw)
    empty = dug(grids, SIX, np.full(20, SIX.cells), draw)
    for grid, holes in zip(grids, empty, strict=True):
        further = np.array([np.where(holes, 0, grid) for _ in np.flatnonzero(~holes)])
        further[np.arange(len(further)), np.flatnonzero(~holes)] = 0
        assert (solution_counts(candidates_of(further, SIX), SIX) == 2).all()


@pytest.mark.parametrize("task", SHAPES)
def test_the_checker_wants_complete_grids_that_keep_the_givens(task):
    found = puzzles(task, 20, seed=7)
    assert found.solved(found.answers).all()
    assert not found.solved(found.prompts).any()
    swapped = found.answers.copy()
    first = found.region.argmax(1)
    swapped[np.arange(20), first] = np.where(swapped[np.arange(20), first] == 2, 3, 2)
    assert not found.solved(swapped).any()
    relabelled = found.answers.copy()  # complete, but with other givens
    one, two = found.digits[:2]
    relabelled[found.answers == one], relabelled[found.answers == two] = two, one
    assert not found.solved(relabelled).any()
    letters = found.answers.copy()
    letters[:, 1] = found.digits[0]
    assert not found.solved(letters).any()


def test_one_seed_gives_the_same_puzzles_and_another_seed_others():
    first, again, other = (puzzles("sudoku-6x6", 10, seed) for seed in (8, 8, 9))
    np.testing.assert_array_equal(first.prompts, again.prompts)
    assert (first.answers != other.answers).any(1).all()
    assert first.texts[0].startswith("⑥abcdef")
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 32


@pytest.mark.parametrize(("task", "blanks"), [("sudoku-4x4", (11, 11)), ("sudoku-9x9", (52, 57))])
def test_deeper_puzzles_have_the_blanks_that_were_asked_for_and_one_solution(task, blanks):
    found = puzzles(task, 24, seed=10, blanks=blanks)
    assert set(found.blanks) == set(range(blanks[0], blanks[1] + 1))
    counts = solution_counts(candidates_of(cells(found), found.shape), found.shape)
    assert counts.tolist() == [1] * 24


def test_bad_input_gets_a_sentence():
    for blanks in ((0, 4), (20, 10), (40, 60)):
        with pytest.raises(InvalidInputError, match=r"sudoku-9x9 are 1 to 57.* Got \d+ to \d+"):
            puzzles("sudoku-9x9", 1, seed=0, blanks=blanks)
    with pytest.raises(InvalidInputError, match=r"tasks are sudoku-4x4, .*; got 'chess'"):
        puzzles("chess", 1, seed=0)
    with pytest.raises(InvalidInputError, match="one or more at a time; got 0"):
        puzzles("sudoku-4x4", 0, seed=0)
    with pytest.raises(InvalidInputError, match="parts are train, validation, test; got 'dev'"):
        puzzles("sudoku-4x4", 1, seed=0, split="dev")
    with pytest.raises(InvalidInputError, match=r"16 cells, one row a grid; .* \[1, 36\]"):
        candidates_of(np.zeros((1, 36), dtype=int), FOUR)
    with pytest.raises(InvalidInputError, match=r"Digits of a sudoku-4x4 are 1 to 4.* got 0 to 7"):
        candidates_of(np.array([[7] + [0] * 15]), FOUR)
    found = puzzles("sudoku-4x4", 2, seed=0)
    with pytest.raises(InvalidInputError, match=r"2 prompts of 25 tokens; .* \[2, 24\]"):
        found.solved(found.answers[:, 1:])
