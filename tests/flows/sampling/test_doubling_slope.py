"""Slope of step-doubling differences, one row an image."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import sem
from scipy.stats import t as student

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import doubling_slope, weak_error_slope

STEPS = (25, 50, 100, 200)


def first_order(rng, n=200, spread=0.8):
    """D_K = (1/K)(1 + noise), skew, partly common to an image and partly its own at each K."""
    own = rng.standard_normal((n, len(STEPS)))
    common = rng.exponential(size=(n, 1)) - 1
    return (1 + spread * (common + own)) / np.array(STEPS)


def test_differences_that_fall_as_one_over_k_have_slope_minus_one():
    rng = np.random.default_rng(0)
    rows = (1 + 0.3 * rng.standard_normal((50, 1))) / np.array(STEPS)
    found = doubling_slope(rows, STEPS)
    assert_allclose([found.slope, found.low, found.high], -1, atol=1e-12)
    assert (found.status, found.because, found.samples) == ("ok", "", 50)


def test_means_errors_and_slope_are_those_of_the_rows():
    rows = -first_order(np.random.default_rng(1))
    found = doubling_slope(rows, STEPS)
    assert_allclose(found.differences, rows.mean(0))
    assert_allclose(found.standard_errors, sem(rows, 0))
    assert_allclose(found.slope, weak_error_slope(STEPS, rows.mean(0).tolist()).slope)
    assert found.steps == STEPS
    assert found.method == "jackknife t over 200 images"
    assert found.low < found.slope < found.high
    for low, mean, high in zip(found.lows, found.differences, found.highs, strict=True):
        assert low < mean < high < 0


def test_the_sign_of_the_differences_does_not_matter():
    rows = first_order(np.random.default_rng(2))
    plus = doubling_slope(rows, STEPS)
    minus = doubling_slope(-rows, STEPS)
    assert_allclose([plus.slope, plus.low, plus.high], [minus.slope, minus.low, minus.high])


def test_the_intervals_cover_as_often_as_they_say():
    """Nominal .95 over 200 repeats of 64 skew rows."""
    rng, slopes, means = np.random.default_rng(3), 0, 0
    for _ in range(200):
        found = doubling_slope(first_order(rng, n=64), STEPS)
        assert found.status == "ok"
        slopes += found.low <= -1 <= found.high
        means += found.lows[1] <= 1 / STEPS[1] <= found.highs[1]
    assert 180 <= slopes < 200
    assert 180 <= means < 200


def test_a_difference_within_noise_is_named_and_has_no_slope():
    rows = first_order(np.random.default_rng(4))
    rows[:, 2] += 1.5 * sem(rows[:, 2]) - rows[:, 2].mean()
    found = doubling_slope(rows, STEPS)
    assert found.status == "unresolved"
    assert math.isnan(found.slope)
    assert math.isnan(found.low)
    assert "K = 100" in found.because
    assert "within 2 standard errors" in found.because
    assert "K = 50" not in found.because
    assert found.lows[2] < 0 < found.highs[2]


def test_the_interval_is_that_of_slopes_without_each_image():
    rows = first_order(np.random.default_rng(5), n=30)
    found = doubling_slope(rows, STEPS)
    without = [
        weak_error_slope(STEPS, np.delete(rows, i, 0).mean(0).tolist()).slope for i in range(30)
    ]
    spread = math.sqrt(29 * np.var(without))
    reach = student.ppf(0.975, 29) * spread
    assert_allclose([found.low, found.high], [found.slope - reach, found.slope + reach])


def test_an_exact_zero_is_unresolved_not_an_error():
    rows = first_order(np.random.default_rng(6))
    rows[:, 0] = 0.0
    found = doubling_slope(rows, STEPS)
    assert found.status == "unresolved"
    assert "K = 25" in found.because


@pytest.mark.parametrize(
    ("rows", "steps", "match"),
    [
        (np.ones((20, 3)), (10, 20), "one column for each"),
        (np.ones((20, 1)), (10,), "at least two"),
        (np.ones((20, 2)), (20, 10), "increase"),
        (np.ones((7, 2)), (10, 20), "8 images"),
        (np.full((20, 2), np.nan), (10, 20), "finite"),
    ],
)
def test_what_has_no_slope_is_refused(rows, steps, match):
    with pytest.raises(InvalidInputError, match=match):
        doubling_slope(rows, steps)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_level_without_interval_is_refused(level):
    with pytest.raises(InvalidInputError, match="level"):
        doubling_slope(first_order(np.random.default_rng(8)), STEPS, level=level)
