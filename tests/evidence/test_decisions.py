"""The rule that turns an effect and its interval into an outcome."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowscope.evidence import MINIMUM_UNITS, judged_effect
from flowscope.evidence.decisions import strength_of
from flowscope.records import Interval, Measurement, Unavailable

CLAIM = SimpleNamespace(name="P9", says="layers contract")
THRESHOLDS = (0.05, 0.15, 0.4)


def number(value=0.25):
    return Measurement(name="gap", values=value, unit="1", n=9, estimator="mean", dtype="float64")


def judged(effect=0.25, low=0.1, high=0.4, **parts):
    settings = {
        "claim": CLAIM,
        "statistic": number(),
        "null": number(0.0),
        "effect": effect,
        "interval": Interval(low=low, high=high, level=0.95, method="t"),
        "thresholds": THRESHOLDS,
        "because": "the gap is 0.25",
        "units": MINIMUM_UNITS,
    }
    return judged_effect(**{**settings, **parts})


@pytest.mark.parametrize(
    ("effect", "low", "high", "outcome", "strength"),
    [
        (0.25, 0.1, 0.4, "holds", "clear"),
        (0.05, 0.01, 0.4, "holds", "weak"),
        (0.5, 0.1, 0.9, "holds", "strong"),
        (0.25, 0.0, 0.4, "abstains", ""),
        (0.04, 0.01, 0.07, "abstains", "negligible"),
        (-0.04, -0.07, -0.01, "abstains", "negligible"),
        (-0.25, -0.4, 0.0, "abstains", ""),
        (-0.25, -0.4, -0.1, "fails", "clear"),
        (-0.25, 0.1, 0.4, "abstains", ""),
    ],
)
def test_outcome_follows_the_interval_and_the_size(effect, low, high, outcome, strength):
    verdict = judged(effect, low, high)
    assert (verdict.outcome, verdict.strength, verdict.decision) == (outcome, strength, outcome)
    assert verdict.because.startswith("the gap is 0.25")
    assert ("no verdict, because" in verdict.because) == (outcome == "abstains")
    assert (verdict.effect, verdict.interval.low, verdict.interval.high) == (effect, low, high)


def test_reasons_name_the_interval_and_the_threshold():
    contains = judged(0.25, -0.125, 0.4).because
    assert contains == (
        "the gap is 0.25; no verdict, because the interval of the effect, [-0.125, 0.4], contains 0"
    )
    small = judged(0.04, 0.01, 0.07).because
    assert small.endswith("no verdict, because the effect is negligible (|0.04| < 0.05)")


def test_a_guard_makes_it_uninformative_however_large_the_effect():
    verdict = judged(guard="every token is decided", units=3)
    assert (verdict.outcome, verdict.decision, verdict.strength) == (
        "uninformative",
        "abstains",
        "",
    )
    assert verdict.because == "uninformative: every token is decided; the gap is 0.25"


def test_seven_units_decide_nothing_and_eight_do():
    assert judged(units=8).outcome == "holds"
    verdict = judged(units=7, because="")
    assert verdict.outcome == "abstains"
    assert verdict.because == (
        "no verdict, because at least 8 prompts are needed; this run has 7. "
        "Give at least 8 prompts."
    )
    assert "Give at least 8 images." in judged(units=7, unit="images").because


def test_what_is_missing_is_the_reason():
    assert judged(interval=Unavailable("one layer")).because.endswith("because one layer")
    assert judged(effect=Unavailable("no twin")).because.endswith("because no twin")
    silent = judged(statistic=Measurement.abstained("gap", "stiff"))
    assert silent.because.endswith("because stiff")
    assert judged(size=float("nan")).outcome == "abstains"


def test_size_is_judged_on_its_own_scale():
    assert judged(0.01, 0.005, 0.015, size=0.5).strength == "strong"
    assert judged(0.5, 0.4, 0.6, size=0.01).outcome == "abstains"
    assert judged(-0.01, -0.015, -0.005, size=0.2).outcome == "fails"


def test_a_p_value_is_kept_and_its_absence_said():
    assert judged(p=0.03125).p == 0.03125
    assert judged().p.reason == "no p-value was taken"


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 2))
def test_an_outcome_is_never_on_the_wrong_side(effect, first, second, size):
    low, high = sorted((first, second))
    verdict = judged(effect, low, high, size=size)
    mirrored = judged(-effect, -high, -low, size=size)
    if verdict.outcome == "holds":
        assert low > 0 < effect
        assert size >= THRESHOLDS[0]
        assert mirrored.outcome == "fails"
    if verdict.outcome == "abstains":
        assert mirrored.outcome == "abstains"


@given(st.floats(-2, 2))
def test_strength_grows_with_the_size(size):
    words = ["negligible", "weak", "clear", "strong"]
    place = words.index(strength_of(size, THRESHOLDS))
    assert (0.0, *THRESHOLDS)[place] <= abs(size) < (*THRESHOLDS, 9.0)[place]
