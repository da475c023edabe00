"""The audit as a user runs it: verdicts, tables, controls, resuming, and bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests import networks as models
from tests.instruments.prompts import TEXTS
from tests.instruments.tiny import command, shown

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.nets import bundled_path

COLUMNS = {
    "layer",
    "relative_step",
    "total_variation",
    "oscillation",
    "entropy",
    "mobility_frobenius",
    "agreement",
    "tail_mass",
}


def test_the_bundled_model_is_audited_by_default(audit):
    assert [v.name for v in audit.verdicts] == ["P0", "P1", "P2", "P3", "P4", "P4r"]
    decisions = {v.name: v.decision for v in audit.verdicts}
    silent = {decisions[name] for name in ("P0", "P1", "P3", "P4", "P4r")}
    assert silent == {"abstains"}  # three prompts
    assert "layers 4–14" in audit.verdicts[0].because
    assert "this run has 3" in audit.verdicts[0].because
    assert set(audit.table.columns) >= COLUMNS
    assert audit.table["layer"].tolist() == list(range(15))
    assert "P0" in str(audit)
    assert "<table" in audit._repr_html_()


def test_the_terminal_shows_how_much_was_read(tiny_run):
    document = tiny_run("audit").document
    assert f"3 prompts, {document['measured']['tokens']} tokens" in shown("audit", document)


def test_segments_cover_the_depth_and_failing_ones_abstain(audit):
    segments = audit.segments
    covered = [
        layer
        for row in segments.itertuples()
        for layer in range(row.first_layer, row.last_layer + 1)
    ]
    assert covered == list(range(1, 15))
    assert [row["decision"] for row in audit.to_json()["segments"]] == list(segments["decision"])
    status = audit.table.set_index("layer")["status"]
    for row in segments.itertuples():
        inside = status.loc[row.first_layer : row.last_layer]
        assert set(inside) == {"ok" if row.decision == "holds" else "abstained"}


def test_the_gate_is_no_claim_on_the_page_and_in_the_terminal(copied):
    result = copied("audit")
    gate = result.run.read_table("gate")
    crossed = [gate.assign(cuts_from=half) for half in ("even", "odd")]
    result.run.write_table("gate", pd.concat(crossed, ignore_index=True))
    steps = np.random.default_rng(0).random((16, 14))
    result.run.write_arrays("prompts", {"relative_step": steps})
    curved = result.run.read_arrays("contraction")
    result.run.write_arrays("contraction", {n: v[np.arange(16) % 3] for n, v in curved.items()})
    verdict = next(v for v in result.judge() if v.name == "P0")
    assert verdict.decision == "holds"
    document = result.to_json()
    assert [v["name"] for v in document["verdicts"] if v["gate"]] == ["P0"]
    printed = " ".join(shown("audit", document).split())
    assert "P0 Smoothness READABLE AS A FLOW: layers 4–14" in printed
    page = result.report().read_text(encoding="utf-8")
    assert 'class="chip gate"' in page
    assert 'class="verdict gate"' in page
    assert "Of 4 claims" in page


def test_controls_stand_beside_the_gate(audit):
    segments = audit.segments
    assert segments["random_weights"].notna().all()
    longest = segments.loc[(segments["last_layer"] - segments["first_layer"]).idxmax()]
    assert 0 < longest["linear_interpolation"] < longest["relative_variation"]
    assert longest["tortuosity"] >= 1
    assert (segments["low"] <= segments["high"]).all()


def test_the_layer_table_is_made_of_medians_of_the_path(audit):
    model, tokenizer = fs.load(bundled_path()).model.float(), fs.load(bundled_path()).tokenizer
    values = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        states = []
        with fs.Tap(model) as tap, torch.no_grad():
            tap.on_block(
                lambda e, s=states: s.extend([e.hidden_in] * (e.site.index == 0) + [e.hidden_out])
            )
            model(input_ids=ids)
            z = torch.stack([tap.anatomy.tail.rows(h)[0] for h in states]).double()
        z = z - z.mean(-1, keepdim=True)
        values.append(((z[1:] - z[:-1]).square().sum(-1) / z[1:].square().sum(-1)).T)
    expected = torch.cat(values).median(0).values.numpy()
    np.testing.assert_allclose(audit.table["relative_step"].to_numpy()[1:], expected, rtol=1e-3)


def test_a_bare_encoder_is_measured_in_its_states_and_abstains(tokenizer, tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
    )
    found = fs.audit(
        BertModel(config).eval(),
        ["it was the best of times"],
        tokenizer=tokenizer,
        out=tmp_path / "r",
    )
    assert {v.decision for v in found.verdicts} == {"abstains"}
    assert found.abstained
    assert "last_hidden_state" in found.verdicts[0].because
    assert found.table["relative_step"].notna().sum() == 4
    assert len(found.run.read_table("heads")) == 16
    assert found.report().is_file()


@pytest.mark.parametrize("name", ["bert", "albert", "t5", "gemma2"])
def test_other_families_are_audited(name, tokenizer, tmp_path):
    model, _ = models.READABLE[name]()
    texts = ["it was the best of times , it was", "the best of it was the times of"]
    found = fs.audit(model, texts, tokenizer=tokenizer, out=tmp_path / "run", resamples=10)
    assert set(found.table.columns) >= COLUMNS
    assert found.verdicts[0].statistic.status == "ok" or found.verdicts[0].decision == "abstains"


def test_a_vision_model_is_audited_on_its_class(tmp_path):
    model, batch = models.vit()
    found = fs.audit(model, batch["pixel_values"], out=tmp_path / "run", resamples=10)
    assert len(found.table) == 4
    assert found.table["agreement"].iloc[-1] == 1.0


def test_a_model_of_one_layer_abstains_in_words(tokenizer, tmp_path):
    model, _ = models.gpt2(layers=1)
    found = fs.audit(model, ["it was the best of times"], tokenizer=tokenizer, out=tmp_path / "r")
    assert found.verdicts[0].decision == "abstains"


def test_two_outcomes_are_enough(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=2, n_embd=16, n_layer=4, n_head=2, n_positions=32)
    )

    def tokenize(text, **options):
        return {"input_ids": [len(word) % 2 for word in text.split()]}

    tokenize.decode = lambda ids: str(ids[0])
    found = fs.audit(
        model.eval(), ["it was the best of times"], tokenizer=tokenize, out=tmp_path / "r"
    )
    assert found.table["tail_mass"].max() <= 0.5


@pytest.mark.parametrize(
    ("texts", "words"),
    [([], "no prompt|fewer than two"), ([""], "fewer than two tokens"), (["it"], "fewer than two")],
)
def test_too_little_text_gets_a_sentence(texts, words, tokenizer):
    with pytest.raises(InvalidInputError, match=words):
        fs.audit(models.llama()[0], texts, tokenizer=tokenizer)


def test_a_wrong_tokenizer_gets_a_sentence(tokenizer):
    model, _ = models.gpt2()
    loaded = fs.load(bundled_path())
    with pytest.raises(InvalidInputError, match="the vocabulary of the model has"):
        fs.audit(model, TEXTS, tokenizer=loaded.tokenizer)
    with pytest.raises(InvalidInputError, match="has no tokenizer"):
        fs.audit(model, TEXTS)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights_get_a_sentence(value, tokenizer):
    model, _ = models.llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = value
    with pytest.raises(InvalidInputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight holds 1"):
        fs.audit(model, ["it was the best of times"], tokenizer=tokenizer)


def test_progress_is_told_by_stage(tokenizer, tmp_path):
    told = []
    fs.audit(
        models.llama()[0],
        ["it was the best of times", "the times of it was best"],
        tokenizer=tokenizer,
        out=tmp_path / "run",
        batch=1,
        resamples=5,
        progress=lambda stage, done, total: told.append((stage, done, total)),
    )
    assert told[:2] == [("measuring", 1, 2), ("measuring", 2, 2)]
    stages = {"measuring", "random weights", "second look", "output path"}
    assert {stage for stage, _, _ in told} == stages  # two short prompts: too few pairs to sweep


def test_few_prompts_are_compared_but_no_change_is_reported(audit, tmp_path):
    from flowscope.instruments.audit.comparison import compared

    hot = _hotter(tmp_path, TEXTS)
    comparison = compared(audit.run, hot.run)
    assert comparison.changes.empty
    assert (comparison.table["low"] > 0).any(), "the pointwise intervals are still there"
    words = " ".join(command("compare", audit.run.folder, hot.run.folder).stdout.split())
    assert "at least 8 prompts are needed in each run; these have 3 and 3" in words
    assert "Next: Run both again with at least 8 prompts" in words


def test_runs_compare_within_prompts(tmp_path):
    from flowscope.instruments.audit.comparison import compared

    words = [text.split() for text in TEXTS]
    texts = [" ".join(each[start:] + each[:start]) for each in words for start in (0, 2, 5, 8, 11)]
    plain = fs.audit(texts=texts, out=tmp_path / "plain", **FEW)
    same = compared(plain.run, plain.run)
    assert same.paired
    assert same.changes.empty
    assert "paired by prompt" in command("compare", plain.run.folder, plain.run.folder).stdout
    hot = _hotter(tmp_path, texts)
    comparison = compared(plain.run, hot.run)
    entropy = comparison.changes[comparison.changes["statistic"] == "entropy"]
    assert (entropy["difference"] > 0).all()
    assert (entropy["joint_low"] > 0).all()
    assert len(entropy) >= 8
    said = next(line for line in comparison.summary if line.startswith("entropy"))
    assert "95 % simultaneous over 66 comparisons" in said
    printed = " ".join(command("compare", plain.run.folder, hot.run.folder).stdout.split())
    assert said in printed
    assert "Next: Look at these depths in both reports" in printed


FEW = {
    "resamples": 20,
    "controls": False,
    "curvature_pairs": 0,
    "evi_positions": 0,
    "flow_positions": 0,
    "tokens": 12,
}


def _hotter(folder, texts):
    """An audit of the bundled model with flatter outputs: more entropy everywhere."""
    hot = fs.load(bundled_path(), dtype=torch.float32)
    with torch.no_grad():
        hot.model.model.norm.weight.mul_(0.5)
    return fs.audit(hot, texts, out=folder / "hot", **FEW)
