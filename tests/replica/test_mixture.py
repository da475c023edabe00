"""Moments of a mixture from projections, and γ from the cubic response of the exact block."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.replica import live_gain, mixture_moments, mixture_step, score_gain

GAMMA, C, ETA, M2 = 0.4, 0.5, 0.7, 0.9


def draws(m, c, seeds=400, each=1, seed=0):
    rng = np.random.default_rng(seed)
    sign = 2 * rng.integers(0, 2, (seeds, each)) - 1
    return sign * m + np.sqrt(c) * rng.standard_normal((seeds, each))


def test_moments_of_a_two_point_law_are_exact():
    found = mixture_moments(np.array([1.5, -1.5, 1.5, -1.5]))
    assert found.m2 == pytest.approx(2.25)
    assert found.c == pytest.approx(0.0, abs=1e-7)


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=30))
def test_moments_share_the_second_moment(values):
    p = np.array(values)
    assume(p.std() > 1e-3)
    found = mixture_moments(p, resamples=2)
    assert found.m2 + found.c == pytest.approx(float(np.mean(p**2)))
    assert found.m2 >= 0
    assert found.c >= -1e-12


def test_heavy_tails_show_no_separation():
    """A fourth moment above the Gaussian's: m = 0, and c is the variance."""
    p = np.array([3.0] + [0.1] * 40 + [-3.0])
    found = mixture_moments(p)
    assert found.m2 == 0.0
    assert found.c == pytest.approx(float(np.mean(p**2)))


def test_intervals_over_seeds_cover_the_mixture():
    """m² = 4, c = 1, 400 seeds, nominal 95 %: 95 % for m² and 92 % for c in the long run.

    60 repeats; the bounds are three standard errors below.
    """
    covered = np.zeros(2)
    for seed in range(60):
        p = draws(2.0, 1.0, seeds=400, seed=seed)
        found = mixture_moments(p, seed=seed, resamples=200)
        covered += [
            found.m2_interval[0] <= 4.0 <= found.m2_interval[1],
            found.c_interval[0] <= 1.0 <= found.c_interval[1],
        ]
    assert covered[0] >= 0.86 * 60
    assert covered[1] >= 0.81 * 60
    assert (covered < 60).any()


@pytest.mark.parametrize("seeds", [8, 16, 64])
def test_gaussian_projections_are_seldom_called_separated(seeds):
    """m² itself is above 0 in most draws; the lower end of 2m⁴ is in about one of a hundred."""
    rng = np.random.default_rng(seeds)
    found = [mixture_moments(rng.standard_normal(seeds)) for _ in range(300)]
    assert np.mean([each.separation_interval[0] > 0 for each in found]) <= 0.05
    assert np.mean([each.m2 > 0 for each in found]) > 0.5


def test_the_separation_of_a_clear_mixture_is_seen():
    low = [
        mixture_moments(draws(3.0, 0.3, seeds=64, seed=s)).separation_interval[0] for s in range(40)
    ]
    assert np.mean(np.array(low) > 0) > 0.9


def test_the_interval_of_the_separation_covers_it():
    """2m⁴ = 32 at m² = 4, nominal 95 %, and the unit is that of p⁴."""
    ends = [
        mixture_moments(draws(2.0, 1.0, seed=s), seed=s, resamples=200).separation_interval
        for s in range(60)
    ]
    covered = np.array([low <= 32.0 <= high for low, high in ends])
    assert covered.sum() >= 0.86 * 60
    p = draws(2.0, 1.0, seeds=40)
    once, twice = (mixture_moments(s * p).separation_interval for s in (1.0, 2.0))
    np.testing.assert_allclose(twice, 16 * np.array(once))


def test_projections_of_one_seed_are_resampled_together():
    """Ten copies of each seed tell no more than one does."""
    once = draws(2.0, 1.0, seeds=40)
    many = np.repeat(once, 10, axis=1)
    first, second = (mixture_moments(p, seed=1) for p in (once, many))
    np.testing.assert_allclose(first.m2_interval, second.m2_interval)


