"""What a state says about its class: the I–MMSE identity, and the mixture in closed form."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import quad
from tests.oracles import u_turn_probability, unit_clock_variance

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    class_information,
    mixture_entropy,
    mixture_gap,
    mixture_u_turn,
)

MIXTURES = [(2.0, 0.25), (1.0, 1.0), (4.0, 0.04), (0.5, 2.0)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def log_snr(t):
    return np.log(np.exp(-2 * np.asarray(t)) / -np.expm1(-2 * np.asarray(t)))


def clock(snr):
    """Unit clock at a log ratio of signal to noise."""
    return 0.5 * np.logaddexp(0, -np.asarray(snr))


def density(x, t, mu, s2, y):
    alpha, v = np.exp(-t), unit_clock_variance(s2, t)
    return np.exp(-((x - y * alpha * mu) ** 2) / (2 * v)) / np.sqrt(2 * np.pi * v)


@pytest.mark.parametrize(("mu", "s2"), MIXTURES)
@pytest.mark.parametrize("t", [0.02, 0.5, 1.5])
def test_the_entropy_is_the_integral_of_its_definition(mu, s2, t):
    def integrand(x):
        arms = np.array([density(x, t, mu, s2, y) for y in (1, -1)])
        shares = arms / arms.sum()
        return 0.5 * arms.sum() * -(shares * np.log(np.maximum(shares, 1e-300))).sum()

    reach = np.exp(-t) * mu + 12 * np.sqrt(unit_clock_variance(s2, t))
    expected = quad(integrand, -reach, reach, limit=400, points=[0.0], epsabs=1e-12)[0]
    assert_allclose(float(mixture_entropy(t, mu, s2)), expected, atol=1e-9)


@pytest.mark.parametrize(("mu", "s2"), MIXTURES)
def test_the_u_turn_is_that_of_the_oracle(mu, s2):
    times = np.linspace(0.0, 4.0, 17)
    expected = [u_turn_probability(t, mu, s2) for t in times]
    assert_allclose(mixture_u_turn(times, mu, s2), expected, atol=1e-12)


@pytest.mark.parametrize(("mu", "s2"), MIXTURES)
def test_the_gap_is_that_of_the_two_denoisers(mu, s2):
    """From E[ε | x] by integration over both arms, not from the formula."""
    t = 0.7
    alpha, v = np.exp(-t), float(unit_clock_variance(s2, t))
    noise = -np.expm1(-2 * t)

    def given(x, y):  # E[ε | x, y] = √noise (x − αyμ)/v, jointly Gaussian
        return np.sqrt(noise) * (x - alpha * y * mu) / v

    def integrand(x):
        arms = np.array([0.5 * density(x, t, mu, s2, y) for y in (1, -1)])
        own = np.array([given(x, y) for y in (1, -1)])
        mean = (arms * own).sum() / arms.sum()
        return (arms * (own - mean) ** 2).sum()

    reach = alpha * mu + 12 * np.sqrt(v)
    expected = quad(integrand, -reach, reach, limit=400, points=[0.0], epsabs=1e-12)[0]
    assert_allclose(float(mixture_gap(t, mu, s2)), expected, atol=1e-9)


@pytest.mark.parametrize(("mu", "s2"), MIXTURES)
def test_half_the_gap_integrates_to_the_information(mu, s2):
    """½∫ E|Δε̂|² d log snr = log 2 − H(Y | x_t): the identity that everything here rests on."""
    for end in (-2.0, 0.0, 3.0):
        rate = lambda u: 0.5 * float(mixture_gap(clock(u), mu, s2))  # noqa: E731
        gained = quad(rate, -40, end, limit=200, epsabs=1e-10)[0]
        entropy = float(mixture_entropy(clock(end), mu, s2))
        assert_allclose(gained, math.log(2) - entropy, atol=1e-6)


def test_a_class_is_unknown_in_noise_and_known_in_a_clean_image():
    assert_allclose(float(mixture_entropy(20.0, 2.0, 0.25)), math.log(2), atol=1e-12)
    assert float(mixture_entropy(0.0, 4.0, 0.04)) < 1e-12
    assert_allclose(float(mixture_u_turn(20.0, 2.0, 0.25)), 0.5, atol=1e-12)
    assert_allclose(float(mixture_u_turn(0.0, 4.0, 0.04)), 1.0, atol=1e-12)


def sampled_gaps(n, grid, mu=2.0, s2=0.25, seed=0):
    """|Δε̂|² at points of the mixture, from the two denoisers."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], (n, 1))
    t = clock(grid)
    alpha, v = np.exp(-t), unit_clock_variance(s2, t)
    x0 = y * mu + math.sqrt(s2) * rng.standard_normal((n, 1))
    x = alpha * x0 + np.sqrt(-np.expm1(-2 * t)) * rng.standard_normal((n, len(grid)))
    gap = np.sqrt(-np.expm1(-2 * t)) * alpha * mu / v * (y - np.tanh(alpha * mu * x / v))
    return gap**2


