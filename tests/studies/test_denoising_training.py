"""The making of the bundled denoiser: batches, optimiser, decoding, export, on tiny sizes."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from studies.denoising_training import card, data, train
from studies.denoising_training.batches import sources
from studies.denoising_training.evaluation import evaluated, filled
from studies.denoising_training.network import Denoiser, denoiser_of
from studies.denoising_training.optimiser import Muon, orthogonal
from transformers import AutoModelForCausalLM, AutoTokenizer

from flowscope.nets.sudoku import CHARACTERS, SHAPES, puzzles
from flowscope.nets.sudoku.solver import candidates_of, solution_counts

SMALL = ["--layers", "2", "--width", "32", "--heads", "2", "--feed-forward", "48", "--no-compile"]
SMALL += ["--batch", "6", "5", "4", "--watched", "4", "--judged", "6", "--moments", "2"]
MASK = CHARACTERS.index("_")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    path = tmp_path_factory.mktemp("denoising") / "bases.npz"
    data.main(["--out", str(path), "--share", "0.001"])
    return path


@pytest.fixture(scope="module")
def trained(bases):
    out = bases.parent / "trained"
    options = ["--data", str(bases), "--out", str(out), "--device", "cpu", *SMALL]
    train.main([*options, "--steps", "30", "--seconds", "600", "--warmup", "3"])
    card.laid_out(out, bases.parent / "folder")
    return bases.parent / "folder"


def as_grids(texts, digits, cells):
    """Puzzles with 0 for a masked cell."""
    return torch.where(texts[:, cells] == MASK, 0, digits + 1).numpy()


@pytest.mark.parametrize("task", SHAPES)
def test_a_batch_holds_complete_grids_and_masks_with_one_solution(bases, task):
    source, shape = sources(bases, 1.0, "cpu")[task], SHAPES[task]
    texts, digits, masked = source.batch(40, torch.Generator().manual_seed(0))
    whole = (1 << digits.numpy())[:, shape.units]
    assert (np.bitwise_or.reduce(whole, 2) == (1 << shape.side) - 1).all()
    assert len(np.unique(digits.numpy(), axis=0)) > 30
    grids = as_grids(texts, digits, source.cells)
    np.testing.assert_array_equal(grids == 0, masked.numpy())
    assert solution_counts(candidates_of(grids, shape), shape).tolist() == [1] * 40
    assert masked.sum(1).min() < 6
    given = texts[:, source.cells][~masked]
    assert (given - source.first_digit == digits[~masked]).all()


def test_masks_at_a_uniform_level_leave_several_solutions(bases):
    source, shape = sources(bases, 0.0, "cpu")["sudoku-6x6"], SHAPES["sudoku-6x6"]
    texts, digits, masked = source.batch(300, torch.Generator().manual_seed(1))
    levels = np.bincount(masked.sum(1).numpy() - 1, minlength=36)
    # 300 draws over 36 levels; the chi-square of a uniform law has mean 35, deviation 8.4.
    assert ((levels - 300 / 36) ** 2 / (300 / 36)).sum() < 35 + 4 * 8.4
    grids = as_grids(texts, digits, source.cells)[:60]
    assert (solution_counts(candidates_of(grids, shape), shape) == 2).mean() > 0.3


def test_muon_steps_have_singular_values_near_one_and_go_downhill():
    draw = torch.Generator().manual_seed(0)
    matrices = torch.randn(3, 24, 16, generator=draw)
    found = orthogonal(matrices)
    values = torch.linalg.svdvals(found)
    assert 0.6 < values.min() < values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    aligned = torch.einsum("nij,nij->n", found, u @ v) / 16
    assert (aligned > 0.8).all()
    weight = torch.nn.Parameter(torch.randn(2, 12, 8, generator=draw))
    goal = torch.randn(2, 12, 8, generator=draw)
    muon, losses = Muon([(weight, 3)], momentum=0.9, decay=0.0), []
    for step in range(200):
        loss = (weight - goal).square().sum()
        weight.grad = torch.autograd.grad(loss, weight)[0]
        muon.step(0.1 * (1 - step / 200))
        losses.append(loss.item())
    assert losses[-1] < 1e-2 * losses[0]


class Oracle(Denoiser):
    """Knows every answer; the later a position, the surer."""

    def __init__(self, found):
        super().__init__(train.sizes(train.options_from(["--data", "", "--out", "", *SMALL])), 0)
        self.answers = torch.from_numpy(found.answers.astype(np.int64))

    def forward(self, parts, cosine, sine):
        answers = self.answers[: len(parts[0])]
        surer = 5 + torch.arange(answers.shape[1]) / 50
        one_hot = torch.nn.functional.one_hot(answers, len(CHARACTERS))
        return [one_hot * surer[None, :, None]]


def test_decoding_fills_the_surest_cells_first_and_counts_its_passes():
    found = puzzles("sudoku-6x6", 8, seed=3)
    oracle = Oracle(found)
    one = filled(oracle, found)
    np.testing.assert_array_equal(one.tokens, found.answers)
    np.testing.assert_array_equal(one.passes, found.blanks)
    some = filled(oracle, found, together=4)
    np.testing.assert_array_equal(some.passes, np.ceil(found.blanks / 4))
    # The first cell filled is the last blank one; its choices, counted by hand.
    shape, stride = found.shape, found.shape.side + 1
    for row, prompt in enumerate(found.prompts):
        board = prompt.reshape(stride, stride)[1:, :-1]
        r, c = np.argwhere(board == MASK)[-1]
        top, left = r // shape.high * shape.high, c // shape.wide * shape.wide
        box = board[top : top + shape.high, left : left + shape.wide]
        near = set(board[r]) | set(board[:, c]) | set(box.ravel())
        assert one.choices[0, row] == len(set(found.digits) - near)
    record = evaluated(oracle, found, {"confidence": {}, "one_pass": {"together": 81}})
    assert record["confidence"]["accuracy"] == record["one_pass"]["accuracy"] == 1.0
    assert record["one_pass"]["passes"] == 1.0
    low, high = record["confidence"]["interval"]  # no failure in 8: (α/2)^(1/8)
    assert low == pytest.approx(0.025 ** (1 / 8))
    assert high == 1.0


@torch.no_grad()
def test_the_model_folder_is_the_trained_network(trained):
    model = AutoModelForCausalLM.from_pretrained(trained, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(trained)
    record = json.loads((trained / "training.json").read_text())
    options = train.options_from(["--data", "", "--out", "", *SMALL])
    network = denoiser_of(load_file(trained / "model.safetensors"), train.sizes(options))
    for task in SHAPES:
        found = puzzles(task, 3, seed=4)
        assert tokenizer(found.texts)["input_ids"] == found.prompts.tolist()
        ids = torch.from_numpy(found.prompts.astype(np.int64))
        ours = network([ids], *network.rotations([ids.shape[1]], [3]))[0]
        for attention in ("sdpa", "eager"):
            model.set_attn_implementation(attention)
            torch.testing.assert_close(model(input_ids=ids).logits, ours, rtol=1e-3, atol=1e-3)
    assert record["parameters"] == sum(p.numel() for p in network.parameters())
    assert record["sha256"] in (trained / "README.md").read_text()


def test_training_learns_and_keeps_its_history(trained):
    record = json.loads((trained / "training.json").read_text())
    first, last = record["history"][0], record["history"][-1]
    assert last["step"] == record["steps"] == 30
    for task in SHAPES:
        assert last[task]["train_loss"] < first[task]["train_loss"] - 0.3
        assert record["evaluation"][task]["puzzles"] == 6


def test_grid_periods_hold_the_harmonics_of_every_row_length():
    found = train.periods(16, "grid")
    assert len(found) == 16
    for stride in (5, 7, 10):
        harmonics = {stride / m for m in range(1, stride // 2 + 1)}
        assert all(min(abs(p - h) for p in found) < 1e-9 for h in harmonics)
    assert train.periods(4, "10000")[1] == pytest.approx(2 * math.pi * 10)


def test_of_two_runs_the_worse_one_ends(tmp_path):
    class Finished:
        elapsed = 10.0

        def __init__(self, name, accuracy, loss):
            names = ["--data", "", "--out", "", "--arena", str(tmp_path), "--name", name]
            self.options = train.options_from([*names, "--duel", "5"])
            row = {"validation_accuracy": accuracy, "train_loss": loss}
            self.history = [dict.fromkeys(SHAPES, row)]

    a, b = Finished("a", 0.5, 1.0), Finished("b", 0.5, math.nan)
    assert not train.beaten(a)
    assert train.beaten(b)
    assert not train.beaten(a)
