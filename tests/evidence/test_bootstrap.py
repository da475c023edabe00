"""Intervals over prompts: exact points, right weights, honest coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, median_over_prompts, resampled_counts
from flowscope.records import Unavailable


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
    point, interval = median_over_prompts(values, owner, counts, level=0.9)
    np.testing.assert_allclose(point, np.median(values))
    np.testing.assert_allclose(interval.low, np.quantile(brute, 0.05))
    np.testing.assert_allclose(interval.high, np.quantile(brute, 0.95))


def test_a_mean_is_the_mean_over_tokens_not_over_prompts():
    sums, sizes = np.array([[10.0], [1.0]]), np.array([[10], [2]])
    point, _ = mean_over_prompts(sums, sizes, resampled_counts(2))
    np.testing.assert_allclose(point, 11 / 12)


def test_missing_tokens_are_left_out_of_their_column_only():
    values = np.array([[1.0, np.nan], [3.0, 5.0], [5.0, 7.0]])
    point, _ = median_over_prompts(values, np.array([0, 1, 1]), resampled_counts(2))
    np.testing.assert_allclose(point, [3.0, 6.0])


def test_one_prompt_has_no_interval():
    _, interval = median_over_prompts(np.ones((4, 1)), np.zeros(4, int), resampled_counts(1))
    assert isinstance(interval, Unavailable)


def test_dependence_inside_prompts_is_not_mistaken_for_information():
    """Coverage of the 90 % interval, 40 prompts of 20 equal tokens (tokens alone cover < 40 %)."""
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        values = np.repeat(rng.normal(size=40), 20)[:, None]
        counts = resampled_counts(40, resamples=200, seed=trial)
        _, interval = median_over_prompts(values, np.repeat(np.arange(40), 20), counts, level=0.9)
        hits += bool(interval.low[0] <= 0.0 <= interval.high[0])
    assert 0.83 <= hits / 200 <= 0.97


def test_wrong_shapes_get_a_sentence():
    with pytest.raises(InvalidInputError, match=r"\[tokens, columns\]"):
        median_over_prompts(np.ones(3), np.zeros(3, int), resampled_counts(2))
    with pytest.raises(InvalidInputError, match="numbered 0 to 1"):
        median_over_prompts(np.ones((3, 1)), np.array([0, 1, 2]), resampled_counts(2))
