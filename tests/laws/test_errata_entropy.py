"""Counterexamples to readings of source 003 on entropy along depth: laws that any estimator meets.

``docs/theory/errata.md`` lists the statements by number.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowscope.flows.entropy import gaussian_entropy, kozachenko_leonenko

# E111


@pytest.mark.parametrize("scale", [1.5, 3.0])
def test_output_entropy_falls_where_the_entropy_of_the_cloud_rises(scale):
    """Two outcomes with logits ±x, x = N(0, 1) scaled: the cloud gains log a, the output loses."""
    x = np.linspace(-12, 12, 20_001)
    weight = np.exp(-0.5 * x**2)
    weight /= weight.sum()

    def output(a):
        p = 1 / (1 + np.exp(-2 * a * x))
        return float((weight * -(p * np.log(p + 1e-300) + (1 - p) * np.log(1 - p + 1e-300))).sum())

    assert np.log(scale) > 0.4
    assert output(scale) < output(1.0) - 0.05


# E112


@pytest.mark.parametrize("nu", [0.0, 1.0, 2.5])
def test_one_path_of_gaussians_has_a_potential_for_every_diffusion(nu):
    """N(0, ½ + ce^{-2t}) is the path of (½, k = 1), and of ν with k_t = 1 + (ν − ½)/s²(t)."""
    for t in np.linspace(0, 2, 9):
        s2 = 0.5 - 0.4 * np.exp(-2 * t)
        rate = 0.8 * np.exp(-2 * t)
        assert_allclose(2 * nu - 2 * (1 + (nu - 0.5) / s2) * s2, rate, atol=1e-12)


# E113


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-4, 4), min_size=1, max_size=4), st.floats(0.3, 2.0))
def test_entropy_has_no_stationary_law(centres, width):
    """‖∇_W S‖² is the Fisher information, at least d²/tr Σ: here 1/variance, d = 1."""
    x = np.linspace(-20, 20, 8001)
    parts = [np.exp(-0.5 * ((x - c) / width) ** 2) for c in centres]
    rho = np.sum(parts, 0)
    step = x[1] - x[0]
    rho /= rho.sum() * step
    slope = np.sum([-(x - c) / width**2 * p for c, p in zip(centres, parts, strict=True)], 0)
    slope /= np.sum(parts, 0).sum() * step
    fisher = float((slope**2 / np.maximum(rho, 1e-300)).sum() * step)
    mean = float((x * rho).sum() * step)
    variance = float(((x - mean) ** 2 * rho).sum() * step)
    assert fisher >= 1 / variance * (1 - 1e-6)


def test_the_bound_is_reached_by_gaussians_alone():
    variance, x = 1.7, np.linspace(-15, 15, 6001)
    rho = np.exp(-0.5 * x**2 / variance)
    rho /= rho.sum()
    assert_allclose((rho * (x / variance) ** 2).sum(), 1 / variance, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_minus_the_entropy_is_convex_along_geodesics(seed):
    """In one dimension S(ρ_t) = ∫ log((1−t)Q₀' + tQ₁') over the quantile functions: concave."""
    rng = np.random.default_rng(seed)
    first, last = (rng.gamma(1.0, 1.0, 400) + 1e-3 for _ in range(2))
    values = [np.log((1 - t) * first + t * last).mean() for t in np.linspace(0, 1, 11)]
    assert (np.diff(values, 2) <= 1e-12).all()


# E114


def test_pooled_neighbours_read_the_contexts_of_a_token_not_the_spread_of_tokens():
    """120 types whose centres draw together while contexts of a type spread: neighbours say rise,
    covariance says fall, and one occurrence of each type agrees with the covariance."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(120, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(120, 12, 2, generator=g, dtype=torch.float64)
    readings = []
    for spread, context in ((1.0, 0.001), (0.7, 0.01)):
        cloud = spread * centres[:, None] + context * noise
        pooled, single = cloud.reshape(-1, 2), cloud[:, 0]
        readings.append(
            (
                kozachenko_leonenko(pooled, groups=torch.arange(12).repeat(120)).value,
                gaussian_entropy(pooled),
                kozachenko_leonenko(single).value,
            )
        )
    neighbours, covariance, types = np.diff(readings, axis=0)[0]
    assert neighbours > 3
    assert covariance == pytest.approx(2 * np.log(0.7), abs=0.05)
    assert types == pytest.approx(2 * np.log(0.7), abs=0.1)
