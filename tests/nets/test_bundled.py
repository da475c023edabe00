"""The bundled model is the one that was trained, and a damaged one is refused."""

import json
import shutil

import pytest
import torch

from flowscope.errors import LoadError
from flowscope.models.loading import load
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled, bundled_models, bundled_path


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
