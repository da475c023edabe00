"""P3 in the audit: tables, abstentions, sweeps on the live model, resuming and settings."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests import networks as models
from tests.instruments.prompts import TEXTS

import flowscope as fs
from flowscope.evidence import resampled_counts
from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.audit.contraction.tables import (
    curvature_table,
    evi_share,
    evi_table,
    response_table,
)
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.records import Unavailable


def test_every_head_has_a_row_with_its_numbers(audit):
    table = audit.run.read_table("curvature")
    assert len(table) == 14 * 8
    ok = table[table["status"] == "ok"]
    assert len(ok) > 50
    assert (ok["low"] <= ok["high"]).all()
    assert (ok["kappa"] <= 1).all()
    assert (table["pairs"] + table["left_out"] == 3 * 4).all()
    # Untrained rows are nearly uniform, so they all look at the same place.
    assert table["random_weights"].median() > 0.9 > ok["kappa"].median() > 0


def test_the_verdict_is_the_mean_over_heads_beside_its_null(audit):
    verdict = next(v for v in audit.verdicts if v.name == "P3")
    ok = (audit.run.read_table("curvature")["status"] == "ok").to_numpy()
    arrays = audit.run.read_arrays("contraction")
    for measurement, name in ((verdict.statistic, "kappa"), (verdict.null, "keys_permuted")):
        means = np.nanmean(arrays[name].reshape(3, -1)[:, ok], axis=1)
        assert float(measurement.numbers()) == pytest.approx(means.mean())
    assert verdict.statistic.n == 3
    assert verdict.outcome == "abstains"
    assert "at least 8 different prompts are needed; this run has 3" in verdict.because
    document = next(v for v in audit.to_json()["verdicts"] if v["name"] == "P3")
    assert document["interval"][0] <= document["statistic"] <= document["interval"][1]


def test_the_verdict_is_made_again_from_the_folder(copied):
    result = copied("audit")
    before = next(v for v in result.verdicts if v.name == "P3")
    result.run.write_verdicts([v for v in result.verdicts if v.name != "P3"])
    again = next(v for v in result.judge() if v.name == "P3")
    assert again.because == before.because
    assert again.effect == before.effect
    table = result.run.read_table("curvature")
    result.run.write_table("curvature", table.assign(random_weights=0.25))
    assert "0.25 with random weights" in next(v for v in result.judge() if v.name == "P3").because


def test_the_response_holds_the_model_itself_and_every_setting(audit):
    table = audit.run.read_table("curvature_response")
    whole = table[table["scope"] == "all"].set_index(["kind", "setting"])
    assert len(whole) == 10
    assert (whole.xs(1.0, level="setting")["change"] == 0).all()
    # On a softmax this far from one-hot, a ten-fold spread of temperatures moves the curvature.
    hot, cold = whole.loc[("temperature", 2.0)], whole.loc[("temperature", 0.5)]
    assert abs(hot["kappa"] - cold["kappa"]) > 0.1
    assert set(table.loc[table["scope"] == "layer", "layer"]) == set(range(1, 15))


def test_the_inequality_abstains_where_the_gate_does(audit):
    table = audit.run.read_table("evi").set_index("step")
    status = audit.table.set_index("layer")["status"]
    for step in table.index[:-1]:
        assert table.loc[step, "status"] == status[step]
        assert np.isnan(table.loc[step, "share"]) == (status[step] == "abstained")
    assert "ends at the target" in table.loc[14, "because"]
    assert (table["tokens"] + table["left_out"] == 2 * 4).all()
    names = [m.name for m in audit.run.read_measurements()]
    assert names[:2] == ["EVI: share of steps", "EVI: share of steps, shuffled"]


def test_a_sweep_that_is_switched_off_writes_no_table(tmp_path):
    settings = {"resamples": 20, "batch": 2, "control_prompts": 2, "controls": False}
    off = {"temperatures": [], "key_norms": [], "evi_positions": 0}
    again = fs.audit(texts=TEXTS, out=tmp_path / "run", **settings, **off)
    assert "curvature" in again.run.tables()
    assert not {"curvature_response", "evi"} & set(again.run.tables())
    assert again.run.read_measurements()[0].status == "abstained"


def test_the_report_shows_it(audit):
    page = (audit.run.folder / "report.html").read_text(encoding="utf-8")
    for name in ("curvature", "curvature-null", "curvature-difference", "evolution"):
        assert f'id="plot-{name}"' in page


def test_a_sweep_is_live_and_leaves_the_model_as_it_was(monkeypatch):
    """What the first layer does differently is what the second layer's points are made from."""
    from flowscope.instruments.audit.contraction import sweeps
    from flowscope.models.prompts import Batch
    from flowscope.probes import Setting

    model, inputs = models.llama()
    mask = torch.ones(2, 12, dtype=torch.bool)
    batch = Batch(inputs=inputs, prompts=np.arange(2), mask=mask)
    cold = [Setting(kind="temperature", value=0.05)]
    with torch.no_grad():
        before = model(**inputs).logits
    (live,) = sweeps.responses(model, lambda: [batch], cold, pairs=4)
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, before, rtol=0, atol=0)
    monkeypatch.setattr(sweeps, "attention_output", lambda call: call.output())
    (still,) = sweeps.responses(model, lambda: [batch], cold, pairs=4)
    kappa = [x["curvature_kappa"] for x in (live, still)]
    assert kappa[0].shape == (8, 3, 4)
    assert_allclose(kappa[0][:, 0], kappa[1][:, 0], atol=1e-6)
    assert np.nanmax(np.abs(kappa[0][:, 1:] - kappa[1][:, 1:])) > 1e-3


