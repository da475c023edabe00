"""P1 and P4 on a real model: SmolLM2-135M on running text; needs what the other files here need."""

import pytest

import flowscope as fs

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def audit(smollm2, paragraphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("real") / "run"
    less = {"curvature_pairs": 0, "evi_positions": 0, "controls": False}
    return fs.audit(smollm2, paragraphs(32, words=90), tokens=64, prompts=32, out=out, **less)


def test_a_flow_forecasts_the_middle_layers_better_than_standing_still(audit):
    verdict = {v.name: v for v in audit.verdicts}["P1"]
    assert verdict.decision == "holds"
    assert 0.05 < float(verdict.statistic.numbers()) < 0.25
    assert set(audit.run.read_table("adequacy")["layer"]) >= set(range(4, 24))


def test_some_of_the_motion_turns_and_the_controls_are_read_right(audit):
    verdict = {v.name: v for v in audit.verdicts}["P4"]
    table = audit.run.read_table("rotation")
    assert verdict.decision == "holds"
    assert 0.03 < float(verdict.statistic.numbers()) < 0.3
    assert abs(table["gradient_control"].mean()) < 0.02
    assert table["planted_control"].mean() == pytest.approx(0.05, abs=0.02)
