"""The gap between bands of modes: its bias, its split halves, its null, its power."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    exchange_null,
    gap,
    naive_gap,
    smallest_detectable_gap,
    split_half_gap,
    stacked_gram,
)

PAIRS = 32


def gram_of(V0, Vs):
    rows = np.vstack([V0, Vs])
    return rows @ rows.T


def unchanged(rng, D=64, power=0.0, correlation=0.0, pairs=PAIRS):
    """Gram matrix of a V_s of the law of V_0, exchangeable with it."""
    scale = np.arange(1, D + 1.0) ** -power
    first, fresh = rng.standard_normal((2, pairs, D)) * scale
    return gram_of(first, correlation * first + np.sqrt(1 - correlation**2) * fresh)


def planted(rng, factor, D=64, correlation=0.9):
    """Modes from the ninth on keep ``factor`` times the energy of the first eight."""
    first, fresh = rng.standard_normal((2, PAIRS, D)) / np.arange(1, D + 1)
    kept = np.where(np.arange(D) < 8, 1.0, np.sqrt(factor))
    return gram_of(first, (correlation * first + np.sqrt(1 - correlation**2) * fresh) * kept)


def explicit_log_ratio(V0, Vs, basis, other, lead, trail):
    modes = np.linalg.svd(V0[basis], full_matrices=False)[2].T
    energy = ((Vs[other] @ modes) ** 2).sum(0) / ((V0[other] @ modes) ** 2).sum(0)
    return np.log(energy[-trail:].mean() / energy[:lead].mean())


def test_naive_gap_is_the_ratio_of_band_means_of_explicit_modes():
    V0, Vs = np.random.default_rng(0).standard_normal((2, 12, 40))
    right = np.linalg.svd(V0, full_matrices=False)[2].T
    energy = ((Vs @ right) ** 2).sum(0) / ((V0 @ right) ** 2).sum(0)
    expected = energy[-3:].mean() / energy[:2].mean()
    assert_allclose(naive_gap(gram_of(V0, Vs), 2, 3), expected, rtol=1e-10)


def test_naive_gap_takes_the_last_modes_that_are_present():
    V0, Vs = np.random.default_rng(0).standard_normal((2, 12, 5))
    right = np.linalg.svd(V0, full_matrices=False)[2].T
    energy = ((Vs @ right) ** 2).sum(0) / ((V0 @ right) ** 2).sum(0)
    assert_allclose(naive_gap(gram_of(V0, Vs), 2, 2), energy[-2:].mean() / energy[:2].mean())


def test_naive_gap_of_independent_white_differences_is_not_one():
    """E86: about 10 at D = 64, bands of 8 of 32."""
    rng = np.random.default_rng(0)
    found = np.mean([naive_gap(unchanged(rng), 8, 8) for _ in range(40)])
    assert_allclose(found, 10.0, atol=1.0)


def test_split_half_gap_averages_both_directions_of_explicit_halves():
    V0, Vs = np.random.default_rng(1).standard_normal((2, 10, 30))
    halvings = list(gap._halvings(10, 3, 7))
    expected = np.mean([explicit_log_ratio(V0, Vs, i, j, 2, 3) for i, j in halvings])
    found = split_half_gap(gram_of(V0, Vs), 2, 3, splits=3, seed=7)
    assert_allclose(found.value, expected, rtol=1e-9)
    assert len(halvings) == 6
    assert all(sorted([*i, *j]) == list(range(10)) for i, j in halvings)


def test_error_is_the_jackknife_over_measured_pairs():
    V0, Vs = np.random.default_rng(2).standard_normal((2, 8, 30))
    without = np.zeros(8)
    for basis, other in gap._halvings(8, 2, 0):
        whole = explicit_log_ratio(V0, Vs, basis, other, 2, 2)
        for i in other:
            kept = other[other != i]
            without[i] += (explicit_log_ratio(V0, Vs, basis, kept, 2, 2) - whole) / 4
    expected = np.sqrt(3 / 4 * ((without - without.mean()) ** 2).sum())
    assert_allclose(split_half_gap(gram_of(V0, Vs), 2, 2, splits=2).error, expected, rtol=1e-8)


def test_exact_modes_give_the_exact_log_ratio():
    """Pairs along axes, whose order no half can change: V_s = V_0 T has the gap of T."""
    V0 = np.kron(np.ones((8, 1)), np.diag([64.0, 16.0, 4.0, 1.0]))
    T = np.diag([1.0, 1.0, 3.0, 3.0])
    found = split_half_gap(gram_of(V0, V0 @ T), 2, 2)
    assert_allclose(found.value, np.log(9.0), rtol=1e-9)
    assert_allclose(found.ratio, 9.0, rtol=1e-9)


def test_scale_of_either_step_does_not_matter():
    V0, Vs = np.random.default_rng(3).standard_normal((2, 16, 40))
    one = exchange_null(gram_of(V0, Vs), 3, 3, draws=40)
    other = exchange_null(gram_of(0.1 * V0, 7 * Vs), 3, 3, draws=40)
    assert_allclose(other.draws, one.draws, rtol=1e-8)
    assert_allclose(other.scale, 70 * one.scale)


def test_null_draws_are_the_statistic_after_swaps_of_rows():
    V0, Vs = np.random.default_rng(4).standard_normal((2, 12, 40))
    Vs *= 3
    found = exchange_null(gram_of(V0, Vs), 2, 2, draws=40, seed=5)
    scale = np.linalg.norm(Vs) / np.linalg.norm(V0)
    swapped = (np.random.default_rng([5, 1]).random((41, 12)) < 0.5)[1:, :, None]
    for k in (0, 39):
        first = np.where(swapped[k], Vs / scale, V0)
        later = np.where(swapped[k], V0, Vs / scale)
        again = split_half_gap(gram_of(first, later), 2, 2, seed=5)
        assert_allclose(found.draws[k], again.value, rtol=1e-8)
    assert_allclose(found.observed, split_half_gap(gram_of(V0, Vs), 2, 2, seed=5).value, rtol=1e-9)


def test_pairs_that_did_not_change_have_no_gap():
    """V_s = 2V_0: every swap gives 0, and p is 1."""
    V0 = np.random.default_rng(0).standard_normal((16, 40))
    found = exchange_null(gram_of(V0, 2 * V0), 3, 3)
    assert_allclose(found.observed, 0, atol=1e-12)
    assert_allclose(found.draws, 0, atol=1e-9)
    assert found.p_value == 1.0


@pytest.mark.parametrize("power", [0.0, 0.5])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_interval_and_null_hold_their_level_without_a_gap(power, correlation):
    """200 repeats at a nominal 95 %: at least 90 % covered, and not everything accepted."""
    rng = np.random.default_rng(0)
    covered, accepted, values = 0, 0, []
    for _ in range(200):
        gram = unchanged(rng, power=power, correlation=correlation)
        found = split_half_gap(gram, 8, 8)
        covered += found.interval[0] <= 0 <= found.interval[1]
        accepted += exchange_null(gram, 8, 8, draws=59).p_value > 0.05
        values.append(found.value)
    assert 180 <= covered <= 199
    assert 180 <= accepted <= 199
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200)


@pytest.mark.parametrize(("factor", "least"), [(2.0, 18), (0.5, 14)])
def test_a_planted_gap_is_found_on_the_right_side(factor, least):
    """Trailing modes with twice or half the energy, 32 pairs of correlation .9, 20 repeats."""
    rng = np.random.default_rng(1)
    nulls = [exchange_null(planted(rng, factor), 8, 8, draws=99) for _ in range(20)]
    found = [null for null in nulls if null.p_value <= 0.05]
    assert len(found) >= least
    assert {np.sign(null.observed) for null in found} == {np.sign(factor - 1)}


def test_p_value_is_twice_the_smaller_tail_with_the_observed_value_counted_in():
    null = exchange_null(planted(np.random.default_rng(2), 1.1), 8, 8, draws=60)
    tail = min((null.draws <= null.observed).sum(), (null.draws >= null.observed).sum())
    assert 0 < tail < 29
    assert_allclose(null.p_value, 2 * (1 + tail) / 61)


def test_smallest_detectable_gap_of_a_normal_null():
    draws = np.random.default_rng(0).standard_normal(200_000) * 0.3
    assert_allclose(smallest_detectable_gap(draws), 0.3 * (1.95996 + 0.84162), rtol=0.01)
    assert_allclose(smallest_detectable_gap(draws + 5), smallest_detectable_gap(draws))


def test_smallest_detectable_gap_takes_the_worse_side():
    draws = np.random.default_rng(0).exponential(size=100_000)
    assert_allclose(smallest_detectable_gap(draws), smallest_detectable_gap(-draws))
    assert_allclose(smallest_detectable_gap(draws), -np.log(0.025) + np.log(0.8), rtol=0.02)


def test_the_smallest_detectable_gap_is_detected_four_times_in_five():
    """A shift of the null by it, judged by the null's own quantiles."""
    draws = np.random.default_rng(0).standard_normal(4000)
    shifted = draws + smallest_detectable_gap(draws)
    assert_allclose(np.mean(shifted > np.quantile(draws, 0.975)), 0.8, atol=0.02)


