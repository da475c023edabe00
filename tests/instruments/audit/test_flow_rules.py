"""Rotation is judged against one half and its planted control."""

import pytest

from flowscope.instruments.audit.rotation.judge import judge_rotation
from flowscope.lab import Claim
from flowscope.records import Interval, Measurement, Unavailable

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def number(value, low=None, high=None):
    made = Unavailable("one prompt has no bootstrap interval")
    if low is not None:
        made = Interval(low=low, high=high, level=0.95, method="bootstrap")
    return Measurement(
        name="x", values=value, unit="1", n=8, estimator="mean", dtype="float64", interval=made
    )


def turning(share, seen=0.05, null=0.01):
    null = null if isinstance(null, Unavailable) else number(null)
    return judge_rotation(share, null, claim=CLAIM, layers=10, detected=7, planted=0.05, seen=seen)


@pytest.mark.parametrize(
    ("low", "high", "decision"),
    [(0.1, 0.3, "holds"), (0.6, 0.8, "fails"), (0.4, 0.6, "abstains")],
)
def test_one_half_decides_rotation(low, high, decision):
    verdict = turning(number((low + high) / 2, low, high))
    assert verdict.decision == decision
    assert "7 of 10" in verdict.because
    assert "control without rotation: 0.01" in verdict.because


def test_a_planted_rotation_that_is_not_seen_silences_the_judge():
    verdict = turning(number(0.2, 0.1, 0.3), seen=0.01)
    assert verdict.decision == "abstains"
    assert "planted rotation is not detected" in verdict.because


def test_without_controls_rotation_speaks_for_itself():
    absent = Unavailable("controls are switched off")
    verdict = turning(number(0.2, 0.1, 0.3), seen=absent, null=absent)
    assert verdict.decision == "holds"
    assert verdict.effect == pytest.approx(0.2)
    assert "planted" not in verdict.because
