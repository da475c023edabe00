"""Counterexamples to statements of source 003 on latent dynamics, entropy and normalisation.

Fokker–Planck in its convention: ``∂_tρ = νΔρ + ∇·(ρ∇U)``. ``docs/theory/errata.md`` lists the
statements by number.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.spatial import cKDTree
from scipy.special import digamma

# E70


def free_energy_rate(s2, sign):
    """d/dt of ∫½x²dρ + sign·S(ρ) for ν = 1, ρ = N(0, s²), whose variance obeys ṡ² = 2 − 2s²."""
    velocity = 2 - 2 * s2
    return 0.5 * velocity + sign * velocity / (2 * s2)


@pytest.mark.parametrize("s2", [0.3, 0.5, 0.9, 1.5, 3.0])
def test_free_energy_with_minus_the_entropy_falls(s2):
    assert free_energy_rate(s2, -1) < 0


def test_free_energy_with_plus_the_entropy_rises():
    assert_allclose(free_energy_rate(0.5, +1), 1.5)
    assert_allclose(free_energy_rate(0.5, -1), -0.5)


def test_free_energy_rate_is_that_of_the_fokker_planck_equation():
    """The closed form above against ∂_tρ on a grid, s² = 0.5."""
    x = np.linspace(-8, 8, 4001)
    step = x[1] - x[0]
    rho = np.exp(-(x**2)) / np.sqrt(np.pi)
    change = np.gradient(np.gradient(rho, step) + rho * x, step)
    entropy_rate = -np.sum(change * np.log(rho)) * step
    energy_rate = np.sum(0.5 * x**2 * change) * step
    assert_allclose(energy_rate - entropy_rate, free_energy_rate(0.5, -1), rtol=1e-3)


# E71


def fokker_planck_entropy_rate(rho, x, nu, gradient):
    """dS/dt = −∫∂_tρ log ρ by finite differences on a grid."""
    step = x[1] - x[0]
    flux = nu * np.gradient(rho, step) + rho * gradient
    return -np.sum(np.gradient(flux, step) * np.log(rho)) * step


def test_entropy_rate_is_fisher_information_minus_the_mean_laplacian():
    """A two-hump density, U = x⁴/4, ν = 0.3; 2 % for the second differences of the grid."""
    x = np.linspace(-6, 6, 6001)
    step, nu = x[1] - x[0], 0.3
    rho = np.exp(-0.5 * ((x - 1) / 0.6) ** 2) + np.exp(-0.5 * ((x + 1) / 0.6) ** 2)
    rho /= rho.sum() * step
    score = np.gradient(np.log(rho), step)
    predicted = nu * np.sum(score**2 * rho) * step - np.sum(3 * x**2 * rho) * step
    measured = fokker_planck_entropy_rate(rho, x, nu, x**3)
    assert_allclose(predicted, measured, rtol=2e-2)
    assert measured < -3


@pytest.mark.parametrize("slope", [0.0, 1.0, 1000.0])
def test_a_steep_potential_without_laplacian_does_not_lower_the_entropy(slope):
    """U = gx, ρ = N(0, s²): dS/dt = ν/s² > 0 for every g, however large ‖∇U‖."""
    x, nu, s2 = np.linspace(-8, 8, 4001), 0.01, 0.5
    rho = np.exp(-(x**2) / (2 * s2)) / np.sqrt(2 * np.pi * s2)
    rate = fokker_planck_entropy_rate(rho, x, nu, slope)
    assert_allclose(rate, nu / s2, rtol=1e-3)


# E72


def test_a_positive_laplacian_is_not_a_bakry_emery_bound():
    """U = ½(3x² − y²): ΔU = 2 > 0, Hess U has −1, and the variance in y grows for ever."""
    hessian = np.diag([3.0, -1.0])
    assert np.trace(hessian) == 2
    assert np.linalg.eigvalsh(hessian)[0] == -1
    nu, steps, h = 1.0, 4000, 1e-3
    variances = np.ones(2)
    for _ in range(steps):
        variances = variances + h * (2 * nu - 2 * np.diag(hessian) * variances)
    assert_allclose(variances[0], nu / 3, rtol=1e-3)
    assert variances[1] > 1000


# E73


def self_transport_velocity(x, rho, bandwidth, eps):
    """(T(x) − x)/ε for the bistochastic kernel ∝ exp(−r²/bandwidth) under ρ."""
    K = np.exp(-((x[:, None] - x[None, :]) ** 2) / bandwidth)
    f = np.ones_like(x)
    for _ in range(200):
        f = np.sqrt(f / (K @ (rho * f)))
    kernel = f[:, None] * K * (rho * f)[None, :]
    return (kernel @ x / kernel.sum(1) - x) / eps


@pytest.mark.parametrize(("factor", "share"), [(2.0, 0.5), (4.0, 1.0)])
def test_heat_limit_depends_on_the_kernel_width(factor, share):
    """exp(−r²/2ε) gives ½∇log ρ, hence ½Δρ; exp(−r²/4ε) gives ∇log ρ, hence Δρ."""
    x, eps = np.linspace(-4, 4, 801), 2e-3
    rho = np.exp(-0.5 * (x - 0.8) ** 2) + np.exp(-0.5 * (x + 0.8) ** 2)
    rho /= rho.sum()
    score = -x + 0.8 * np.tanh(0.8 * x)
    inner = np.abs(x) < 2
    velocity = self_transport_velocity(x, rho, factor * eps, eps)
    measured = (velocity[inner] @ score[inner]) / (score[inner] @ score[inner])
    assert_allclose(measured, share, rtol=1e-2)


# E74: the statement holds; its reading is sharpened


def sinkhorn_functional(x, M):
    """F^∞ = −½∫k^∞ log(k^∞/k⁰) and the bistochastic kernel, for n points of weight 1/n."""
    n = len(x)
    logits = x @ M @ x.T
    f = np.zeros(n)
    for _ in range(400):
        f = 0.5 * (f - np.log(np.exp(logits + f[None, :]).sum(1)))
    K = np.exp(logits + f[:, None] + f[None, :])
    return -0.5 * np.sum(K / n * (np.log(n * K) - logits)), K


def test_sinkhorn_attention_is_the_gradient_flow_of_its_functional():
    """W_QᵀW_K = W_KᵀW_Q = −W_V: ẋ_i = Σ_j K_ij W_V x_j = −n ∂F/∂x_i."""
    rng = np.random.default_rng(0)
    x, M = rng.standard_normal((5, 2)), np.array([[0.5, 0.2], [0.2, -0.3]])
    _, K = sinkhorn_functional(x, M)
    assert_allclose([K.sum(0), K.sum(1)], 1.0, atol=1e-12)
    gradient, h = np.zeros_like(x), 1e-5
    for index in np.ndindex(*x.shape):
        moved = x.copy()
        moved[index] += h
        up = sinkhorn_functional(moved, M)[0]
        moved[index] -= 2 * h
        gradient[index] = (up - sinkhorn_functional(moved, M)[0]) / (2 * h)
    assert_allclose(K @ x @ -M, -5 * gradient, atol=1e-8)


def test_sinkhorn_attention_raises_its_self_transport_cost():
    """F^∞ is −½ times the entropic self-transport cost min_π KL(π ‖ k⁰): descent raises it."""
    rng = np.random.default_rng(0)
    x, M = rng.standard_normal((5, 2)), np.array([[0.5, 0.2], [0.2, -0.3]])
    before, K = sinkhorn_functional(x, M)
    after, _ = sinkhorn_functional(x + 1e-3 * K @ x @ -M, M)
    assert -2 * after > -2 * before


# E75


def entropy_estimate(x, dimension, log_ball, k=3):
    """Kozachenko–Leonenko with a stated dimension."""
    n = len(x)
    radius = cKDTree(x).query(x, k + 1)[0][:, k]
    return digamma(n) - digamma(k) + log_ball + dimension * np.log(radius).mean()


def test_entropy_on_a_sphere_needs_the_intrinsic_dimension():
    """The unit circle, true entropy log 2π; with d = 2 the estimate falls by log N for ever."""
    rng = np.random.default_rng(0)
    values = {}
    for n in (500, 8000):
        angle = 2 * np.pi * rng.random(n)
        x = np.stack([np.cos(angle), np.sin(angle)], 1)
        values[n] = entropy_estimate(x, 1, np.log(2)), entropy_estimate(x, 2, np.log(np.pi))
    assert_allclose([values[500][0], values[8000][0]], np.log(2 * np.pi), atol=0.1)
    assert_allclose(values[500][1] - values[8000][1], np.log(16), atol=0.15)


def test_entropy_of_repeated_points_is_minus_infinity():
    with np.errstate(divide="ignore"):
        assert entropy_estimate(np.repeat(np.eye(3), 5, axis=0), 3, 0.0) == -np.inf


# E76


def test_layer_norm_puts_tokens_at_radius_root_d_in_the_mean_zero_plane():
    x = torch.randn(20, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out = torch.nn.functional.layer_norm(x, (64,), eps=0.0)
    assert_allclose(out.norm(dim=-1), 8.0, rtol=1e-12)
    assert_allclose(out.sum(-1), 0.0, atol=1e-12)
    many = torch.nn.functional.layer_norm(
        torch.randn(200, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64), (64,)
    )
    assert np.linalg.matrix_rank(many.numpy()) == 63


# E78


def test_a_residual_around_the_block_counts_the_input_twice():
    """Zero weights: modules with their own residuals already return x; x + B(x) returns 2x."""
    x = np.array([1.0, -2.0])

    def block(v):
        v = v + 0 * v
        return v + 0 * v

    assert_allclose(block(x), x)
    assert_allclose(x + block(x), 2 * x)
