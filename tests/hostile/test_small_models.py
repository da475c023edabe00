"""The smallest models and the strangest names: two outcomes, one layer, markup in names."""

import json
import math
import re
import shutil
from html.parser import HTMLParser

import pytest
from tests.hostile.subjects import World, language_model, sentence_of, tokenizer
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as kinds
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

import flowscope
from flowscope.cli import app
from flowscope.models.loading import Loaded, load
from flowscope.models.positions import position_limit

NAME = "\"><img src=x onerror=alert(1)>'\u202e<script>alert(2)<⁄script>"
WORD = '</script><svg/onload=alert(3)>"&\u202e'
SMALL = {"tokens": 8, "resamples": 4, "batch": 2, "control_prompts": 2, "progress": False}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("small"))


def coins() -> Loaded:
    """A model of two outcomes, with a tokenizer of two words."""
    inner = Tokenizer(kinds.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return load(
        language_model(outcomes=2), tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner)
    )


def test_two_outcomes(tmp_path):
    texts = ["a b b a b a a b", "b b a a b a b a", "a a a b b b a b", "b a b a a b b b"] * 2
    result = flowscope.audit(coins(), texts, out=tmp_path / "run", **SMALL)
    path, layers = result.tables.simplex_path, result.tables.layers
    assert (path["first"] + path["second"]).between(1 - 1e-6, 1 + 1e-6).all()
    assert layers["entropy"].between(0, math.log(2) + 1e-6).all()


def test_one_layer(world, tmp_path):
    loaded = load(language_model(layers=1), tokenizer=tokenizer())
    assert flowscope.doctor(loaded).attention_calls == 1
    for name in ("audit", "heads"):
        call = getattr(flowscope, name)
        try:
            result = call(loaded, world.texts, out=tmp_path / name, **SMALL)
        except flowscope.errors.FlowscopeError as refusal:
            sentence = str(refusal)
            assert sentence.endswith(".")
            continue
        assert all(verdict.because for verdict in result.verdicts)


def test_one_long_line_is_cut_into_windows(world, tmp_path):
    line = world.file("line.txt", sentence_of(5000))
    done = CliRunner().invoke(
        app,
        ["audit", str(world.language), "--text", str(line), "--tokens", "16", "--prompts", "6",
         "--only", "P0", "--set", "resamples=4", "--out", str(tmp_path), "--json"],
    )  # fmt: skip
    measured = json.loads(done.stdout)["measured"]
    assert (measured["prompts"], measured["tokens"]) == (6, 96)


def test_prompts_of_special_tokens_alone(world, tmp_path):
    texts = ["[UNK] " * (4 + n) for n in range(4)]
    result = flowscope.audit(world.loaded, texts, only="P0", out=tmp_path / "run", **SMALL)
    assert result.verdicts[0].because


class Scripts(HTMLParser):
    """Elements and attributes of a page that could run something."""

    def __init__(self):
        super().__init__()
        self.elements, self.handlers = [], []

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]


@pytest.fixture(scope="module")
def hostile_pages(world, tmp_path_factory):
    """Pages of a study: of a model whose name and words are markup, and of the plain model."""
    root = tmp_path_factory.mktemp("pages")
    folder = root / NAME
    shutil.copytree(world.language, folder)
    file = folder / "tokenizer.json"
    file.write_text(file.read_text().replace('"w7"', json.dumps(WORD)))
    texts = [sentence_of(10, seed).replace("w7", WORD) for seed in range(5)]
    made = {}
    for label, model in (("hostile", folder), ("plain", world.language)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        done = CliRunner().invoke(
            app,
            ["reproduce", "track_t", str(model), "--text", str(world.file("t.jsonl", lines)),
             "--tokens", "8", "--prompts", "5", "--out", str(root / label), "--json",
             "--set", "audit.resamples=4", "--set", "refined_prompts=5", "--set",
             "audit.control_prompts=2", "--set", "refined_positions=2"],
        )  # fmt: skip
        assert done.exit_code == 0, done.stdout
        document = json.loads(done.stdout)
        with open(document["report"], encoding="utf-8") as page:
            made[label] = (document, page.read())
    return made


def test_a_page_with_markup_in_names_runs_nothing(hostile_pages):
    found = {}
    for label, (_, page) in hostile_pages.items():
        found[label] = Scripts()
        found[label].feed(page)
    for tag in ("script", "img", "svg", "iframe", "object"):
        counts = [parser.elements.count(tag) for parser in found.values()]
        assert counts[0] == counts[1], tag
    assert found["hostile"].handlers == found["plain"].handlers
    page = hostile_pages["hostile"][1]
    assert "onerror=alert(1)" in page.replace("&#61;", "=")  # it is there, as text
    assert not re.search(r"<img[^>]*onerror", page)
    assert "<svg/onload" not in page


def test_hostile_names_stay_as_they_are_in_the_document(hostile_pages):
    assert hostile_pages["hostile"][0]["model"].endswith(NAME)


def test_positions_of_models_without_a_table():
    from tests import networks

    assert position_limit(networks.gpt2()[0]) == 64
    assert position_limit(networks.llama()[0]) is None
    assert position_limit(networks.bert()[0]) == networks.bert()[0].config.max_position_embeddings