def test_gap_takes_a_tensor_of_any_device():
    V0, Vs = torch.randn(2, 16, 40, generator=torch.Generator().manual_seed(0))
    gram = stacked_gram(V0, Vs)
    assert split_half_gap(gram, 3, 3).value == split_half_gap(gram.numpy(), 3, 3).value


@pytest.mark.parametrize("routine", [split_half_gap, exchange_null])
def test_too_few_seeds_for_the_modes_get_a_sentence(routine):
    gram = unchanged(np.random.default_rng(0), pairs=12)
    with pytest.raises(InvalidInputError, match="12 pairs, halved, give 6"):
        routine(gram, 4, 4)


def test_too_few_dimensions_for_the_modes_get_a_sentence():
    gram = unchanged(np.random.default_rng(0), D=5)
    with pytest.raises(InvalidInputError, match=r"give 5\. Take more pairs or smaller bands"):
        split_half_gap(gram, 3, 3)
    with pytest.raises(InvalidInputError, match="32 pairs give 5"):
        naive_gap(gram, 3, 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda G: naive_gap(G, 0, 2), "at least one mode"),
        (lambda G: split_half_gap(G, 2, 2, splits=0), "splits"),
        (lambda G: exchange_null(G, 2, 2, draws=10), "at least 39"),
        (lambda G: naive_gap(np.diag([1.0] * 32 + [0.0] * 32), 2, 2), "merged"),
        (lambda G: smallest_detectable_gap(np.zeros(9), power=1.0), "level and power"),
    ],
)
def test_bad_questions_get_a_sentence(call, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        call(unchanged(np.random.default_rng(0)))
