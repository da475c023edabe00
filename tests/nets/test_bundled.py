"""The bundled model is the one that was trained, and a damaged one is refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from flowscope.errors import LoadError
from flowscope.models.loading import load
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled, bundled_models, bundled_path
from flowscope.nets.sudoku import CHARACTERS, MASK, SHAPES, puzzles


def test_the_bundled_language_model_is_listed_and_intact():
    model = {m.name: m for m in bundled_models()}["language"]
    assert model.layers >= 12
    assert 4e6 < model.parameters < 6e6
    assert bundled_path() == model.path
    assert (model.path / "model.safetensors").stat().st_size <= 14e6


@torch.no_grad()
def test_it_predicts_held_out_text_far_better_than_its_controls():
    loaded = load(bundled_path())
    record = json.loads((bundled_path() / "training.json").read_text())["heldout"]["all"]
    ids = torch.tensor([loaded.tokenizer(t)["input_ids"][:128] for t in packaged_texts()[:16]])
    logits = loaded.model.float()(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert loss.exp() < record["unigram"]["per_token"] / 10
    assert record["model"]["per_token"] < record["unigram"]["per_token"] / 10
    assert record["unigram"]["per_token"] < record["random_weights"]["per_token"]


def test_any_text_survives_its_tokenizer():
    tokenizer = load(bundled_path()).tokenizer
    for text in ("plain words", "naïve café — 日本語 🎈", "tabs\tand\nlines", "</script>"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_packaged_prompts_are_free_and_long_enough():
    from importlib.resources import files

    lines = files("flowscope.nets").joinpath("prompts.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(line) for line in lines]
    assert len(prompts) == 64
    assert {p["licence"] for p in prompts} <= {"public domain", "MIT"}
    tokenizer = load(bundled_path()).tokenizer
    assert all(len(tokenizer(p["text"])["input_ids"]) >= 128 for p in prompts)


def test_damaged_weights_are_refused(tmp_path, monkeypatch):
    shutil.copytree(bundled_path(), tmp_path / "language")
    weights = tmp_path / "language" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.setattr(bundled, "files", lambda package: tmp_path)
    with pytest.raises(LoadError, match="installation is damaged"):
        bundled_path()
    with pytest.raises(LoadError, match="No bundled model is named 'film'"):
        bundled_path("film")


def test_the_bundled_diffusion_transformer_is_listed_and_intact():
    model = {m.name: m for m in bundled_models()}["image"]
    assert model.layers >= 16
    assert bundled_path("image") == model.path
    assert sum((model.path / file).stat().st_size for file in model.weights) <= 32e6
    loaded = load(bundled_path("image"))
    assert loaded.kind == "diffusion"
    assert sum(p.numel() for p in loaded.model.parameters()) == model.parameters


def test_a_missing_shard_is_refused(tmp_path, monkeypatch):
    shutil.copytree(bundled_path("image"), tmp_path / "image")
    next((tmp_path / "image" / "transformer").glob("*00002*.safetensors")).unlink()
    monkeypatch.setattr(bundled, "files", lambda package: tmp_path)
    with pytest.raises(LoadError, match="installation is damaged"):
        bundled_path("image")


@pytest.fixture(scope="module")
def denoiser():
    return load(bundled_path("denoiser"), dtype=torch.float32)


def test_the_bundled_denoiser_is_listed_and_intact(denoiser):
    model = {m.name: m for m in bundled_models()}["denoiser"]
    assert bundled_path("denoiser") == model.path
    assert model.parameters == sum(p.numel() for p in denoiser.model.parameters()) <= 7e6
    assert (model.path / "model.safetensors").stat().st_size <= 14e6
    assert model.layers == denoiser.model.config.num_hidden_layers
    assert denoiser.kind == "masked_lm"  # it sees both ways, and is fed hidden tokens
    assert model.quality.startswith("solves ")
    assert "(sudoku-9x9)" in model.quality


def sudoku_logits(denoiser, tokens):
    with torch.no_grad():
        return denoiser.model(input_ids=torch.from_numpy(tokens.astype(np.int64))).logits


@pytest.mark.parametrize("task", SHAPES)
def test_the_denoiser_reads_the_tokens_on_both_sides(denoiser, task):
    found = puzzles(task, 4, seed=0)
    before = sudoku_logits(denoiser, found.prompts)
    for place, far in ((0, -1), (-2, found.shape.side + 1)):  # the mark, the last cell
        changed = found.prompts.copy()
        changed[:, place] = CHARACTERS.index("#")
        assert (sudoku_logits(denoiser, changed) - before)[:, far].abs().max() > 1e-3


@pytest.mark.parametrize(("task", "count"), list(zip(SHAPES, (12, 12, 4), strict=True)))
def test_the_denoiser_solves_puzzles_of_other_grids_four_cells_a_pass(denoiser, task, count):
    """The card has the accuracy of a thousand; two failures in a dozen are not its level."""
    found = puzzles(task, count, seed=21)
    tokens, digits = found.prompts.copy(), np.array(found.digits)
    assert denoiser.tokenizer(found.texts)["input_ids"] == tokens.tolist()
    while (hidden := tokens == CHARACTERS.index(MASK)).any():
        laws = sudoku_logits(denoiser, tokens)[..., digits].softmax(-1)
        sure, top = (x.numpy() for x in laws.max(-1))
        for place in np.where(hidden, -sure, 1).argsort(1)[:, :4].T:
            rows = np.flatnonzero(hidden[np.arange(count), place])
            tokens[rows, place[rows]] = digits[top[rows, place[rows]]]
    assert found.solved(tokens).sum() >= count - 1


def test_a_fresh_network_of_its_sizes_solves_nothing(denoiser):
    found = puzzles("sudoku-4x4", 20, seed=22)
    torch.manual_seed(0)
    fresh = type(denoiser.model)(denoiser.model.config).eval()
    laws = fresh(input_ids=torch.from_numpy(found.prompts.astype(np.int64))).logits
    top = np.array(found.digits)[laws[..., found.digits].argmax(-1).numpy()]
    assert not found.solved(np.where(found.region, top, found.prompts).astype(np.uint8)).any()
