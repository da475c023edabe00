"""P1 and P4 of an audit of the bundled model, small; and why they abstain where they do."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.instruments.prompts import TEXTS

import flowscope as fs
from flowscope.instruments.audit.adequacy.judge import judge
from flowscope.lab.view import Records
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled_path
from flowscope.records import Run

SMALL = {
    "prompts": 16, "tokens": 48, "resamples": 20, "controls": False, "curvature_pairs": 0,
    "evi_positions": 0, "flow_rank": 16, "flow_close": 2, "rotation_rank": 4, "rotation_layers": 2,
    "batch": 4,
}  # fmt: skip
FLOW = {
    "adequacy",
    "adequacy_skill",
    "adequacy_clouds",
    "drifts",
    "overlay",
    "budget",
    "depth_loss",
    "rotation",
}


@pytest.fixture(scope="session")
def audit(tmp_path_factory):
    return fs.audit(out=tmp_path_factory.mktemp("flow") / "run", **SMALL)


def test_every_part_is_measured_and_written(audit):
    verdicts = {v.name: v for v in audit.verdicts}
    assert set(audit.run.tables()) >= FLOW
    for name in ("P1", "P4"):
        assert verdicts[name].statistic.status == "ok"
        assert verdicts[name].statistic.n == 16
    assert "not measured yet" not in str(audit.to_json())


def test_p1_is_judged_again_from_the_folder_alone(audit):
    before = {v.name: v for v in audit.verdicts}["P1"]
    (again,) = judge(Records(run=audit.run))
    assert (again.outcome, again.because) == (before.outcome, before.because)
    assert again.effect == before.effect
    assert "of the error of “nothing changes”" in again.because
    assert "layers " in again.because
    assert "nan" not in again.because.lower()


def test_a_flow_that_stopped_everywhere_is_said_from_the_folder(audit, tmp_path):
    copy = Run(folder=Path(shutil.copytree(audit.run.folder, tmp_path / "run")))
    skill, drifts = (audit.run.read_table(name) for name in ("adequacy_skill", "drifts"))
    copy.write_table("adequacy_skill", skill.assign(flow=np.nan))
    copy.write_table("drifts", drifts.assign(because="the path is stiff at t = 0.4"))
    (verdict,) = judge(Records(run=copy))
    assert verdict.outcome == "abstains"
    assert "no verdict, because the fitted flow cannot be integrated" in verdict.because
    assert "the path is stiff at t = 0.4" in verdict.because


def test_layers_of_p1_and_p4_lie_in_segments_that_passed(audit):
    passing = audit.segments[audit.segments["decision"] == "holds"]
    inside = {
        layer
        for first, last in zip(passing["first_layer"], passing["last_layer"], strict=True)
        for layer in range(first, last + 1)
    }
    assert set(audit.run.read_table("adequacy")["layer"]) == inside
    rotation = audit.run.read_table("rotation")
    assert set(rotation["layer"]) <= inside
    assert len(rotation) == 2
    assert rotation["normalised"].between(-0.2, 1).all()


def test_no_step_of_the_model_exceeds_a_bound(audit):
    overlay = audit.run.read_table("overlay")
    assert (overlay["exceeded"] == 0).all()
    assert (overlay["tv"] <= overlay["budget"] + 1e-6).all()


def test_the_whole_model_has_the_least_loss(audit):
    table = audit.run.read_table("depth_loss")
    assert table["increase"].iloc[0] == 0
    assert table["loss"].iloc[0] == table["loss"].min()
    assert bool(table["free"].iloc[0])


def test_three_prompts_abstain_with_their_number(tmp_path):
    audit = fs.audit(texts=TEXTS, out=tmp_path / "run", **{**SMALL, "prompts": 3})
    verdicts = {v.name: v for v in audit.verdicts}
    assert verdicts["P1"].decision == "abstains"
    assert "at least 14 prompts are needed" in verdicts["P1"].because
    assert "there are 3" in verdicts["P1"].because
    assert verdicts["P4"].decision == "abstains"


def test_a_gate_that_fails_silences_both(tmp_path):
    audit = fs.audit(texts=TEXTS, out=tmp_path / "run", threshold=1e-9, **{**SMALL, "prompts": 3})
    for verdict in audit.verdicts:
        if verdict.name in ("P1", "P4"):
            assert verdict.decision == "abstains"
            assert "no segment of layers passed P0 Smoothness" in verdict.because


def test_no_positions_leave_both_out(tmp_path):
    audit = fs.audit(texts=TEXTS, out=tmp_path / "run", **{**SMALL, "flow_positions": 0})
    assert not FLOW & set(audit.run.tables())
    assert "flow_positions is 0" in {v.name: v.because for v in audit.verdicts}["P1"]


def rows_of(model, tokens):
    """Counts how often a prompt goes through a model."""
    seen = []

    def look(module, args, kwargs):
        ids = kwargs["input_ids"]
        seen.extend([1] * int((ids[:, : len(tokens)] == tokens.to(ids.device)).all(-1).sum()))

    return seen, model.register_forward_pre_hook(look, with_kwargs=True)


def test_every_prompt_goes_through_the_model_once(tmp_path):
    loaded = fs.load(bundled_path())
    texts = packaged_texts()[:16]
    last = torch.as_tensor(loaded.tokenizer(texts[-1])["input_ids"][:8])
    settings = {**SMALL, "control_prompts": 4}
    counts = []
    for _ in range(2):  # measured, then resumed: states of paths are in memory alone
        seen, handle = rows_of(loaded.model, last)
        audit = fs.audit(loaded, texts, out=tmp_path / "run", **settings)
        handle.remove()
        counts.append(len(seen))
    assert counts == [1, 1]
    assert {v.name: v for v in audit.verdicts}["P1"].statistic.status == "ok"
    passes = audit.run.read_manifest().config_resolved["passes"]
    assert passes["measuring"] == 16
    assert passes["second look"] == 4


def test_no_positions_need_no_pass_when_resumed(tmp_path):
    loaded = fs.load(bundled_path())
    settings = {**SMALL, "flow_positions": 0, "control_prompts": 1}
    fs.audit(loaded, TEXTS, out=tmp_path / "run", **settings)
    last = torch.as_tensor(loaded.tokenizer(TEXTS[-1])["input_ids"][:8])
    seen, handle = rows_of(loaded.model, last)
    fs.audit(loaded, TEXTS, out=tmp_path / "run", **settings)
    handle.remove()
    assert seen == []
