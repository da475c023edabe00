"""Edges of rules of judges that mutants have crossed unseen."""

import numpy as np
import pandas as pd
import pytest
from tests.instruments.image.test_image_rules import order

from flowscope.evidence.decisions import strength_of
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.instruments.heads.geometry.judge import ONE_WAY_THRESHOLDS
from flowscope.instruments.image.rotation import judge as rotation
from flowscope.instruments.sync.internal_gap import judge as internal_gap
from flowscope.instruments.sync.internal_gap.judge import judge_internal_gap
from flowscope.instruments.sync.internal_gap.twins import twin_arrays
from flowscope.lab import Claim
from flowscope.records import Unavailable


@pytest.mark.parametrize(("low", "high"), [(-1.4, -0.9), (-1.1, -0.6)])
def test_an_interval_that_leaves_the_range_on_one_side_decides_nothing(low, high):
    steep = order(("ode", -1.0, -1.1, -0.9), ("sde", (low + high) / 2, low, high))
    assert steep.outcome == "abstains"


def test_layers_whose_p_value_is_above_the_level_do_not_contradict_each_other():
    """One layer above its null and one below, at p = .2: the mean over layers is still judged."""
    draws = np.random.default_rng(0).normal(scale=0.01, size=(3, 199))
    arrays = {
        "layer": np.arange(3),
        "observed": np.array([0.0, 0.5, 0.5]),
        "draws": draws,
        "left_out": np.zeros((3, 24)),
    }
    arrays |= twin_arrays(arrays, [arrays | {"observed": np.zeros(3)}] * 3)
    table = pd.DataFrame(
        {"layer": [0, 1, 2], "log_gap": [0.0, 0.5, -0.5], "null_low": -0.1, "null_high": 0.1,
         "p_all": [1.0, 0.2, 0.2], "status": "ok", "because": ""}
    )  # fmt: skip
    claim = Claim(name="R2", title="Gap", says="modes differ", asks="do modes differ?")
    verdict = judge_internal_gap(arrays, table, claim=claim, seed=0)
    assert verdict.outcome == "holds"
    table["p_all"] = [1.0, 0.01, 0.01]
    assert judge_internal_gap(arrays, table, claim=claim, seed=0).outcome == "abstains"


def test_levels_are_those_that_the_pages_promise():
    assert f"p ≤ {rotation.LEVEL:.2f}".replace("0.", ".") in rotation.__doc__
    assert internal_gap._LEVEL == 0.05


def test_words_for_the_size_of_one_way_attention():
    """A log ratio of .05 is weak, .15 (one look in seven more) clear, .4 (one in two) strong."""
    words = [strength_of(size, ONE_WAY_THRESHOLDS) for size in (0.04, 0.06, 0.14, 0.16, 0.39, 0.4)]
    assert words == ["negligible", "weak", "weak", "clear", "clear", "strong"]


@pytest.mark.parametrize(("variation", "decision"), [(0.1, "holds"), (0.1 + 1e-9, "fails")])
def test_a_segment_at_the_threshold_passes_the_gate(variation, decision):
    none = Unavailable("not measured")
    segment = SegmentEvidence(
        first=1, last=4, kind="segment", relative_variation=variation, interval=none,
        share_above=0.0, mass_residual=0.0, mass_bound=1e-9, threshold=0.1, random_weights=none,
        linear_interpolation=none,
    )  # fmt: skip
    assert segment.decision == decision