def test_the_measured_entropy_of_the_mixture_is_the_closed_form():
    grid = np.linspace(-6, 6, 60)
    gaps = sampled_gaps(4000, grid)
    found = class_information(grid, gaps, 2, draws=500, generator=generator())
    exact = mixture_entropy(clock(grid), 2.0, 0.25)
    # Pointwise 95 % over one curve of correlated errors; the trapezoid adds less than .002.
    inside = (found.low <= exact + 0.002) & (exact - 0.002 <= found.high)
    assert inside.double().mean() >= 0.9
    assert_allclose(found.entropy, exact, atol=0.02)
    rate = 0.5 * mixture_gap(clock(grid), 2.0, 0.25)
    within = (found.rate_low <= rate) & (rate <= found.rate_high)
    assert within[torch.from_numpy(grid) < 1].double().mean() >= 0.9  # later, one image in many
    assert_allclose(found.rate, rate, atol=0.02)
    assert abs(found.excess) < 0.02
    assert found.total_low <= found.total <= found.total_high
    assert_allclose(found.excess, found.total - math.log(2))


def test_the_bands_cover_as_often_as_they_say():
    grid = np.linspace(-6, 4, 40)
    exact_rate = 0.5 * mixture_gap(clock(grid), 2.0, 0.25)[20]
    # What the trapezoid gives without sampling noise.
    mean_gap = mixture_gap(clock(grid), 2.0, 0.25).expand(8, -1)
    exact = class_information(grid, mean_gap, 2, draws=20, generator=generator()).entropy
    rates = entropies = 0
    for seed in range(100):
        gaps = sampled_gaps(300, grid, seed=seed)
        found = class_information(grid, gaps, 2, draws=200, generator=generator(seed))
        rates += bool(found.rate_low[20] <= exact_rate <= found.rate_high[20])
        entropies += bool(found.low[25] <= exact[25] <= found.high[25])
    assert 88 <= rates < 100
    assert 88 <= entropies <= 100


def test_the_tail_before_the_first_time_is_the_first_rate():
    """A rate proportional to the ratio of signal to noise integrates to itself."""
    grid = np.linspace(-4, -1, 3001)
    rows = np.tile(np.exp(grid), (8, 1))
    found = class_information(grid, rows, 10, draws=20, generator=generator())
    assert_allclose(found.rate, 0.5 * np.exp(grid))
    assert_allclose(math.log(10) - found.entropy, 0.5 * np.exp(grid), rtol=1e-6)
    assert_allclose(found.tail, 0.5 * math.exp(-4))


def test_a_pair_that_differs_too_much_gains_more_than_there_is_to_know():
    found = class_information(
        np.linspace(-3, 3, 7), np.ones((8, 7)), 2, draws=20, generator=generator()
    )
    assert_allclose(found.total, 0.5 * 6 + 0.5)
    assert_allclose(found.excess, 3.5 - math.log(2))


@pytest.mark.parametrize(
    ("grid", "gaps", "classes", "match"),
    [
        ([0.0, -1.0], np.ones((9, 2)), 2, "increase"),
        ([0.0, 1.0], np.ones((9, 3)), 2, "column"),
        ([0.0, 1.0], np.ones((5, 2)), 2, "8 images"),
        ([0.0, 1.0], np.full((9, 2), np.inf), 2, "finite"),
        ([0.0, 1.0], np.full((9, 2), np.nan), 2, "finite"),
        ([0.0, 1.0], np.ones((9, 2)), 1, "classes"),
    ],
)
def test_what_gives_no_information_is_refused(grid, gaps, classes, match):
    with pytest.raises(InvalidInputError, match=match):
        class_information(grid, gaps, classes, draws=50, generator=generator())


@pytest.mark.parametrize(("draws", "level"), [(5, 0.95), (50, 1.5)])
def test_a_design_without_band_is_refused(draws, level):
    with pytest.raises(InvalidInputError):
        class_information(
            [0.0, 1.0], np.ones((9, 2)), 2, draws=draws, generator=generator(), level=level
        )


@pytest.mark.parametrize(("t", "mu", "s2"), [(-0.1, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, np.inf, 1.0)])
def test_a_mixture_without_density_is_refused(t, mu, s2):
    for form in (mixture_entropy, mixture_u_turn, mixture_gap):
        with pytest.raises(InvalidInputError):
            form(t, mu, s2)
