"""Counterexamples to statements of source 000 on drifts, scores, rotation and samplers.

``docs/theory/errata.md`` lists the statements by number.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.linalg import expm, solve_continuous_lyapunov


def variance_path(slope, noise, start, t_span):
    """Variance of dX = slope(t) X dt + √noise dW from variance ``start``."""
    out = solve_ivp(lambda t, v: 2 * slope(t) * v + noise, t_span, [start], rtol=1e-11, atol=1e-13)
    return out.y[0, -1]


def unit_clock_variance(t, s2=0.25):
    return s2 * np.exp(-2 * t) + 1 - np.exp(-2 * t)


# E40


def test_probability_flow_velocity_with_full_noise_spreads_the_stationary_law():
    """F = −x, a = 2, p = N(0, 1): u = F − ½a∇log p = 0, so SDE(u, a) has variance 1 + 2t."""
    for t in (0.5, 1.0):
        assert_allclose(variance_path(lambda _: -1 + 1.0, 2.0, 1.0, (0, t)), 1 + 2 * t)
        assert_allclose(variance_path(lambda _: -1.0, 2.0, 1.0, (0, t)), 1.0)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_forward_family_keeps_the_marginals(lam):
    """dX = [F − ½(1−λ²)a∇log p]dt + λσ dW from N(0, ¼)."""
    end = variance_path(
        lambda t: -1 + (1 - lam**2) / unit_clock_variance(t), 2 * lam**2, 0.25, (0, 1.2)
    )
    assert_allclose(end, unit_clock_variance(1.2), rtol=1e-8)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_reverse_family_returns_to_the_data(lam):
    """Drift F − ½(1+λ²)a∇log p run backwards from T = 1.2 with noise λσ."""
    horizon = 1.2
    end = variance_path(
        lambda s: 1 - (1 + lam**2) / unit_clock_variance(horizon - s),
        2 * lam**2,
        unit_clock_variance(horizon),
        (0, horizon),
    )
    assert_allclose(end, 0.25, rtol=1e-8)


# E41


def test_noise_scaled_by_the_norm_drowns_the_state():
    rng = np.random.default_rng(0)
    d = 768
    h = rng.standard_normal(d)
    noise = rng.standard_normal(d)
    published = 0.1 * np.linalg.norm(h) * noise
    per_coordinate = published / np.sqrt(d)
    assert np.linalg.norm(published) > 2.5 * np.linalg.norm(h)
    assert_allclose(np.linalg.norm(per_coordinate), 0.1 * np.linalg.norm(h), rtol=0.1)


# E42


def test_published_score_weight_favours_the_smallest_noise():
    """E‖target‖² = d/σ²; the published weight leaves a 50-fold preference for σ = σ_min."""
    scales = np.array([0.01, 0.02, 0.05, 0.1])
    published = scales**2 / (scales**2 + scales.min() ** 2) / scales**2
    assert np.all(np.diff(published) < 0)
    assert_allclose(published[0] / published[-1], 50.5)
    assert_allclose(scales**2 / scales**2, 1.0)


# E43


def test_divergence_check_rejects_the_true_score_and_accepts_zero():
    """For N(0, 1): ∇·(ps) = p'' = −0.3989 at 0 with the true score, 0 with s = 0."""
    x = np.linspace(-12, 12, 24_001)
    p = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)

    def divergence(s):
        return np.gradient(p * s, x)

    assert np.abs(divergence(-x)).max() > 0.398
    assert np.abs(divergence(0 * x)).max() < 1e-3


def test_stein_identities_accept_the_true_score_and_reject_zero():
    x = np.linspace(-12, 12, 24_001)
    p = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    assert_allclose([p @ -x, p @ (-x * x)], [0.0, -1.0], atol=1e-9)
    assert abs(p @ (0 * x * x) - (-1.0)) == 1.0


# E44, E45: u = (−y, x) under μ = N(0, diag(1, 4))


def hermite_nodes(deviations, order=12):
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    return z * deviations, np.outer(weights, weights).ravel() / (2 * np.pi)


def polynomial_gradients(x, degree=4):
    out = []
    for i in range(degree + 1):
        for j in range(degree + 1 - i):
            if i + j:
                dx = i * x[:, 0] ** max(i - 1, 0) * x[:, 1] ** j
                dy = j * x[:, 0] ** i * x[:, 1] ** max(j - 1, 0)
                out.append(np.stack([dx, dy], -1))
    return np.array(out)


def weighted_rotation():
    """(∫|w|²dμ, ∫|u|²dμ), w the μ-orthogonal complement of the gradients of polynomials."""
    x, mass = hermite_nodes(np.array([1.0, 2.0]))
    u = np.stack([-x[:, 1], x[:, 0]], -1)
    root = np.sqrt(mass)[:, None]
    design = (polynomial_gradients(x) * root).reshape(-1, 2 * len(x)).T
    target = (u * root).ravel()
    w = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return w @ w, target @ target


def test_rotation_needs_the_weighted_poisson_problem():
    """Unweighted, ∇·u = 0 gives θ = 0 and R = ∫|u|² = 5; weighted, R = 3.2."""
    right, unweighted = weighted_rotation()
    assert_allclose(right, 3.2, rtol=1e-9)
    assert_allclose(unweighted, 5.0, rtol=1e-9)


def test_published_normalised_rotation_can_exceed_one():
    """a = 0.1·I: R = 32 over ∫‖u‖² = 5 is 6.4; both in the a⁻¹ norm it is 0.64."""
    right, energy = weighted_rotation()
    assert_allclose((right / 0.1) / energy, 6.4, rtol=1e-9)
    assert_allclose((right / 0.1) / (energy / 0.1), 0.64, rtol=1e-9)


# E46


def linear_rotation(y, u):
    """Least-squares field A, its Hodge remainder W under the sample covariance, and that law."""
    A = np.linalg.lstsq(y, u, rcond=None)[0].T
    Sigma = y.T @ y / len(y)
    S = solve_continuous_lyapunov(Sigma, A @ Sigma + Sigma @ A.T)
    return A, A - S, Sigma


def sample_field(A, n, rng):
    y = rng.standard_normal((n, len(A)))
    return y, y @ A.T + rng.standard_normal((n, len(A)))


def crossfit_rotation(A, n, seed):
    rng = np.random.default_rng(seed)
    halves = [linear_rotation(*sample_field(A, n // 2, rng)) for _ in range(2)]
    (A1, W1, Sigma1), (A2, W2, Sigma2) = halves
    Sigma = 0.5 * (Sigma1 + Sigma2)
    return np.trace(W1 @ Sigma @ W2.T) / np.trace(A1 @ Sigma @ A2.T)


def test_plug_in_rotation_of_a_noisy_gradient_field_is_one_half():
    y, u = sample_field(-np.eye(8), 5000, np.random.default_rng(0))
    A, W, _ = linear_rotation(y, u)
    residual = u - y @ (A - W).T
    assert_allclose((residual**2).sum() / (u**2).sum(), 0.50, atol=0.01)


def test_crossfit_rotation_of_a_noisy_gradient_field_is_zero():
    """Twenty draws of n = 5,000 in d = 8; mean and spread."""
    values = [crossfit_rotation(-np.eye(8), 5000, seed) for seed in range(20)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(20)
    assert np.std(values) < 5e-4


def test_crossfit_rotation_recovers_a_planted_rotation():
    share = 0.05
    spin = np.kron(np.eye(4), np.array([[0.0, -1.0], [1.0, 0.0]]))
    A = -np.eye(8) + np.sqrt(share / (1 - share)) * spin
    values = [crossfit_rotation(A, 5000, seed) for seed in range(20)]
    assert_allclose(np.mean(values), share, atol=4 * np.std(values) / np.sqrt(20) + 1e-4)
    assert np.std(values) < 3e-3


# E47


def test_zero_rotation_is_not_a_schrodinger_bridge():
    """Stationary OU dX = −X dt + √2 dW, reference √2 dB on [0, 1]: u = 0 = b_R + a∇0, R = 0."""
    eps, t = 2.0, 0.5
    velocity_slope = -1.0 + 0.5 * 2.0 / 1.0
    assert velocity_slope == 0.0
    c = np.sqrt(1 + eps**2 / 4) - eps / 2
    bridge = (1 - t) ** 2 + t**2 + t * (1 - t) * (2 * c + eps)
    kl = 0.5 * (1 / bridge - 1 + np.log(bridge))
    assert_allclose(kl, 0.008327, atol=5e-7)


def path_kl_rate(drift, h):
    """KL per unit time of the stationary OU chain against Brownian steps, a = 2I, law N(0, I)."""
    E = expm(h * drift)
    noise = np.eye(2) - E @ E.T
    shift = E - np.eye(2)
    quadratic = np.trace(noise) + np.trace(shift @ shift.T)
    logdet = np.linalg.slogdet(noise)[1] - 2 * np.log(2 * h)
    return 0.5 * (quadratic / (2 * h) - 2 - logdet) / h


def test_half_the_rotation_is_the_path_space_excess_at_equal_marginals():
    """dX = −(I + ωQ)X dt + √2 dW keeps N(0, I) for every ω; R = ∫⟨w, a⁻¹w⟩ = ω²."""
    Q, omega, h = np.array([[0.0, -1.0], [1.0, 0.0]]), 0.8, 1e-4
    reversible = path_kl_rate(-np.eye(2), h)
    assert_allclose(reversible, 0.5, rtol=1e-3)  # ½ E⟨b, a⁻¹b⟩ with b = −x
    excess = path_kl_rate(-(np.eye(2) + omega * Q), h) - reversible
    assert_allclose(excess, 0.5 * omega**2, rtol=1e-3)


# E48


def bridge_coefficients(t, s2=1.0, v2=0.49, eps=2.0):
    """x²-coefficients of θ, of ½log μ and the variance, for the bridge N(0, s2) → N(0, v2)."""
    c = np.sqrt(s2 * v2 + eps**2 / 4) - eps / 2
    var = (1 - t) ** 2 * s2 + t**2 * v2 + t * (1 - t) * (2 * c + eps)
    rate = -2 * (1 - t) * s2 + 2 * t * v2 + (1 - 2 * t) * (2 * c + eps)
    return rate / (4 * eps * var), -1 / (4 * var)


def hjb_curvature(coefficient, t, eps=2.0, h=1e-5):
    """x²-coefficient of ∂_tφ + ½ε|∂ₓφ|² + ½ε∂ₓₓφ for φ = coefficient(t)·x² + f(t)."""
    slope = (coefficient(t + h) - coefficient(t - h)) / (2 * h)
    return slope + 0.5 * eps * (2 * coefficient(t)) ** 2


def test_hjb_residual_of_the_drift_potential_vanishes_on_a_bridge():
    def drift(t):
        return sum(bridge_coefficients(t))

    def velocity(t):
        return bridge_coefficients(t)[0]

    for t in (0.2, 0.5, 0.8):
        assert abs(hjb_curvature(drift, t)) < 1e-8
        assert abs(hjb_curvature(velocity, t)) > 0.1, "θ calls the exact bridge no bridge"


def test_hjb_residual_of_the_drift_potential_sees_that_stationary_ou_is_no_bridge():
    """φ = −x²/4 gives x²/4 − ½; θ = 0 gives 0, a false alarm in the other direction."""
    assert_allclose(hjb_curvature(lambda t: -0.25, 0.5), 0.25)
    constant = 0.5 * 2.0 * 2 * (-0.25)
    assert_allclose(constant, -0.5)
    assert hjb_curvature(lambda t: 0.0, 0.5) == 0.0


# E49


def euler_variance(steps, s2=0.25, horizon=3.0):
    h, var = horizon / steps, unit_clock_variance(horizon, s2)
    for k in range(steps):
        v = unit_clock_variance(horizon - k * h, s2)
        var = (1 + h - 2 * h / v) ** 2 * var + 2 * h
    return var


def log_slope(steps, errors):
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize(
    ("steps", "exact", "doubling"),
    [((25, 50, 100, 200), -1.0915, -1.1264), ((200, 400, 800, 1600), -1.0144, -1.0214)],
)
def test_first_order_slope_is_minus_one_only_asymptotically(steps, exact, doubling):
    errors = [abs(euler_variance(k) - 0.25) for k in steps]
    differences = [abs(euler_variance(k) - euler_variance(2 * k)) for k in steps]
    assert_allclose(log_slope(steps, errors), exact, atol=5e-5)
    assert_allclose(log_slope(steps, differences), doubling, atol=5e-5)