def test_pairs_of_zero_leave_the_curvature_out(tokenizer, tmp_path):
    texts = ["it was the best of times , it was", "the best of it was the times of"]
    found = fs.audit(
        models.llama()[0],
        texts,
        tokenizer=tokenizer,
        out=tmp_path / "run",
        resamples=5,
        curvature_pairs=0,
        evi_positions=0,
    )
    verdict = next(v for v in found.verdicts if v.name == "P3")
    assert verdict.decision == "abstains"
    assert "curvature_pairs is 0" in verdict.because
    assert not {"curvature", "curvature_response", "evi"} & set(found.run.tables())
    assert found.report().is_file()


def test_an_encoder_without_output_has_curvature_but_no_path(tokenizer, tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
    )
    texts = [
        "it was the best of times , it was",
        "the best of it was the times of",
        "it of the was",
    ]
    found = fs.audit(
        BertModel(config).eval(), texts, tokenizer=tokenizer, out=tmp_path / "r", resamples=10
    )
    assert len(found.run.read_table("curvature")) == 12
    assert "evi" not in found.run.tables()
    p3 = next(v for v in found.verdicts if v.name == "P3")
    assert p3.statistic.status == "ok"


@pytest.mark.parametrize(
    ("setting", "words"),
    [("temperatures=[0]", "must be above 0"), ("key_norms=[-1]", "must be at least"),
     ("curvature_pairs=-1", "must be at least")],
)  # fmt: skip
def test_bad_settings_get_a_sentence(setting, words):
    with pytest.raises(fs.errors.InvalidInputError, match=words):
        AuditConfig.resolved({}, [setting])


def test_settings_are_read():
    config = AuditConfig.resolved({}, ["temperatures=[0.25, 4]", "key_norms=[]", "evi_top=16"])
    assert config.temperatures == (0.25, 4.0)
    assert config.key_norms == ()
    assert config.evi_top == 16


def curved(kappa, prompt, *, null=None, left_out=None, pinned=None):
    kappa = np.asarray(kappa, np.float32)
    zero = np.zeros(kappa.shape, np.int8)
    return {
        "curvature_prompt": np.asarray(prompt),
        "curvature_kappa": kappa,
        "curvature_null": kappa - 0.1 if null is None else null,
        "curvature_transport": 1 - kappa,
        "curvature_total_variation": np.random.default_rng(9).random(kappa.shape),
        "curvature_kept": np.ones_like(kappa),
        "curvature_left_out": zero if left_out is None else left_out,
        "curvature_pinned": zero if pinned is None else pinned,
    }


COUNTS = resampled_counts(5, resamples=50, seed=0)
PROMPT = np.repeat(np.arange(5), 4)
NO_TWIN = Unavailable("no twin")


