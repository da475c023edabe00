"""An audit reads a model as it was trained: mode, tokens, rows, hidden positions, wrappers."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from tests import networks
from tests.instruments.tiny import command
from tests.models.reading.synthetic_tokenizers import TEXTS, beginning, bracketed, ended, plain
from torch import nn

import flowscope as fs
from flowscope.errors import InvalidInputError, ModelWarning, UnsupportedModelError
from flowscope.instruments.audit.reading import Depth
from flowscope.models.prompts import prompts_of
from flowscope.models.reading.tokens import Feeding

SMALL = {"resamples": 20, "controls": False, "tokens": 24, "only": "P0"}


def _layers(model, tokenizer, **more):
    return fs.audit(model, TEXTS, tokenizer=tokenizer, **{**SMALL, **more})


def _same(first, second):
    return first.run.read_table("layers").equals(second.run.read_table("layers"))


def _flags(model):
    return [module.training for module in model.modules()]


@pytest.fixture(scope="module")
def quiet():
    """The small GPT-2 on text alone."""
    return _layers(networks.gpt2()[0], plain())


@pytest.fixture(scope="module")
def begun():
    """The same with BOS in front."""
    return _layers(networks.gpt2()[0], beginning())


def test_a_model_in_training_mode_is_measured_without_dropout(quiet):
    model = networks.gpt2()[0]
    model.train()
    model.transformer.h[1].eval()
    before = _flags(model)
    with pytest.warns(ModelWarning, match="GPT2LMHeadModel"):
        loud = _layers(model, plain())
    with pytest.warns(ModelWarning):
        loaded = _layers(fs.load(model, tokenizer=plain()), None)
    assert _flags(model) == before
    assert _same(quiet, loud)
    assert _same(quiet, loaded)
    assert "evaluation mode" in loud.settings["measured"]["mode"]
    assert "mode" not in quiet.settings["measured"]


class _Noise(nn.Module):
    def forward(self, x):
        return x + 0.3 * torch.randn_like(x)


def test_a_model_that_answers_differently_twice_is_refused_and_its_modes_come_back():
    model = networks.gpt2()[0].train()
    model.transformer.drop = _Noise()
    before = _flags(model)
    for instrument in (fs.audit, fs.heads):
        with (
            pytest.warns(ModelWarning),
            pytest.raises(UnsupportedModelError, match="two passes on one input differ"),
        ):
            instrument(model, TEXTS, tokenizer=plain(), tokens=24)
        assert _flags(model) == before


def test_special_tokens_are_seen_and_are_no_rows(quiet, begun):
    stripped = _layers(networks.gpt2()[0], beginning(), special_tokens=False)
    assert _same(quiet, stripped)
    assert not _same(quiet, begun)
    facts = [run.settings["measured"] for run in (begun, quiet, stripped)]
    assert [fact["tokens_measured"] for fact in facts] == [86 + 4, 86, 86]
    assert "<s> text" in facts[0]["fed"]
    assert "adds no special token" in facts[1]["fed"]
    assert "would make it <s> text" in facts[2]["fed"]


def test_no_row_of_any_table_is_a_special_token():
    run = fs.audit(networks.bert()[0], TEXTS, tokenizer=bracketed(), masked_share=0.0,
                   **{**SMALL, "only": ("tokens", "P3")})  # fmt: skip
    tokens = run.run.read_table("tokens")
    assert set(tokens["position"]) == set(range(1, 23)), "[CLS] and [SEP] are no rows"
    assert not tokens["token"].isin(["[CLS]", "[SEP]"]).any()


@pytest.fixture
def every_segment_passes(monkeypatch):
    """Small random models pass no gate; what follows it is to be tested."""
    monkeypatch.setattr(Depth, "passing", property(lambda self: list(self.evidence)))


def test_a_masked_model_is_judged_at_hidden_positions_with_visible_ones_beside(
    every_segment_passes,
):
    model, tokenizer = networks.bert()[0], bracketed()
    run = fs.audit(
        model, TEXTS, tokenizer=tokenizer, resamples=20, controls=False, tokens=24,
        only=("exits", "tokens", "P2"), seed=5,
    )  # fmt: skip
    hidden, visible = run.run.read_table("depth_loss"), run.run.read_table("visible_loss")
    loaded = fs.load(model, tokenizer=tokenizer)
    prompts = prompts_of(loaded, TEXTS, count=64, length=24, feeding=Feeding(seed=5))
    assert run.run.read_manifest().data_hashes["tokens"] == prompts.data_hash
    losses = []
    for number in range(len(prompts)):
        place = prompts.at(number)
        with torch.no_grad():
            logits = model(torch.from_numpy(prompts.items[number])[None]).logits[0]
        rows = np.flatnonzero(place.named)
        losses += F.cross_entropy(
            logits[rows], torch.from_numpy(place.targets[rows]), reduction="none"
        ).tolist()
    tokens = run.run.read_table("tokens")
    places = [np.flatnonzero(prompts.at(number).named).tolist() for number in range(4)]
    assert [
        group.tolist() for _, group in tokens.groupby("prompt")["position"].unique().items()
    ] == (places)
    words = [tokenizer.decode([token]) for token in prompts.at(0).shown[places[0]]]
    first = tokens[(tokens["prompt"] == 0) & (tokens["layer"] == tokens["layer"].max())]
    assert first["token"].tolist() == words, "the map shows what was hidden"
    assert run.run.read_table("locking_prompts")["tokens"].tolist() == [3, 3, 3, 3]
    assert hidden["tokens"].iloc[0] == len(losses)
    assert_allclose(hidden["loss"].iloc[0], np.mean(losses), rtol=1e-5)
    # Before the first layer every hidden token is the same mask: its token cannot be known.
    assert hidden["loss"].iloc[-1] != pytest.approx(visible["loss"].iloc[-1], rel=1e-3)
    assert "hidden behind [MASK]" in run.settings["measured"]["fed"]
    page = run.report().read_text(encoding="utf-8")
    assert "Mean loss on hidden tokens" in page
    assert "hidden behind [MASK]" in page
    assert any("hidden token" in finding.text for finding in run.findings)


def test_an_encoder_decoder_has_losses_of_its_shifted_targets(every_segment_passes):
    model = networks.t5()[0]
    run = fs.audit(
        model, TEXTS, tokenizer=ended(), resamples=20, controls=False, tokens=24, only="exits",
    )  # fmt: skip
    table = run.run.read_table("depth_loss")
    losses = []
    for text in TEXTS:
        labels = torch.tensor([ended()(text)["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=labels, labels=labels).logits[0]
        losses.append(F.cross_entropy(logits[1:-1], labels[0, 1:-1], reduction="none"))
    assert_allclose(table["loss"].iloc[0], torch.cat(losses).mean(), rtol=1e-4)


class _Adapted(nn.Module):
    """A wrapper with PEFT's face."""

    def __init__(self, base, learns_prompts=False):
        super().__init__()
        self.base_model = base
        self.active_peft_config = SimpleNamespace(is_prompt_learning=learns_prompts)
        self.peft_config = {"default": self.active_peft_config}

    def get_base_model(self):
        return self.base_model

    def forward(self, *args, **kwargs):
        return self.base_model(*args, **kwargs)


