"""The reading of the heads as a user runs it: tables, contract, families, resuming, refusals."""

import json

import numpy as np
import pytest
import torch
from tests import networks as models
from tests.instruments.prompts import TEXTS
from tests.instruments.tiny import shown

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.lab.result import open_run
from flowscope.records import Unavailable

FEW = {name: [] for name in ("metric", "exact", "alpha", "temperatures", "squares")}


def test_every_head_has_a_row_an_interval_and_a_label(heads):
    table = heads.table
    assert len(table) == 14 * 8
    assert set(table["label"]) <= {"equilibrium", "steady state", "undecided"}
    assert (table["chain"] == "unmasked").all()
    assert (table["status"] == "ok").all()
    low, high = table["entropy_production_low"], table["entropy_production_high"]
    assert (low <= table["entropy_production"] + 1e-12).all()
    assert (table["entropy_production"] <= high + 1e-12).all()
    assert (table["entropy_production"] > 0).all()
    assert table["gap"].between(0, 1).all()
    assert table["effective_keys"].between(1, 24).all()
    assert table["entropy_production_random"].notna().all()
    np.testing.assert_allclose(
        table["steps_to_tell"], np.log(20) / table["entropy_production"], rtol=1e-9
    )


def test_one_prompt_gives_numbers_but_no_label(tmp_path):
    """Without an interval nothing is told apart, however large the number is."""
    settings = {"controls": False, "resamples": 20, **FEW}
    one = fs.heads(texts=TEXTS[:1], out=tmp_path / "one", **settings).table
    assert (one["entropy_production"] > 0).all()
    assert one["entropy_production_low"].isna().all()
    assert set(one["label"]) == {"undecided"}
    assert one["because"].str.contains("one prompt has none. Give at least 2 prompts").all()
    assert (one["status"] == "ok").all(), "the numbers are there"


def test_copies_of_a_prompt_have_no_label(tmp_path):
    settings = {"controls": False, "resamples": 20, "tokens": 16, "dials": False}
    table = fs.heads(texts=[TEXTS[0]] * 3, out=tmp_path / "run", **settings).table
    assert table["entropy_production_low"].isna().all()
    assert set(table["label"]) == set(table["label_joint"]) == {"undecided"}


def test_a_label_follows_the_interval_and_not_the_point(heads):
    table = heads.table
    needed = np.log(20) / table["steps"]
    low, high = table["entropy_production_low"], table["entropy_production_high"]
    assert (table["label"] == "steady state").equals(low > needed)
    assert (table["label"] == "equilibrium").equals(high < needed)
    assert (table["because"] == "").all()


def test_a_rotary_model_has_no_ratio_of_weights_and_says_why(heads):
    assert heads.table["weight_ratio"].isna().all()
    assert heads.table["weight_because"].str.contains("rotary").all()


def test_the_verdicts_stand_beside_chains_that_are_as_sharp(heads):
    sharp, one_way = heads.verdicts
    assert [sharp.name, one_way.name] == ["M1", "M2"]
    arrays = heads.run.read_arrays("production")
    prompts, size = arrays["model"].shape
    assert arrays["as_sharp"].shape == arrays["keys_permuted"].shape == (3, prompts, size)
    table = heads.table
    names = [f"entropy_production{end}" for end in ("", "_permuted", "_as_sharp", "_random")]
    own, permuted, matched, random = table[names].median()
    # As sharp as the model's own rows, so of the same order; random weights are not.
    assert 0.1 < own / permuted < 10
    assert 0.1 < own / matched < 10
    assert own > 10 * random
    assert float(sharp.effect) == pytest.approx(table["log_ratio_as_sharp"].median(), abs=0.1)
    assert float(one_way.effect) == pytest.approx(table["log_ratio_permuted"].median(), abs=0.1)
    repeats = heads.run.read_table("references").set_index("reference")["repeats"]
    assert repeats.to_dict() == {
        "random weights": 1, "random weights, as sharp": 3, "keys permuted": 3,
    }  # fmt: skip


