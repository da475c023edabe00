"""Adequacy is judged against persistence."""

import pytest

from flowscope.instruments.audit.adequacy.judge import judge_adequacy
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


def adequate(skill):
    return judge_adequacy(
        skill,
        claim=CLAIM,
        one_step=number(0.03),
        best=0.3,
        segments={"layers 3–12": "ridge"},
        budget="Ξ said",
    )


@pytest.mark.parametrize(
    ("low", "high", "decision", "words"),
    [
        (0.05, 0.2, "holds", "lies above 0"),
        (-0.3, -0.1, "fails", "lies below 0"),
        (-0.1, 0.1, "abstains", "contains 0"),
    ],
)
def test_the_skill_decides_adequacy(low, high, decision, words):
    verdict = adequate(number((low + high) / 2, low, high))
    assert verdict.decision == decision
    assert words in verdict.because
    assert "layers 3–12 (ridge)" in verdict.because
    assert verdict.because.endswith("Ξ said")
    assert float(verdict.null.numbers()) == 0.0


def test_without_an_interval_adequacy_abstains():
    assert adequate(number(0.1)).decision == "abstains"
    silent = adequate(Measurement.abstained("x", "stiff"))
    assert (silent.decision, silent.because) == ("abstains", "no verdict, because stiff")
