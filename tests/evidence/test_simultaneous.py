"""Many means at once, and series along layers: closed forms, laws and levels."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.evidence import simultaneous
from flowscope.evidence.layer_shifts import shifted_correlations
from flowscope.records import Unavailable


def largest_t(x):
    return np.abs(x.mean(0) / (x.std(0, ddof=1) / np.sqrt(len(x)))).max()


def test_p_by_signs_is_that_of_all_patterns():
    x = np.random.default_rng(3).normal(0.4, 1.0, size=(7, 3))
    t = np.abs(x.mean(0) / (x.std(0, ddof=1) / np.sqrt(7)))
    patterns = itertools.product([1, -1], repeat=7)
    maxima = [largest_t(np.array(signs)[:, None] * x) for signs in patterns]
    expected = [np.mean(np.array(maxima) >= each - 1e-9) for each in t]
    np.testing.assert_allclose(simultaneous(x, symmetric=True).p, expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.booleans())
def test_joint_intervals_contain_the_pointwise_ones_and_follow_the_scale(seed, symmetric):
    x = np.random.default_rng(seed).normal(size=(9, 4))
    result = simultaneous(x, symmetric=symmetric, seed=seed)
    assert (result.joint.low <= result.pointwise.low).all()
    assert (result.joint.high >= result.pointwise.high).all()
    moved = simultaneous(3 * x + 7, null=7.0, symmetric=symmetric, seed=seed)
    np.testing.assert_allclose(moved.joint.low, 7 + 3 * result.joint.low)
    np.testing.assert_allclose(moved.p, result.p)
    assert result.p_any == result.p.min()


def test_more_columns_make_the_joint_intervals_wider_and_p_larger():
    x = np.random.default_rng(0).normal(0.5, 1, size=(16, 30))
    alone, among = simultaneous(x[:, :1]), simultaneous(x)
    assert among.joint.high[0] > alone.joint.high[0] + 0.1
    assert among.p[0] > alone.p[0]
    np.testing.assert_allclose(among.pointwise.high[0], alone.pointwise.high[0])


def test_an_effect_is_seen_and_a_missing_column_is_left_out():
    x = np.random.default_rng(0).normal(size=(16, 5))
    x[:, 2] += 3
    x[:, 4] = np.nan
    x[3, 0] = np.nan
    for symmetric in (False, True):
        result = simultaneous(x, symmetric=symmetric)
        assert result.p[2] <= 0.01
        assert result.joint.low[2] > 0
        assert np.isnan([result.p[4], result.joint.low[4]]).all()
        assert np.isfinite([result.p[0], result.joint.low[0]]).all()


def test_one_unit_has_no_interval_and_a_vector_is_refused():
    result = simultaneous(np.ones((1, 2)))
    assert isinstance(result.joint, Unavailable)
    assert np.isnan(result.p_any)
    with pytest.raises(InvalidInputError, match=r"must be \[units, columns\]"):
        simultaneous(np.ones(3))


@pytest.mark.parametrize("symmetric", [False, True])
def test_level_over_ten_columns_at_eight_units(symmetric):
    """At most 5 % of 400 true nulls are rejected, up to three standard errors."""
    rng = np.random.default_rng(0)
    tests = [simultaneous(rng.normal(size=(8, 10)), symmetric=symmetric) for _ in range(400)]
    assert np.mean([test.p_any <= 0.05 for test in tests]) <= 0.083
    missed = [((t.joint.low > 0) | (t.joint.high < 0)).any() for t in tests]
    assert np.mean(missed) <= 0.083


def autoregressive(rng, repeats, layers, factor=0.8):
    noise = rng.normal(size=(repeats, layers + 50))
    for k in range(1, layers + 50):
        noise[:, k] += factor * noise[:, k - 1]
    return noise[:, 50:]


def test_dependent_layers_are_rejected_at_the_level_where_permutation_is_not():
    rng = np.random.default_rng(0)
    x, y = autoregressive(rng, 1000, 16), autoregressive(rng, 1000, 16)
    shifted = np.mean([shifted_correlations(a, b).p <= 0.05 for a, b in zip(x, y, strict=True)])
    orders = np.argsort(rng.random((99, 16)), axis=1)
    permuted = []
    for a, b in zip(x[:200], y[:200], strict=True):
        null = [abs(np.corrcoef(a, b[order])[0, 1]) for order in orders]
        permuted.append(np.mean(np.array(null) >= abs(np.corrcoef(a, b)[0, 1])) <= 0.05)
    assert shifted <= 0.07
    assert np.mean(permuted) >= 0.12


def test_shifts_start_with_none_and_contain_the_mirror_image():
    x, y = np.random.default_rng(0).normal(size=(2, 9))
    result = shifted_correlations(x, y)
    assert result.value == result.null[0] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert result.null[9] == pytest.approx(np.corrcoef(x, y[::-1])[0, 1])
    assert result.null[2] == pytest.approx(np.corrcoef(x, np.r_[y[2:], y[:-3:-1]])[0, 1])


def test_rows_share_their_shifts():
    x, y = np.random.default_rng(0).normal(size=(2, 3, 9))
    rows = [shifted_correlations(a, b).null for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(shifted_correlations(x, y).null, np.mean(rows, axis=0))


def test_a_bump_at_the_same_layer_is_found():
    layers = np.arange(24)
    bump = np.exp(-((layers - 9) ** 2) / 4)
    assert shifted_correlations(bump, 2 * bump + 0.01 * layers).p <= 0.05


def test_series_that_do_not_fit_get_a_sentence():
    with pytest.raises(InvalidInputError, match="at least 3 layers"):
        shifted_correlations(np.ones(2), np.ones(2))
    with pytest.raises(InvalidInputError, match="leave that layer out"):
        shifted_correlations(np.array([1.0, np.nan, 2.0]), np.ones(3))
