"""Loss under dials: of a plain forward at rest, paired within prompts, beside its random twin."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from tests import networks as models
from tests.instruments.prompts import TEXTS

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.instruments.heads.dials.turning import Dial, dial_table
from flowscope.levers import geometry_attention
from flowscope.models.loading import load
from flowscope.models.prompts import Prompts, packaged_texts, prompts_of
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

LENGTHS = (12, 9, 5, 12)


def prompts(count=4, images=False):
    generator = np.random.default_rng(0)
    items = tuple(generator.integers(0, models.VOCAB, LENGTHS[k]) for k in range(count))
    return Prompts(items=items, source="given", data_hash="", text_hash="", images=images)


def counts(number=4):
    return resampled_counts(number, resamples=50, seed=0)


@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_the_loss_of_the_unchanged_model_is_that_of_a_plain_forward(batch):
    model, _ = models.llama()
    given, told = prompts(), []
    table = dial_table(
        load(model), given, [Dial(kind="flux", value=0.0)], counts(), batch=batch,
        advance=told.append,
    )  # fmt: skip
    total = 0.0
    for item in given.items:
        ids = torch.from_numpy(item)
        logits = model(input_ids=ids[None]).logits[0]
        total += F.cross_entropy(logits[:-1], ids[1:], reduction="sum").item()
    tokens = sum(LENGTHS) - len(LENGTHS)
    none = table.iloc[0]
    assert (none["dial"], none["setting"], none["tokens"], none["prompts"]) == ("none", "", 34, 4)
    assert_allclose(none["loss"], total / tokens, rtol=1e-5)
    assert_allclose(none["perplexity"], np.exp(total / tokens), rtol=1e-4)
    assert none["change"] == none["change_low"] == none["norm"] == none["total_variation"] == 0
    assert np.isnan(none["random_change"])
    assert sum(told) == 3 * 4


@torch.no_grad()
def test_a_change_is_the_difference_of_two_losses_and_its_interval_is_paired():
    model, _ = models.llama()
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(16.0)
    dial, given = Dial(kind="temperature", value=0.3), prompts()
    each = []
    for item in given.items:
        ids = torch.from_numpy(item)
        own = F.cross_entropy(model(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="sum")
        with geometry_attention(model, **dial.options(), layers=[1], heads=[0, 2]):
            logits = model(input_ids=ids[None]).logits[0, :-1]
        each.append((F.cross_entropy(logits, ids[1:], reduction="sum") - own).item())
    table = dial_table(load(model), given, [dial], counts(), batch=2, layers=[1], heads=[2, 0])
    row = table.iloc[1]
    assert (row["dial"], row["setting"], row["layers"], row["heads"]) == (
        "temperature", "0.3", "2", "0, 2",
    )  # fmt: skip
    assert_allclose(row["change"], sum(each) / 34, rtol=1e-3)
    sizes = np.array(LENGTHS)[:, None] - 1
    _, interval = mean_over_prompts(np.array(each)[:, None], sizes, counts())
    ends = [interval.low[0], interval.high[0]]
    assert_allclose([row["change_low"], row["change_high"]], ends, rtol=1e-3)
    assert_allclose(row["loss"] - table.iloc[0]["loss"], row["change"])
    assert 0 < row["total_variation"] < 1 < row["norm"]
    assert_allclose(row["excess"], row["change"] - row["random_change"], rtol=1e-9)
    assert row["excess_low"] <= row["excess"] <= row["excess_high"]


def test_without_rotation_equal_queries_and_keys_have_no_flux_to_turn_off():
    model, _ = models.gpt2()
    for block in model.transformer.h:
        for parameter in (block.attn.c_attn.weight, block.attn.c_attn.bias):
            with torch.no_grad():
                parameter[..., :64].mul_(4.0)
                parameter[..., 32:64] = parameter[..., :32]
    dials = [Dial(kind="flux", value=0.0), Dial(kind="exact", value=0.0)]
    table = dial_table(load(model), prompts(), dials, counts(), batch=4)
    assert table["norm"].iloc[1] < 1e-4
    assert abs(table["change"].iloc[1]) < 1e-5
    assert abs(table["random_change"].iloc[1]) < 1e-5
    assert table["norm"].iloc[2] > 0.1
    assert abs(table["change"].iloc[2]) > 1e-4


def test_draws_are_averaged():
    model, _ = models.llama()
    dial, given = Dial(kind="square", value=(0.0, 1.0)), prompts()
    options = {"dials": [dial], "counts": counts(), "batch": 4}
    one, two, both = (
        dial_table(load(model), given, seed=seed, draws=draws, **options).iloc[1]["random_change"]
        for seed, draws in ((5, 1), (6, 1), (5, 2))
    )
    assert one != two
    assert_allclose(both, (one + two) / 2, rtol=1e-6)


@pytest.fixture
def masking(tokenizer):
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    return tokenizer


@torch.no_grad()
def test_a_masked_model_names_the_tokens_behind_the_mask(masking):
    model, _ = models.bert()
    loaded = load(model, tokenizer=masking)
    given = prompts()
    seen = []
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].clone()), with_kwargs=True
    )
    table = dial_table(loaded, given, [Dial(kind="flux", value=0.0)], counts(), batch=1, seed=2)
    handle.remove()
    special = set(masking.all_special_ids)
    total, tokens = 0.0, 0
    for item, ids in zip(given.items, seen, strict=False):
        at = np.flatnonzero(ids[0].numpy() != item)
        assert len(at) == max(round(0.15 * sum(i not in special for i in item)), 1)
        assert (ids[0, at] == masking.mask_token_id).all()
        logits = model(input_ids=ids).logits[0, at]
        total += F.cross_entropy(logits, torch.from_numpy(item[at]), reduction="sum").item()
        tokens += len(at)
    assert_allclose(table["loss"].iloc[0], total / tokens, rtol=1e-5)
    assert (table["tokens"] == tokens).all()
    assert all(torch.equal(a, b) for a, b in zip(seen[:4], seen[4:8], strict=True))
    again = dial_table(loaded, given, [], counts(), batch=4, seed=2)
    assert_allclose(again["loss"], table["loss"].iloc[:1], rtol=1e-5)


def test_models_without_a_loss_say_so(tokenizer):
    from transformers import BertModel

    encoder = BertModel(models.bert()[0].config)
    cases = {
        "kind text_encoder names no token": (load(encoder, tokenizer=tokenizer), prompts()),
        "kind diffusion names no token": (load(models.dit()[0]), prompts()),
        "kind vision names no token": (load(models.vit()[0]), prompts(images=True)),
        "no mask token": (load(models.bert()[0], tokenizer=tokenizer), prompts()),
        "no tokenizer": (load(models.bert()[0]), prompts()),
    }
    for words, (loaded, given) in cases.items():
        found = dial_table(loaded, given, [], counts(), batch=2)
        assert isinstance(found, Unavailable)
        assert words in found.reason


def test_a_batch_is_made_smaller_where_its_logits_would_not_fit(monkeypatch):
    told = []
    monkeypatch.setattr(
        "flowscope.instruments.heads.dials.turning._LOGITS_HELD", 2 * 12 * models.VOCAB
    )
    monkeypatch.setattr(
        "flowscope.instruments.heads.dials.turning._LOGITS_AT_ONCE", 3 * models.VOCAB
    )
    loaded = load(models.llama()[0])
    small = dial_table(loaded, prompts(), [], counts(), batch=64, advance=told.append)
    assert told == [2, 2]
    monkeypatch.undo()
    whole = dial_table(loaded, prompts(), [], counts(), batch=64)
    assert_allclose(small["loss"], whole["loss"], rtol=1e-6)


def test_turning_a_sector_off_costs_the_bundled_model_more_than_noise_of_its_size():
    loaded = load(bundled_path())
    given = prompts_of(loaded, packaged_texts(), count=8, length=48)
    dials = [Dial(kind="flux", value=0.0), Dial(kind="exact", value=0.0)]
    table = dial_table(loaded, given, dials, counts(8), batch=4).iloc[1:]
    assert (table["change_low"] > 0.02).all()
    assert (table["change"] > table["random_change"] + 0.05).all()
    # rounding in bfloat16 aside, later layers of the two runs see other states
    assert_allclose(table["random_norm"], table["norm"], rtol=0.1)


@torch.no_grad()
def test_random_changes_have_the_norm_of_the_dial_on_the_bundled_model():
    """Layer by layer: later ones see the states that earlier changes left."""
    loaded = load(bundled_path())
    given = prompts_of(loaded, TEXTS, count=1, length=32)
    ids = torch.from_numpy(given.items[0])[None]
    for layer in (0, 9):
        norms = []
        for seed in (None, 0, 1):
            with geometry_attention(loaded.model, flux=0.0, layers=[layer], noise=seed) as lever:
                loaded.model(input_ids=ids)
            norms.append(lever.table["norm"].to_numpy())
        assert (norms[0] > 0.1).all()
        assert_allclose(norms[1], norms[0], rtol=1e-5)
        assert_allclose(norms[2], norms[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "torsion", "value": 0.0}, "kind must be one of .*got 'torsion'"),
        ({"kind": "square", "value": 0.0}, r"square takes a pair \(a, b\)"),
        ({"kind": "flux", "value": (0.0, 1.0)}, "every other dial a number"),
    ],
)
def test_dials_that_are_none_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        Dial(**options)


def test_numbers_that_do_not_fit_are_refused():
    loaded = load(models.llama()[0])
    dial = Dial(kind="flux", value=0.0)
    with pytest.raises(InvalidInputError, match="draws must be at least 1; got 0"):
        dial_table(loaded, prompts(), [dial], counts(), batch=2, draws=0)
    with pytest.raises(InvalidInputError, match=r"No attention .*layers \[9\]"):
        dial_table(loaded, prompts(), [dial], counts(), batch=2, layers=[9])
    wrong = Dial(kind="alpha", value=2.0)
    with pytest.raises(InvalidInputError, match="alpha must lie in"):
        dial_table(loaded, prompts(), [wrong], counts(), batch=2)