def test_judging_again_gives_the_same_verdicts(heads):
    before = [(v.name, v.outcome, v.effect, v.because) for v in heads.verdicts]
    again = open_run(heads.run.folder)
    again.judge()
    assert [(v.name, v.outcome, v.effect, v.because) for v in again.verdicts] == before


def test_every_label_stands_beside_the_error_of_its_family(heads):
    labels, table = heads.tables.labels.set_index("label"), heads.table
    assert labels["heads"].sum() == labels["heads_joint"].sum() == len(table)
    for label, row in labels.iterrows():
        assert row["heads"] == (table["label"] == label).sum()
        assert row["heads_joint"] == (table["label_joint"] == label).sum()
    decided = labels.drop(index="undecided", errors="ignore")
    assert (decided["expected_wrong"] <= 0.025 * len(table) + 1e-9).all()
    low, high = table["entropy_production_joint_low"], table["entropy_production_joint_high"]
    assert (low <= table["entropy_production_low"]).all()
    assert (high >= table["entropy_production_high"]).all()
    assert heads.to_json()["labels"][0]["heads"] > 0


def test_a_model_that_cannot_be_made_anew_has_no_twin_and_says_why(tmp_path):
    model, batch = models.encoder()
    generator = torch.Generator().manual_seed(0)
    inputs = [
        {n: torch.randn(v.shape, generator=generator) for n, v in batch.items()} for _ in range(8)
    ]
    result = fs.heads(model, inputs=inputs, out=tmp_path / "run", dials=False)
    sharp, one_way = result.verdicts
    assert "only a model with a configuration can be initialised anew" in sharp.because
    assert sharp.outcome == "abstains"
    assert "as_sharp" not in result.run.read_arrays("production")
    assert result.table["log_ratio_as_sharp"].isna().all()
    assert "missing" not in one_way.because


def test_the_dials_stand_beside_a_random_change_of_equal_norm(heads):
    dials = heads.dials.set_index("dial")
    assert dials.loc["none", "change"] == 0
    assert dials.loc["flux", "norm"] == pytest.approx(dials.loc["flux", "random_norm"], rel=0.3)
    for name in ("change", "random_change", "excess"):
        row = dials.loc["flux"]
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


def test_the_document_keeps_its_contract(heads):
    document = json.loads(json.dumps(heads.to_json()))
    assert set(document) >= {"model", "chain", "heads", "verdicts", "tables", "run", "report"}
    keys = {"layer", "head", "entropy_production", "label", "chain", "interval"}
    for head in document["heads"]:
        assert set(head) >= keys
        assert head["interval"][0] <= head["entropy_production"] <= head["interval"][1]
    assert document["heads"][0]["layer"] == 1
    assert document["heads"][0]["head"] == 0


def test_the_terminal_shows_ten_heads(tiny_run):
    lines = shown("heads", tiny_run("heads").document).splitlines()
    labels = ("steady state", "undecided")  # three prompts have wide intervals
    assert sum("…" in line and any(label in line for label in labels) for line in lines) >= 9
    words = " ".join(lines)
    assert "unmasked chain" in words
    assert "nats/step" in words


def test_the_portrait_is_that_of_the_sentence(heads):
    arrays, sentence = heads.run.read_arrays("portrait"), heads.run.read_table("sentence")
    n = len(sentence)
    assert arrays["kernel"].shape == (14, 8, n, n)
    np.testing.assert_allclose(arrays["kernel"].sum(-1), 1, atol=1e-5)
    law, kernel = arrays["law"].astype(float), arrays["kernel"].astype(float)
    np.testing.assert_allclose(np.einsum("lhi,lhij->lhj", law, kernel), law, atol=1e-5)
    current = arrays["current"]
    np.testing.assert_allclose(current, -current.swapaxes(-1, -2), atol=1e-7)
    np.testing.assert_allclose(current.sum(-1), 0, atol=1e-5)
    assert np.isfinite(arrays["diffusion"]).all()
    assert np.isfinite(arrays["magnetic"]).all()