WRAPPED = {
    "compiled": lambda model: torch.compile(model),
    "parallel": nn.DataParallel,
    "adapted": _Adapted,
    "compiled, parallel and adapted": lambda m: torch.compile(nn.DataParallel(_Adapted(m))),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_model_is_fed_and_measured_as_the_bare_one(name, begun):
    wrapped = _layers(WRAPPED[name](networks.gpt2()[0]), beginning())
    assert _same(begun, wrapped)
    hashes = [run.run.read_manifest().data_hashes for run in (begun, wrapped)]
    assert hashes[0] == hashes[1]
    assert wrapped.settings["measured"]["unwrapped"]


def test_a_pipeline_brings_its_tokenizer(begun):
    from transformers import pipeline

    whole = pipeline("text-generation", model=networks.gpt2()[0], tokenizer=beginning())
    assert _same(begun, _layers(whole, None))
    assert fs.doctor(whole).unwrapped == ("TextGenerationPipeline",)


def test_an_adapter_that_learns_prompts_is_refused():
    with pytest.raises(UnsupportedModelError, match="virtual tokens"):
        fs.load(_Adapted(networks.gpt2()[0], learns_prompts=True))


def test_runs_of_other_tokens_are_not_paired(quiet, begun):
    comparison = fs.compare(quiet, begun)
    assert not comparison.paired
    assert "the texts are the same, their tokens are not" in comparison.title
    assert fs.compare(quiet, quiet).paired


def test_what_is_fed_is_part_of_the_key_of_a_run(quiet):
    with pytest.raises(fs.errors.RecordError, match="special_tokens is True there and False now"):
        _layers(networks.gpt2()[0], plain(), out=quiet.run.folder, special_tokens=False)


def test_a_chat_needs_a_template():
    model = networks.gpt2()[0]
    with pytest.raises(InvalidInputError, match="no chat template"):
        _layers(model, plain(), chat=True)
    chat = _layers(model, plain(chat=True), chat=True, tokens=64)
    assert "chat template" in chat.settings["measured"]["fed"]
    assert chat.settings["measured"]["tokens_measured"] == 86 + 4 * 5


def test_options_of_the_command_change_what_is_fed(tmp_path):
    model, tokenizer = networks.gpt2()[0], beginning()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    small = ["--text", tmp_path / "texts.jsonl", "--out", tmp_path / "out", "--only", "P0",
             "--set", "controls=false", "--set", "resamples=20", "--json"]  # fmt: skip
    refused = command("audit", tmp_path / "model", *small, "--chat")
    assert refused.exit_code == 1
    assert "no chat template" in refused.output
    fed = {}
    for option in ("--special-tokens", "--no-special-tokens"):
        done = command("audit", tmp_path / "model", *small, option)
        assert done.exit_code in (0, 3), done.output
        fed[option] = json.loads(done.stdout)["measured"]
    assert "<s> text" in fed["--special-tokens"]["fed"]
    assert "text alone" in fed["--no-special-tokens"]["fed"]
    assert [fact["tokens"] for fact in fed.values()] == [90, 86]
    shown = command("doctor", tmp_path / "model")
    assert "each window is <s> text" in " ".join(shown.output.split())


def test_a_classifier_of_texts_pools_its_tokens_and_is_read_in_its_states(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = bracketed()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(tokenizer), intermediate_size=16, num_labels=3, **sizes)
    model = BertForSequenceClassification(config).eval()
    texts = [f"{word} " * 6 + text for word in ("one", "two") for text in TEXTS[:2]]
    found = fs.audit(model, texts, tokenizer=tokenizer, out=tmp_path / "run", progress=False)
    reasons = {verdict.name: verdict.because for verdict in found.verdicts}
    for name in ("P0", "P1", "P2", "P4", "P4r"):
        assert "pools the tokens" in reasons[name]
    assert "pools" not in reasons["P3"]
