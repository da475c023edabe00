"""Resampled prompts: right weights, fast medians to the last bit, expanded percentiles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.evidence import median_over_prompts, resampled_counts
from flowscope.evidence.bootstrap import expanded_level, percentile_interval, resampled_medians
from flowscope.evidence.weighted_medians import weighted_medians
from flowscope.records import Unavailable


def slow_medians(ordered, owner, counts):
    """Oracle: cumulate the weight of every token in every resample."""
    cumulative = np.cumsum(counts.astype(np.int32)[:, owner], axis=1, dtype=np.int64)
    total = cumulative[:, -1:]
    lower = (2 * cumulative >= total).argmax(1)
    upper = (2 * cumulative > total).argmax(1)
    medians = (ordered[lower] + ordered[upper]) / 2
    return np.where(total[:, 0] > 0, medians, np.nan)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    prompts=st.integers(1, 9),
    tokens=st.integers(1, 400),
    digits=st.integers(0, 3),
)
def test_fast_medians_are_the_slow_ones_to_the_last_bit(seed, prompts, tokens, digits):
    rng = np.random.default_rng(seed)
    ordered = np.sort(rng.normal(size=tokens).round(digits))
    owner = rng.integers(prompts, size=tokens)
    counts = resampled_counts(prompts, resamples=40, seed=seed)
    fast = weighted_medians(ordered, owner, counts)
    assert fast.tobytes() == slow_medians(ordered, owner, counts).tobytes()


@given(seed=st.integers(0, 1000), prompts=st.integers(2, 5), tokens=st.integers(1, 6))
def test_a_weighted_median_is_the_median_of_the_repeated_tokens(seed, prompts, tokens):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(prompts * tokens, 1)).round(1)
    owner = np.repeat(np.arange(prompts), tokens)
    counts = resampled_counts(prompts, resamples=30, seed=seed)
    brute = [
        np.median(np.concatenate([np.repeat(values[owner == p, 0], c) for p, c in enumerate(row)]))
        for row in counts
    ]
    point, draws = resampled_medians(values, owner, counts)
    np.testing.assert_allclose(point, np.median(values))
    np.testing.assert_allclose(draws[:, 0], brute)


def test_a_resample_without_a_token_is_nan():
    medians = weighted_medians(np.array([1.0]), np.array([0]), np.array([[0, 2], [1, 1]]))
    np.testing.assert_array_equal(medians, [np.nan, 1.0])


def test_expanded_percentiles_of_normal_draws_are_the_student_interval():
    """Draws with the bootstrap's standard error, sqrt((n-1)/n) s/sqrt(n), give t s/sqrt(n)."""
    n, rng = 8, np.random.default_rng(0)
    draws = rng.normal(scale=np.sqrt((n - 1) / n), size=(400_000, 1))
    interval = percentile_interval(np.zeros(1), draws, np.ones((1, n), int))
    np.testing.assert_allclose([interval.low[0], interval.high[0]], [-2.365, 2.365], atol=0.02)


@given(st.integers(2, 500), st.floats(0.5, 0.99))
def test_expansion_widens_and_vanishes_with_many_units(units, level):
    assert expanded_level(units, level) > level
    assert expanded_level(units, level) >= expanded_level(units + 1, level)
    assert expanded_level(10**7, level) == pytest.approx(level, abs=1e-5)


def test_one_prompt_has_no_interval():
    counts = resampled_counts(1)
    _, interval = median_over_prompts(np.ones((4, 1)), np.zeros(4, int), counts)
    assert isinstance(interval, Unavailable)
    draws = np.ones((len(counts), 1))
    assert isinstance(percentile_interval(np.ones(1), draws, counts), Unavailable)


def test_wrong_shapes_get_a_sentence():
    with pytest.raises(InvalidInputError, match=r"\[tokens, columns\]"):
        median_over_prompts(np.ones(3), np.zeros(3, int), resampled_counts(2))
    with pytest.raises(InvalidInputError, match="numbered 0 to 1"):
        resampled_medians(np.ones((3, 1)), np.array([0, 1, 2]), resampled_counts(2))
