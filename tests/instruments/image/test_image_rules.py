"""Judgements on samplers: planted tables decide them."""

import math

import pandas as pd
import pytest

from flowscope.instruments.image.parity.judge import judge_parity
from flowscope.instruments.image.rotation.judge import judge_gradient
from flowscope.instruments.image.step_sizes.judge import judge_order
from flowscope.lab import Claim
from flowscope.records import Interval, Unavailable

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def parity(*tvs, null=0.02, high=None):
    rows = [
        {"channel": "all", "step": k + 1, "tv": tv, "tv_low": tv / 2,
         "tv_high": high or 1.5 * tv, "tv_null": null, "tv_null_high": 1.2 * null, "images": 40}
        for k, tv in enumerate(tvs)
    ]  # fmt: skip
    other = [row | {"channel": "0", "tv": 0.9, "tv_high": 1.0} for row in rows]
    return pd.DataFrame(rows + other)


def test_parity_fails_where_the_p_value_over_all_times_says_so():
    found = judge_parity(parity(0.02, 0.06, 0.03), 0.01, claim=CLAIM, seed=1)
    assert (found.name, found.decision) == ("C", "fails")
    assert "after step 2: total variation 0.06 [0.03, 0.09]" in found.because
    assert found.effect == pytest.approx(0.06)
    assert found.null.numbers() == pytest.approx(0.02)
    assert found.statistic.n == 40
    assert (found.statistic.interval.low, found.statistic.interval.high) == (0.03, 0.09)


def test_parity_holds_where_intervals_exclude_a_large_distance():
    assert judge_parity(parity(0.02, 0.03), 0.3, claim=CLAIM, seed=1).decision == "holds"
    open_ = judge_parity(parity(0.02, 0.03, high=0.2), 0.3, claim=CLAIM, seed=1)
    assert open_.decision == "abstains"
    assert "a total variation up to 0.2 cannot be excluded" in open_.because


def slopes(*rows):
    """(sampler, slope, low, high), or (sampler, reason)."""
    made = []
    for sampler, *told in rows:
        ok = len(told) == 3
        slope, low, high = told if ok else (math.nan,) * 3
        made.append(
            {"sampler": sampler, "observable": "square", "slope": slope, "low": low, "high": high,
             "method": "bca", "first": 4, "last": 16, "images": 16,
             "status": "ok" if ok else "unresolved", "because": "" if ok else told[0]}
        )  # fmt: skip
    made.append(made[0] | {"observable": "mean", "slope": -3.0, "low": -3.1, "high": -2.9,
                           "status": "ok"})  # fmt: skip
    return pd.DataFrame(made)


def order(*rows):
    return judge_order(slopes(*rows), claim=CLAIM, observable="square", seed=2)


def test_first_order_needs_intervals_near_minus_one():
    """Not −1 itself: a first-order scheme has it in the limit only."""
    assert order(("ode", -0.97, -0.98, -0.96), ("sde", -1.1, -1.2, -0.8)).decision == "holds"
    wide = order(("ode", -0.97, -0.98, -0.96), ("sde", -1.1, -2.0, -0.3))
    assert wide.decision == "abstains"
    off = order(("ode", -0.97, -0.98, -0.96), ("sde", -0.5, -0.6, -0.4))
    assert off.decision == "fails"
    assert "not within 0.25 of −1: sde" in off.because
    assert off.effect == pytest.approx(-0.5)
    steep = order(("ode", -2.0, -2.1, -1.9))
    assert steep.decision == "fails"


def test_an_unresolved_slope_is_no_evidence():
    found = order(("ode", "K = 4 is noise"), ("sde", "K = 8 is noise"))
    assert found.decision == "abstains"
    assert "ode: K = 4 is noise; sde: K = 8 is noise" in found.because
    half = order(("ode", -1.0, -1.1, -0.9), ("sde", "K = 8 is noise"))
    assert half.decision == "holds"
    assert "sde too noisy to give a slope" in half.because


def rotation(share, seen=0.05, status="ok", degree=2):
    row = {"step": 3, "normalised": share, "p_value": 0.5, "gradient_control": 0.001,
           "planted_control": seen, "planted_share": 0.05, "images": 20, "rank": 4,
           "degree": degree,
           "status": status, "because": "too few" if status != "ok" else ""}  # fmt: skip
    return pd.DataFrame([row, row | {"step": 9, "normalised": 2 * share}])


def within(low, high):
    return Interval(low=low, high=high, level=0.95, method="BCa")


@pytest.mark.parametrize(
    ("interval", "decision"),
    [((0.0, 0.04), "holds"), ((0.06, 0.1), "fails"), ((0.02, 0.08), "abstains")],
)
def test_a_gradient_is_judged_against_the_planted_share(interval, decision):
    found = judge_gradient(rotation(0.02), within(*interval), claim=CLAIM, degree=2, seed=0)
    assert (found.name, found.decision) == ("C", decision)
    assert "the largest is 0.040 after step 9" in found.because
    assert found.effect == pytest.approx(0.03)


def test_linear_fields_alone_do_not_make_a_gradient():
    coarse = rotation(0.02, degree=1)
    found = judge_gradient(coarse, within(0.0, 0.04), claim=CLAIM, degree=2, seed=0)
    assert found.decision == "abstains"
    assert "too few images for degree 2" in found.because
    turning = judge_gradient(coarse, within(0.06, 0.1), claim=CLAIM, degree=2, seed=0)
    assert turning.decision == "fails"


def test_a_gradient_that_cannot_be_read_is_not_judged():
    blind = judge_gradient(
        rotation(0.02, seen=0.01), within(0.0, 0.04), claim=CLAIM, degree=2, seed=0
    )
    assert blind.decision == "abstains"
    assert "there are too few images" in blind.because
    for table, told in ((rotation(0.0, status="abstained"), "too few"),
                        (pd.DataFrame(), "switched off")):  # fmt: skip
        found = judge_gradient(table, Unavailable("none"), claim=CLAIM, degree=2, seed=0)
        assert found.decision == "abstains"
        assert told in found.because