def test_projections_that_say_nothing_are_refused():
    with pytest.raises(InvalidInputError, match="finite"):
        mixture_moments(np.array([1.0, np.nan, 2.0]))
    with pytest.raises(InvalidInputError, match="seeds"):
        mixture_moments(np.array([1.0]))


AMPLITUDES = np.linspace(-0.35, 0.35, 15)


def response(amplitudes=AMPLITUDES, gamma=GAMMA):
    return mixture_step(amplitudes, gamma, m2=M2, c=C, eta=ETA)


@pytest.mark.parametrize("gamma", [0.05, 0.4, 2.0])
def test_gamma_comes_back_from_the_exact_block(gamma):
    found = score_gain(response(gamma=gamma), AMPLITUDES, m2=M2, c=C)
    assert found.reason is None
    assert found.gamma == pytest.approx(gamma, rel=2e-2)
    assert abs(found.gamma - gamma) <= found.gamma_error
    assert found.slope == pytest.approx(live_gain(gamma, m2=M2, c=C, eta=ETA), rel=1e-3)
    assert found.eta == pytest.approx(ETA, abs=0.05)


def test_smaller_amplitudes_give_gamma_to_more_digits():
    """Truncation of the series in a² is the error: four orders smaller at a third of the size."""
    errors = [
        abs(score_gain(response(s * AMPLITUDES), s * AMPLITUDES, m2=M2, c=C).gamma - GAMMA)
        for s in (1.0, 1 / 3)
    ]
    assert errors[1] < errors[0] / 100


def test_an_even_part_of_the_response_does_not_matter():
    bent = response() + 0.7 * AMPLITUDES**2 - 0.2 * AMPLITUDES**4 + 0.3
    found = score_gain(bent, AMPLITUDES, m2=M2, c=C)
    assert found.gamma == pytest.approx(score_gain(response(), AMPLITUDES, m2=M2, c=C).gamma)


def test_a_linear_response_abstains():
    noise = 1e-6 * np.random.default_rng(0).standard_normal(len(AMPLITUDES))
    found = score_gain(0.8 * AMPLITUDES + noise, AMPLITUDES, m2=M2, c=C)
    assert found.gamma is None
    assert found.eta is None
    assert "within its error" in found.reason
    assert found.slope == pytest.approx(0.8, abs=1e-4)


@given(st.floats(0.1, 3), st.floats(0.05, 2))
def test_the_rounding_of_a_linear_response_is_no_bend(slope, size):
    amplitudes = size * AMPLITUDES
    assert score_gain(slope * amplitudes, amplitudes, m2=M2, c=C).gamma is None


def test_a_response_that_stiffens_abstains():
    found = score_gain(0.8 * AMPLITUDES + AMPLITUDES**3, AMPLITUDES, m2=M2, c=C)
    assert found.gamma is None
    assert "wrong sign" in found.reason


def test_one_component_has_no_gamma():
    found = score_gain(response(), AMPLITUDES, m2=0.0, c=C)
    assert found.gamma is None
    assert "separation" in found.reason


def test_noise_is_in_the_error():
    rng, errors = np.random.default_rng(1), []
    for _ in range(40):
        noisy = response() + 1e-4 * rng.standard_normal(len(AMPLITUDES))
        found = score_gain(noisy, AMPLITUDES, m2=M2, c=C)
        errors.append(abs(found.gamma - GAMMA) / found.gamma_error)
    assert np.mean(np.array(errors) <= 1) > 0.8


@pytest.mark.parametrize(
    ("amplitudes", "match"),
    [(np.linspace(0.1, 0.5, 9), "both signs"), (np.array([-0.1, 0.1]), "amplitudes")],
)
def test_amplitudes_that_cannot_tell_are_refused(amplitudes, match):
    with pytest.raises(InvalidInputError, match=match):
        score_gain(response(amplitudes), amplitudes, m2=M2, c=C)
