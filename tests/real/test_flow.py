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


def test_the_bounds_of_the_motion_that_turns_are_in_order_and_gradients_read_little(audit):
    table = audit.run.read_table("rotation")
    assert (table["rotation_share"] < 1 - table["gradient_share"]).all()
    assert (table["represented"] < 1).all()
    assert table["control"].abs().mean() < 0.1
