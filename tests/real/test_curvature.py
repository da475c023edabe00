"""P3 on a real model: what the how-to says of SmolLM2-135M.

Needs what ``test_calibration.py`` needs; eight long paragraphs of the text, 128 tokens of each.
"""

import pytest

import flowscope as fs

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def audit(smollm2, paragraphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("real") / "run"
    return fs.audit(smollm2, paragraphs(8, words=120), tokens=128, out=out)


def test_heads_contract_but_no_more_than_their_overlap(audit):
    heads = audit.run.read_table("curvature")
    known = heads[heads["kappa"].notna()]
    assert len(known) >= 260
    assert known["kappa"].median() == pytest.approx(0.64, abs=0.05)
    assert known["kappa"].median() < known["keys_permuted"].median()


def test_curvature_is_least_at_the_model_s_own_temperature(audit):
    response = audit.run.read_table("curvature_response")
    whole = response[(response["scope"] == "all") & (response["kind"] == "temperature")]
    change = whole.set_index("setting")["change_low"]
    assert change[0.5] > 0
    assert change[2.0] > 0
