"""The depth path of a real model, against figures that were measured by other code.

Needs the GGUF file of SmolLM2-135M-Instruct (Q4_1) and the raw text of WikiText-2 test; name them
by FLOWSCOPE_SMOLLM2 and FLOWSCOPE_WIKITEXT2_TEST, then ``pytest -m real``. The first 256 tokens are
read, without a start token.
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

import flowscope as fs

MODEL, TEXT = os.environ.get("FLOWSCOPE_SMOLLM2"), os.environ.get("FLOWSCOPE_WIKITEXT2_TEST")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (MODEL and TEXT), reason="needs SmolLM2-135M and WikiText-2 test"),
]
# Medians over tokens of the relative step at layers whose figure is known to three digits.
RELATIVE_STEP = {1: 3.35, 2: 0.135, 25: 0.223, 30: 0.856}


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    text = Path(TEXT)
    content = gzip.decompress(text.read_bytes()) if text.suffix == ".gz" else text.read_bytes()
    (folder / "text.txt").write_bytes(content)
    found = fs.audit(
        MODEL, text=str(folder / "text.txt"), prompts=1, tokens=256, out=folder / "run"
    )
    if os.environ.get("FLOWSCOPE_KEEP"):
        found.table.round(6).to_csv(os.environ["FLOWSCOPE_KEEP"], index=False)
    return found


def test_relative_steps_reproduce_the_calibration(audit):
    steps = audit.table.set_index("layer")["relative_step"]
    for layer, expected in RELATIVE_STEP.items():
        assert steps[layer] == pytest.approx(expected, rel=0.02)
    assert steps[3:24].between(0.01, 0.065).all()
    assert steps[26:29].between(0.03, 0.095).all()


def test_variation_of_parts_of_the_depth_reproduces_the_calibration(audit):
    (key,) = audit.run.shards()
    arrays = audit.run.read_shard(key).arrays

    def relative_variation(first, last):
        steps = arrays["step_sq"][:, first - 1 : last].sum(1)
        return float(np.median(steps / arrays["state_sq"][:, first : last + 1].sum(1)))

    # The figures are for paths between states: from state 3 to state 24 are steps 4 to 24.
    assert relative_variation(1, 30) == pytest.approx(0.108, rel=0.02)
    assert relative_variation(4, 24) == pytest.approx(0.023, rel=0.02)
    assert relative_variation(29, 30) == pytest.approx(0.32, rel=0.02)


def test_total_variation_and_agreement_reproduce_the_calibration(audit):
    table = audit.table.set_index("layer")
    assert table["total_variation"][1] == pytest.approx(1.0, abs=0.005)
    assert table["total_variation"][2] == pytest.approx(0.62, rel=0.02)
    assert table["total_variation"][30] == pytest.approx(0.61, rel=0.02)
    assert table["total_variation"][3:29].between(0.10, 0.285).all()
    assert table["agreement"][27] == pytest.approx(0.50, abs=0.02)


def test_first_and_last_layer_jump_and_the_middle_passes(audit):
    segments = audit.segments
    jumps = segments[segments["kind"] == "jump"]
    assert {1, 30} <= set(jumps["first_layer"])
    middle = segments[(segments["first_layer"] <= 3) & (segments["last_layer"] >= 24)]
    assert middle["decision"].tolist() == ["holds"]
    assert audit.verdicts[0].decision == "holds"