@pytest.mark.parametrize("chain", ["damped", "quasi-stationary"])
def test_other_chains_are_named_in_every_row(chain, tmp_path):
    found = fs.heads(
        texts=TEXTS[:2], out=tmp_path / "run", chain=chain, tokens=16, dials=False, controls=False
    )
    assert (found.table["chain"] == chain).all()
    refused = chain == "quasi-stationary"
    assert (found.table["label"] == "refused").all() == refused
    assert found.table["entropy_production"].isna().all() == refused
    assert found.table["survival"].notna().all() == refused
    assert {v.decision for v in found.verdicts} == {"abstains"}
    assert found.abstained == refused, "a label is a result too"
    assert found.report().is_file()


@pytest.mark.parametrize("family", ["bert", "gemma2", "gemma3", "albert"])
def test_other_families_are_read(family, tokenizer, tmp_path):
    model, _ = getattr(models, family)()
    texts = ["it was the best of times", "the best of times , it was"]
    found = fs.heads(
        model, texts, tokenizer=tokenizer, out=tmp_path / "run", resamples=10, control_prompts=2
    )
    assert found.table["entropy_production"].notna().all()
    if family == "gemma2" and not isinstance(found.dials, Unavailable):
        square = found.dials[found.dials["dial"] == "square"]
        assert square["because"].str.contains("cap").all()
    assert found.report().is_file()


def test_a_biased_decoder_abstains_with_the_reason(tokenizer, tmp_path):
    model, _ = models.t5()
    found = fs.heads(model, ["it was the best of times"], tokenizer=tokenizer, out=tmp_path / "run")
    assert (found.table["status"] == "abstained").all()
    assert found.table["because"].str.contains("bias").all()
    noted = {m.name: m.because for m in found.run.read_measurements()}
    assert "no diagonal" in noted["cross-attention"]
    assert {v.decision for v in found.verdicts} == {"abstains"}


def test_a_denoiser_is_read_on_noise_and_says_so(tmp_path):
    model, _ = models.dit()
    found = fs.heads(model, out=tmp_path / "run", prompts=4)
    assert found.table["entropy_production"].notna().all()
    assert found.table["weight_ratio"].notna().all()
    assert found.table["entropy_production_random"].notna().all()
    measured = found.run.read_manifest().config_resolved["measured"]
    assert measured["material"] == "noise of the right shape"
    assert isinstance(found.dials, Unavailable)
    assert found.report().is_file()


def test_inputs_of_any_torch_model_can_be_given(tmp_path):
    model, batch = models.encoder()
    again = {name: torch.randn_like(value) for name, value in batch.items()}
    found = fs.heads(model, inputs=[batch, again], out=tmp_path / "run")
    assert found.table["entropy_production"].notna().all()
    assert found.table["entropy_production_random"].isna().all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"chain": "masked"}, "chain"),
        ({"damping": 0.0}, "damping"),
        ({"dampening": 0.1}, "Did you mean 'damping'"),
        ({"charge": float("nan")}, "charge"),
        ({"alpha": [2.0]}, "alpha"),
        ({"dial_layers": [40], "flux": [0.0], **FEW}, "layers"),
    ],
)
def test_bad_settings_are_sentences(settings, sentence, tmp_path):
    with pytest.raises(InvalidInputError, match=sentence):
        fs.heads(texts=TEXTS[:1], out=tmp_path / "run", tokens=8, controls=False, **settings)


def test_two_tokens_are_enough(tmp_path):
    found = fs.heads(texts=["a b"], out=tmp_path / "run", tokens=2, dials=False, controls=False)
    assert found.table["entropy_production"].max() < 1e-5  # two tokens have no cycle
    assert found.run.read_arrays("portrait")["diffusion"].shape == (14, 8, 2, 2)
    assert found.dials.reason == "dials are switched off"
    assert found.report().is_file()


def test_texts_and_inputs_together_are_refused(tmp_path):
    model, batch = models.encoder()
    with pytest.raises(InvalidInputError, match="not both"):
        fs.heads(model, ["a"], inputs=[batch], out=tmp_path / "run")
    with pytest.raises(InvalidInputError, match="mappings"):
        fs.heads(model, inputs=[], out=tmp_path / "run")
