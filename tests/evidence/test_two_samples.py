"""Differences of many means between two sets of units: Welch's interval, laws, level, power."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from flowscope.errors import InvalidInputError
from flowscope.evidence import simultaneous_difference
from flowscope.records import Unavailable


def samples(seed, first=12, second=16, columns=20, correlation=0.5):
    """Two sets of units whose columns share a part of their variance."""
    rng = np.random.default_rng(seed)
    shared = [rng.normal(size=(n, 1)) for n in (first, second)]
    own = [rng.normal(size=(n, columns)) for n in (first, second)]
    return [
        correlation**0.5 * a + (1 - correlation) ** 0.5 * b
        for a, b in zip(shared, own, strict=True)
    ]


def test_the_pointwise_interval_contains_that_of_welch():
    a, b = samples(1)
    result = simultaneous_difference(a, b)
    welch = ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(result.points, b.mean(0) - a.mean(0))
    assert (result.pointwise.low <= welch.low + 1e-9).all()
    assert (result.pointwise.high >= welch.high - 1e-9).all()
    length = result.pointwise.high - result.pointwise.low
    assert (length <= 1.4 * (welch.high - welch.low)).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_intervals_follow_units_and_places(seed):
    a, b = samples(seed, columns=4)
    result = simultaneous_difference(a, b, seed=seed)
    moved = simultaneous_difference(3 * a + 1, 3 * b + 8, seed=seed)
    np.testing.assert_allclose(moved.joint.low, 3 * result.joint.low + 7)
    np.testing.assert_allclose(moved.pointwise.high, 3 * result.pointwise.high + 7)
    assert (result.joint.low <= result.pointwise.low).all()
    assert (result.joint.high >= result.pointwise.high).all()


def test_two_draws_of_one_law_are_called_different_in_few_cases():
    """200 runs at 5 %: above 21 with probability .001; each column by itself gives far more."""
    joint = single = 0
    for seed in range(200):
        result = simultaneous_difference(*samples(seed, columns=40, correlation=0.2))
        joint += bool(((result.joint.low > 0) | (result.joint.high < 0)).any())
        single += bool(((result.pointwise.low > 0) | (result.pointwise.high < 0)).any())
    assert joint <= 21
    assert single >= 60


def test_a_different_spread_is_no_difference_of_means():
    """Permuted labels would reject in a sixth of these cases and more."""
    rejected = 0
    for seed in range(100):
        a, b = samples(seed, first=8, second=32)
        rejected += simultaneous_difference(3 * a, b).p_any <= 0.05
    assert rejected <= 12


def test_a_shift_is_seen_in_its_column_and_its_sign_is_that_of_the_second():
    a, b = samples(0, first=32, second=32)
    b[:, 3] += 2
    result = simultaneous_difference(a, b)
    assert result.joint.low[3] > 0
    assert result.p[3] <= 0.01
    assert simultaneous_difference(b, a).joint.high[3] < 0


def test_missing_values_and_columns_without_spread():
    a, b = samples(0, columns=4)
    a[0, 0] = np.nan
    a[:, 1] = np.nan
    a[:, 2], b[:, 2] = 1.0, 3.0
    a[:, 3], b[:, 3] = 0.1, 0.1  # their means differ by rounding
    assert a[:, 3].mean() != b[:, 3].mean()
    result = simultaneous_difference(a, b)
    assert np.isfinite([result.points[0], result.joint.low[0], result.p[0]]).all()
    assert np.isnan([result.points[1], result.joint.low[1], result.p[1]]).all()
    assert (result.joint.low[2], result.joint.high[2]) == (2.0, 2.0)
    assert (result.joint.low[3], result.joint.high[3]) == (0.0, 0.0)
    assert result.p[3] == 1.0


def test_one_unit_has_no_interval_and_other_columns_are_refused():
    result = simultaneous_difference(np.ones((1, 2)), np.zeros((4, 2)))
    assert isinstance(result.joint, Unavailable)
    assert result.points.tolist() == [-1.0, -1.0]
    with pytest.raises(InvalidInputError, match="same columns"):
        simultaneous_difference(np.ones((4, 2)), np.ones((4, 3)))
