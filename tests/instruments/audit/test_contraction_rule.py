"""Contraction is judged by its interval against zero, beside permuted keys and random weights."""

import pytest

from flowscope.instruments.audit.contraction.judge import judge_curvature
from flowscope.lab import Claim
from flowscope.records import Interval, Measurement, Unavailable

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def number(value, low=None, high=None):
    made = Unavailable("one prompt has no bootstrap interval")
    if low is not None:
        made = Interval(low=low, high=high, level=0.95, method="bootstrap")
    return Measurement(
        name="κ", values=value, unit="1", n=8, estimator="median", dtype="float64", interval=made
    )


def judged(kappa, null, effect, fresh=0.97):
    between = Unavailable("none")
    if effect is not None:
        between = Interval(low=effect[0], high=effect[1], level=0.95, method="bootstrap")
    return judge_curvature(
        kappa, null, between, claim=CLAIM, heads=12, abstained=2, random_weights=fresh
    )


@pytest.mark.parametrize(
    ("low", "high", "decision"),
    [(0.3, 0.5, "holds"), (-0.5, -0.1, "fails"), (-0.1, 0.2, "abstains")],
)
def test_the_interval_against_zero_decides(low, high, decision):
    verdict = judged(number((low + high) / 2, low, high), number(0.1, 0.0, 0.2), (-0.1, 0.3))
    assert verdict.decision == decision
    assert "10 of 12 heads" in verdict.because
    assert "random weights: 0.97" in verdict.because


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ((0.1, 0.2), "more than rows that only overlap"),
        ((-0.1, 0.1), "as much as rows that only overlap"),
        ((-0.2, -0.1), "less than rows that only overlap"),
    ],
)
def test_a_contraction_says_what_of_it_is_overlap(effect, words):
    verdict = judged(number(0.4, 0.3, 0.5), number(0.3, 0.2, 0.4), effect)
    assert words in verdict.because
    assert verdict.effect == pytest.approx(0.1)


def test_one_prompt_cannot_decide():
    verdict = judged(number(0.4), number(0.3), None, Unavailable("no twin"))
    assert verdict.decision == "abstains"
    assert "one prompt" in verdict.because
    assert "random weights" not in verdict.because


def test_heads_that_say_nothing_make_the_verdict_abstain():
    silent = Measurement.abstained("κ", "every head is a sink")
    verdict = judged(silent, silent, None)
    assert (verdict.decision, verdict.because) == (
        "abstains",
        "no verdict, because every head is a sink",
    )
