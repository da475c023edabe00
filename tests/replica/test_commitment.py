"""Sigmoid midpoints, their intervals, and the right to say that there is no transition."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import least_squares

from flowscope.errors import InvalidInputError
from flowscope.replica import commitment, commitment_gap, commitment_time, sigmoid_fit

STEPS = np.linspace(0, 100, 21)


def sigmoid(x, before, after, midpoint, width):
    return before + (after - before) / (1 + np.exp(-(x - midpoint) / width))


@settings(max_examples=40, deadline=None)
@given(
    midpoint=st.floats(10, 90),
    width=st.floats(3, 30),
    before=st.floats(-3, 3),
    amplitude=st.floats(0.1, 5),
    sign=st.sampled_from([-1, 1]),
)
def test_an_exact_sigmoid_is_found(midpoint, width, before, amplitude, sign):
    fit = sigmoid_fit(STEPS, sigmoid(STEPS, before, before + sign * amplitude, midpoint, width))
    assert_allclose([fit.midpoint, fit.width], [midpoint, width], rtol=2e-4)
    assert_allclose(fit.after - fit.before, sign * amplitude, rtol=2e-3)
    assert fit.residual < 1e-6 * amplitude
    assert_allclose(fit(midpoint), before + sign * amplitude / 2, atol=2e-3 * amplitude)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_start_does_better(seed):
    """Bounded least squares of scipy from nine starts, on noisy curves."""
    rng = np.random.default_rng(seed)
    y = sigmoid(STEPS, 0, rng.choice([-1, 1]), rng.uniform(20, 80), rng.uniform(3, 15))
    y = y + 0.15 * rng.standard_normal(len(STEPS))
    bounds = ([-np.inf, -np.inf, -50, 5 / 4], [np.inf, np.inf, 150, 100])
    best = min(
        least_squares(
            lambda p: sigmoid(STEPS, *p) - y, [y[0], y[-1], start, width], bounds=bounds
        ).cost
        for start in (20, 50, 80)
        for width in (3, 10, 30)
    )
    assert 0.5 * 21 * sigmoid_fit(STEPS, y).residual ** 2 <= best * (1 + 1e-6)


def test_a_sudden_step_lies_midway():
    """Up to a twentieth of the spacing: nine steps before, twelve after."""
    fit = sigmoid_fit(STEPS, np.where(STEPS < 42, 0.0, 1.0))
    assert_allclose(fit.midpoint, 42.5, atol=0.25)


def test_reversed_steps_reflect_the_fit():
    y = sigmoid(STEPS, 0, 1, 30, 6) + 0.05 * np.random.default_rng(0).standard_normal(21)
    forth, back = sigmoid_fit(STEPS, y), sigmoid_fit(100 - STEPS[::-1], y[::-1])
    assert_allclose(back.midpoint, 100 - forth.midpoint, rtol=1e-4)
    assert_allclose([back.before, back.after], [forth.after, forth.before], atol=1e-4)


def noisy(rng, pairs=32, noise=0.3, amplitude=1.0, midpoint=55.0, spread=0.0):
    """Pairs with a level each, noise at each step, and midpoints that differ between pairs."""
    own = midpoint + spread * rng.standard_normal((pairs, 1))
    level = 0.2 * rng.standard_normal((pairs, 1))
    fresh = noise * rng.standard_normal((pairs, len(STEPS)))
    return level + sigmoid(STEPS, 0, amplitude, own, 8.0) + fresh


@pytest.mark.parametrize("amplitude", [1.0, -1.0])
def test_midpoint_of_rising_and_falling_curves(amplitude):
    found = commitment_time(STEPS, noisy(np.random.default_rng(0), amplitude=amplitude))
    assert found.status == "ok"
    assert found.because == ""
    assert found.interval[0] < found.midpoint < found.interval[1]
    assert found.interval[1] - found.interval[0] < 15
    assert found.amplitude_interval[0] < found.amplitude < found.amplitude_interval[1]
    assert np.sign(found.amplitude) == np.sign(amplitude) == np.sign(found.amplitude_interval[0])
    assert found.width == found.fit.width


@pytest.mark.parametrize("statistic", ["median", "mean"])
@pytest.mark.parametrize("pairs", [8, 32])
def test_flat_curves_have_no_transition(statistic, pairs):
    """400 repeats: at least 93 %."""
    rng = np.random.default_rng(1)
    none = 0
    for k in range(400):
        values = noisy(rng, pairs, amplitude=0.0)
        found = commitment_time(STEPS, values, resamples=200, seed=k, statistic=statistic)
        none += found.status == "no transition"
    assert 372 <= none <= 398


@pytest.mark.parametrize(
    ("statistic", "pairs", "spread"), [("median", 32, 0.0), ("mean", 32, 5.0), ("mean", 8, 0.0)]
)
def test_interval_covers_the_midpoint(statistic, pairs, spread):
    """60 repeats at a nominal 95 %; at most three standard deviations of a count below 57."""
    rng = np.random.default_rng(1)
    covered = 0
    for k in range(60):
        values = noisy(rng, pairs, spread=spread)
        found = commitment_time(STEPS, values, resamples=100, seed=k, statistic=statistic)
        covered += found.interval[0] <= 55 <= found.interval[1]
    assert covered >= 52


def test_no_transition_gives_its_reason_and_no_number():
    found = commitment_time(STEPS, noisy(np.random.default_rng(3), amplitude=0.0))
    assert found.status == "no transition"
    assert "within noise" in found.because
    assert np.isnan([found.midpoint, *found.interval, found.width]).all()


def test_a_midpoint_beyond_the_scan_is_no_transition():
    """The curve is still rising at the last step: something happens, when is not known."""
    values = noisy(np.random.default_rng(0), noise=0.05, midpoint=120.0, amplitude=5.0)
    found = commitment_time(STEPS, values)
    assert found.status == "no transition"
    assert "is not placed by steps 0 to 100" in found.because
    assert found.amplitude_interval[0] > 0


def test_a_midpoint_may_leave_the_scan_in_a_fifth_of_the_resamples():
    for outside, reason in ((20, False), (21, True)):
        draws = np.repeat([95.0, 101.0], [100 - outside, outside])
        assert bool(commitment._not_placed(STEPS, 95.0, draws)) == reason


def test_amplitude_is_the_last_quarter_of_the_curve_less_the_first():
    found = commitment_time(STEPS, np.tile(STEPS, (4, 1)), resamples=20)
    assert_allclose(found.amplitude, 90 - 10)
    assert_allclose(found.amplitude_interval, 80)


def test_joint_resamples_take_out_what_both_curves_share():
    """Pairs differ in their midpoints, by 10, but both curves of a pair move together."""
    rng = np.random.default_rng(0)
    own = 10 * rng.standard_normal((32, 1))
    coarse, fine = (
        commitment_time(STEPS, sigmoid(STEPS, 0, 1, at + own, 8.0), statistic="mean")
        for at in (40, 60)
    )
    found = commitment_gap(fine, coarse)
    assert found.status == "ok"
    assert_allclose(found.value, fine.midpoint - coarse.midpoint)
    assert found.interval[0] <= found.value <= found.interval[1]
    assert_allclose(found.value, 20, atol=1.0)
    alone = fine.interval[1] - fine.interval[0]
    assert found.interval[1] - found.interval[0] < 0.3 * alone


def test_gap_without_a_transition_is_no_gap():
    rng = np.random.default_rng(0)
    there = commitment_time(STEPS, noisy(rng))
    flat = commitment_time(STEPS, noisy(rng, amplitude=0.0))
    found = commitment_gap(flat, there)
    assert found.status == "no transition"
    assert found.because.startswith("fine: the ")
    assert np.isnan(found.value)


def test_times_that_were_resampled_differently_have_no_gap():
    values = noisy(np.random.default_rng(0))
    one, other = (commitment_time(STEPS, values, seed=seed, resamples=50) for seed in (0, 1))
    with pytest.raises(InvalidInputError, match="same pairs, seed"):
        commitment_gap(one, other)


@pytest.mark.parametrize(
    ("steps", "values", "options", "sentence"),
    [
        (STEPS[:5], np.zeros((9, 5)), {}, "6 steps or more"),
        (STEPS, np.zeros((9, 20)), {}, "a value at each"),
        (STEPS[::-1], np.zeros((9, 21)), {}, "increase"),
        (STEPS, np.full((9, 21), np.nan), {}, "for pair 0 at step 0"),
        (STEPS, np.zeros((2, 21)), {}, "3 pairs"),
        (STEPS, np.zeros((9, 21)), {"statistic": "mode"}, "median"),
        (STEPS, np.zeros((9, 21)), {"resamples": 1}, "20 resamples"),
    ],
)
def test_bad_curves_get_a_sentence(steps, values, options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        commitment_time(steps, values, **options)


def test_a_constant_curve_has_no_transition():
    found = commitment_time(STEPS, np.ones((9, 21)), resamples=50)
    assert found.status == "no transition"
    fit = sigmoid_fit(STEPS, np.ones(21))
    assert_allclose([fit.before, fit.after], 1.0, rtol=1e-9)
