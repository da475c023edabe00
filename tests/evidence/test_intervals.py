"""Means and medians over prompts: exact points, closed forms, coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, median_over_prompts, resampled_counts
from flowscope.evidence.means import studentised_draws
from flowscope.evidence.medians import score_interval
from flowscope.records import Unavailable


def test_a_mean_is_the_mean_over_tokens_not_over_prompts():
    sums, sizes = np.array([[10.0], [1.0]]), np.array([[10], [2]])
    point, _ = mean_over_prompts(sums, sizes, resampled_counts(2))
    np.testing.assert_allclose(point, 11 / 12)


@given(st.integers(0, 10**6), st.integers(2, 30))
def test_the_interval_of_a_mean_contains_the_student_interval(seed, prompts):
    values = np.random.default_rng(seed).normal(3.0, 2.0, size=(prompts, 2))
    counts = resampled_counts(prompts, seed=seed)
    points, interval = mean_over_prompts(5 * values, np.full_like(values, 5), counts, level=0.9)
    error = values.std(0, ddof=1) / np.sqrt(prompts)
    low, high = stats.t.interval(0.9, prompts - 1, points, error)
    assert (interval.low <= low + 1e-9).all()
    assert (interval.high >= high - 1e-9).all()


def test_studentised_draws_are_those_of_the_repeated_prompts():
    rng = np.random.default_rng(1)
    sums, sizes = rng.normal(size=(7, 1)), rng.integers(1, 5, size=(7, 1)).astype(float)
    mean = sums.sum() / sizes.sum()
    counts = resampled_counts(7, resamples=50, seed=1)
    draws = studentised_draws(sums - mean * sizes, sizes, counts.astype(float))
    for row, draw in zip(counts, draws[:, 0], strict=True):
        s, n = np.repeat(sums[:, 0], row), np.repeat(sizes[:, 0], row)
        ratio = s.sum() / n.sum()
        error = np.sqrt(((s - ratio * n) ** 2).sum() / (7 * 6)) / n.mean()
        np.testing.assert_allclose(draw, (ratio - mean) / error)


def test_a_skewed_mean_reaches_further_on_the_side_of_the_tail():
    values = np.exp(np.random.default_rng(0).normal(size=(16, 1)))
    point, interval = mean_over_prompts(values, np.ones_like(values), resampled_counts(16))
    assert interval.high[0] - point[0] > 1.2 * (point[0] - interval.low[0])


@pytest.mark.parametrize(("prompts", "wider"), [(4, False), (7, False), (8, True), (16, True)])
def test_few_prompts_have_the_student_interval_alone(prompts, wider):
    values = np.random.default_rng(1).lognormal(sigma=1.5, size=(prompts, 1))
    interval = mean_over_prompts(values, np.ones_like(values), resampled_counts(prompts))[1]
    student = stats.t.interval(0.95, prompts - 1, values.mean(), stats.sem(values[:, 0]))
    same = np.allclose([interval.low[0], interval.high[0]], student)
    assert same is not wider
    assert ("bootstrap" in interval.method) is wider


def test_a_share_has_an_interval_of_shares():
    values = np.array([[0.0], [0.1], [0.9], [1.0]])
    counts, ones = resampled_counts(4), np.ones((4, 1))
    free = mean_over_prompts(values, ones, counts)[1]
    cut = mean_over_prompts(values, ones, counts, within=(0.0, 1.0))[1]
    assert free.low[0] < 0 < 1 < free.high[0]
    assert (cut.low[0], cut.high[0]) == (0, 1)


def test_the_shift_and_the_scale_of_a_mean_carry_over():
    values = np.random.default_rng(0).normal(size=(9, 1))
    ones, counts = np.ones_like(values), resampled_counts(9, resamples=1000)
    _, plain = mean_over_prompts(values, ones, counts)
    _, moved = mean_over_prompts(1e6 + 4 * values, ones, counts)
    np.testing.assert_allclose(moved.low, 1e6 + 4 * plain.low, rtol=1e-9)
    np.testing.assert_allclose(moved.high, 1e6 + 4 * plain.high, rtol=1e-9)


def test_prompts_without_tokens_and_columns_without_prompts():
    values = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    sizes = np.array([[1, 0], [1, 0], [1, 0], [0, 0]])
    points, interval = mean_over_prompts(values, sizes, resampled_counts(4))
    alone, fewer = mean_over_prompts(values[:3, :1], sizes[:3, :1], resampled_counts(3))
    np.testing.assert_allclose(points, [alone[0], np.nan])
    low, high = stats.t.interval(0.95, 2, points[0], np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert interval.low[0] <= low + 1e-12
    assert interval.high[0] >= high - 1e-12
    assert np.isfinite([interval.low[0], fewer.low[0]]).all()
    assert np.isnan([interval.low[1], interval.high[1]]).all()


def test_a_constant_has_an_interval_of_no_width():
    _, interval = mean_over_prompts(np.full((8, 1), 0.1), np.ones((8, 1)), resampled_counts(8))
    np.testing.assert_allclose([interval.low[0], interval.high[0]], 0.1, atol=1e-12)
    assert score_interval(np.full(8, 0.1), np.arange(8)) == (0.1, 0.1)


def test_a_mean_of_one_prompt_has_no_interval_and_wrong_shapes_get_a_sentence():
    _, interval = mean_over_prompts(np.ones((1, 1)), np.ones((1, 1)), resampled_counts(1))
    assert isinstance(interval, Unavailable)
    with pytest.raises(InvalidInputError, match="with 2 prompts"):
        mean_over_prompts(np.ones((3, 1)), np.ones((3, 1)), resampled_counts(2))


def rejected(m, values, owner, level):
    """Oracle: the t test of the ratio of counts at most m, prompt by prompt."""
    below = np.array([(values[owner == p] <= m).sum() for p in np.unique(owner)])
    sizes = np.array([(owner == p).sum() for p in np.unique(owner)])
    ratio = (below - sizes / 2).sum() / sizes.sum()
    residuals = (below - sizes / 2) - ratio * sizes
    n = len(sizes)
    error = np.sqrt(n / (n - 1) * (residuals**2).sum())
    excess = (below - sizes / 2).sum()
    excess = max(abs(excess) - 0.5, 0)
    if error < 1e-9:
        return excess != 0
    return excess / error > stats.t.ppf((1 + level) / 2, n - 1)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(2, 40), st.sampled_from([0.8, 0.95]))
def test_the_interval_of_a_median_is_what_the_test_does_not_reject(seed, prompts, tokens, level):
    rng = np.random.default_rng(seed)
    owner = np.r_[np.arange(prompts), rng.integers(prompts, size=tokens)]
    values = rng.normal(size=len(owner)) + rng.normal(size=prompts)[owner]
    low, high = score_interval(values, owner, level)
    ordered = np.sort(values)
    middles = (ordered[1:] + ordered[:-1]) / 2
    accepted = [m for m in middles if not rejected(m, values, owner, level)]
    assert accepted, "the test never rejects its own median between two tokens"
    assert low == ordered[ordered < accepted[0]][-1]
    assert high == ordered[ordered > accepted[-1]][0]


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 40))
def test_the_interval_of_a_median_turns_with_the_sign_and_contains_it(seed, prompts, tokens):
    rng = np.random.default_rng(seed)
    owner = np.r_[np.arange(prompts), rng.integers(prompts, size=tokens)]
    values = rng.normal(size=len(owner)).round(1)
    low, high = score_interval(values, owner)
    assert score_interval(-values, owner) == (-high, -low)
    assert low <= np.median(values) <= high


def test_ties_at_the_median_are_its_interval():
    values = np.r_[np.zeros(90), np.arange(1.0, 11.0)]
    assert score_interval(values, np.arange(100) % 10) == (0.0, 0.0)


def plain_interval(values, owner, level):
    """Oracle: the test at every gap between different values, counted anew at each."""
    sizes = np.bincount(owner).astype(float)
    units, total = np.count_nonzero(sizes), len(owner)
    if units < 2:
        return np.nan, np.nan
    order = np.argsort(values, kind="stable")
    critical = stats.t.ppf((1 + level) / 2, units - 1)
    accepted_below, accepted_above = [], []
    for k in range(total + 1):
        if 0 < k < total and not values[order[k]] > values[order[k - 1]]:
            continue
        counted = np.bincount(owner[order[:k]], minlength=len(sizes)).astype(float)
        squares, share = (counted**2).sum(), k / total
        spread = squares - 2 * share * (counted * sizes).sum() + share**2 * (sizes**2).sum()
        spread = spread if spread > 1e-9 * max(squares, 1) else 0.0
        excess = np.sign(k - total / 2) * max(abs(k - total / 2) - 0.5, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            score = np.nan_to_num(np.float64(excess) / np.sqrt(units / (units - 1) * spread))
        accepted_below += [k] if score >= -critical else []
        accepted_above += [k] if score <= critical else []
    first, last = max(accepted_below[0] - 1, 0), min(accepted_above[-1], total - 1)
    return values[order[first]], values[order[last]]


@st.composite
def tokens_of_prompts(draw):
    """Tokens of prompts of any size in any order: equal values, 0 and −0, prompts that differ."""
    sizes = draw(st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    owner = rng.permutation(owner) if draw(st.booleans()) else owner
    values = rng.normal(size=len(owner)) + draw(st.sampled_from([0, 1, 9])) * owner
    values = values.round(draw(st.sampled_from([0, 1, 9])))
    values[rng.random(len(owner)) < draw(st.sampled_from([0, 0.2, 0.8]))] = 0
    return np.where((values == 0) & (rng.random(len(owner)) < 0.5), -0.0, values), owner


@settings(deadline=None)
@given(tokens_of_prompts(), st.sampled_from([0.1, 0.5, 0.8, 0.95, 0.999]))
def test_the_interval_of_a_median_is_that_of_the_test_at_every_gap(tokens, level):
    values, owner = tokens
    found = np.array(score_interval(values, owner, level))
    plain = np.array(plain_interval(values, owner, level))
    np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(plain))


def test_prompts_of_one_value_each_are_as_dependent_as_can_be():
    """Their sum of squares is the largest possible: the interval ends where it may end last."""
    owner = np.repeat(np.arange(400), 2)
    values = np.random.default_rng(0).normal(size=400)[owner]
    assert score_interval(values, owner) == plain_interval(values, owner, 0.95)


@pytest.mark.parametrize("columns", [1, 16, 37])
def test_medians_of_many_columns_are_those_of_each(columns):
    rng = np.random.default_rng(columns)
    owner = np.repeat(np.arange(9), rng.integers(1, 60, size=9))
    values = rng.normal(size=(len(owner), columns)).round(1).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    values[:, -1] = np.where(owner == 3, 1.0, np.nan)
    points, interval = median_over_prompts(values, owner, resampled_counts(9))
    for k, column in enumerate(values.T.astype(float)):
        known = ~np.isnan(column)
        ends = plain_interval(column[known], owner[known], 0.95)
        np.testing.assert_array_equal([interval.low[k], interval.high[k]], ends)
        assert points[k] == np.median(column[known])


def test_a_median_without_tokens_is_not_a_number():
    nothing = np.zeros((0, 2)), np.zeros(0, int)
    points, interval = median_over_prompts(*nothing, resampled_counts(2))
    assert np.isnan([points, interval.low, interval.high]).all()


def test_missing_tokens_are_left_out_of_their_column_only():
    values = np.array([[1.0, np.nan], [3.0, 5.0], [5.0, 7.0]])
    point, interval = median_over_prompts(values, np.array([0, 1, 1]), resampled_counts(2))
    np.testing.assert_allclose(point, [3.0, 6.0])
    assert np.isnan(interval.low[1]), "one prompt has tokens in this column"


def test_dependence_inside_prompts_is_not_mistaken_for_information():
    """Coverage of the 90 % interval, 40 prompts of 20 equal tokens (tokens alone cover < 40 %)."""
    rng = np.random.default_rng(0)
    hits, counts = 0, resampled_counts(40)
    for _ in range(400):
        values = np.repeat(rng.normal(size=40), 20)[:, None]
        _, interval = median_over_prompts(values, np.repeat(np.arange(40), 20), counts, level=0.9)
        hits += bool(interval.low[0] <= 0.0 <= interval.high[0])
    assert 0.86 <= hits / 400 <= 0.95