def test_heads_without_enough_pairs_or_with_a_sink_abstain():
    rng = np.random.default_rng(0)
    kappa = rng.uniform(0.2, 0.6, size=(20, 1, 3))
    left_out, pinned = np.zeros((20, 1, 3), np.int8), np.zeros((20, 1, 3), np.int8)
    kappa[:15, 0, 1], left_out[:15, 0, 1] = np.nan, 2
    pinned[:19, 0, 2] = 1
    table = curvature_table(
        curved(kappa, PROMPT, left_out=left_out, pinned=pinned), NO_TWIN, COUNTS
    )
    assert table["status"].tolist() == ["ok", "abstained", "abstained"]
    assert "5 of 20 pairs" in table["because"][1]
    assert "15 too little mass" in table["because"][1]
    assert "95% of its pairs both rows attend to the same key" in table["because"][2]
    assert table["kappa"].isna().tolist() == [False, True, True]
    assert table["random_weights"].isna().all()


def test_the_effect_of_a_head_is_taken_within_pairs():
    """A null that is κ − 0.1 for every pair differs by 0.1 in every prompt, without spread."""
    prompt = np.repeat(np.arange(10), 2)
    kappa = np.random.default_rng(1).uniform(-0.5, 0.9, size=(20, 2, 2))
    counts = resampled_counts(10, resamples=50, seed=0)
    table = curvature_table(curved(kappa, prompt), NO_TWIN, counts)
    assert (table["high"] - table["low"] > 0.05).all()
    names = ["effect", "effect_low", "effect_high", "joint_low", "joint_high"]
    assert_allclose(table[names], 0.1, atol=1e-6)


def test_a_response_tells_of_the_heads_that_speak_and_changes_within_pairs():
    from flowscope.probes import Setting

    rng = np.random.default_rng(2)
    kappa = rng.uniform(0, 1, size=(20, 2, 2))
    base = curved(kappa, PROMPT)
    heads = curvature_table(base, NO_TWIN, COUNTS)
    heads.loc[heads["head"] == 1, "status"] = "abstained"
    other = kappa + 0.25
    other[:, :, 1] = -9.0
    table = response_table(
        base, {Setting(kind="temperature", value=2.0): curved(other, PROMPT)}, heads, COUNTS
    )
    assert set(table["kind"]) == {"temperature"}
    whole = table[(table["scope"] == "all") & (table["setting"] == 2.0)].iloc[0]
    assert whole["kappa"] == pytest.approx(np.median(kappa[:, :, 0]) + 0.25, abs=1e-6)
    assert_allclose(whole[["change", "change_low", "change_high"]].astype(float), 0.25, atol=1e-6)


def segment(first, last, value):
    return SegmentEvidence(
        first=first,
        last=last,
        kind="segment",
        relative_variation=value,
        interval=Unavailable("none"),
        share_above=0.0,
        mass_residual=0.0,
        mass_bound=1.0,
        threshold=0.15,
        random_weights=0.2,
        linear_interpolation=0.0,
    )


def evi_arrays(satisfied):
    slack = np.where(satisfied, 0.2, -0.2)
    found = {"evi_prompt": PROMPT, "evi_kept": np.ones((20, 5))}
    for path in ("model", "shuffled", "straight"):
        found |= {
            f"evi_slack_{path}": slack,
            f"evi_progress_{path}": slack + 0.1,
            f"evi_fell_{path}": np.ones_like(slack),
        }
    return found


def test_shares_are_those_of_tokens_whose_energy_fell_and_slack_is_positive():
    satisfied = np.tile([[True, False, True, True]], (20, 1))
    satisfied[:5, 2] = False
    found = evi_arrays(satisfied)
    found["evi_fell_model"][10:, 2] = 0.0
    table = evi_table(found, [segment(1, 1, 0.5), segment(2, 4, 0.1)], COUNTS)
    assert table["status"].tolist() == ["abstained", "ok", "ok", "abstained"]
    assert "0.5, above the limit 0.15" in table["because"][0]
    assert_allclose(table["share"][1:3], [0.0, 0.25])
    share, null = evi_share(found, table, COUNTS, seed=0)
    assert float(share.numbers()) == pytest.approx(0.125)
    assert float(null.numbers()) == pytest.approx((0 + 0.75) / 2)


def test_a_path_that_passes_nowhere_has_no_share():
    found = evi_arrays(np.ones((20, 4), bool))
    table = evi_table(found, [segment(1, 4, 0.5)], COUNTS)
    share, _ = evi_share(found, table, COUNTS, seed=0)
    assert share.status == "abstained"
    assert "P0" in share.because
