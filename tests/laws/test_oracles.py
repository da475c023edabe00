"""The closed forms of ``tests/oracles.py`` against an independent route and the printed numbers."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm, solve_continuous_lyapunov
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import norm
from tests import oracles

COVARIANCES = [
    (np.array([[1.0, 0.3], [0.3, 2.0]]), np.array([[0.5, -0.2], [-0.2, 0.8]]), 0.5),
    (np.array([[2.0, 0.0], [0.0, 0.1]]), np.array([[0.3, 0.1], [0.1, 1.5]]), 0.05),
    (np.diag([1.0, 0.5, 0.2]), np.eye(3) + 0.4, 2.0),
]


def random_spd(rng, d):
    A = rng.standard_normal((d, d))
    return A @ A.T / d + 0.3 * np.eye(d)


def integrated(rhs, y0, t_end, t_start=0.0):
    """Dormand–Prince of order 8 at 1e-12."""
    out = solve_ivp(
        rhs, (t_start, t_end), np.atleast_1d(y0), method="DOP853", rtol=1e-12, atol=1e-13
    )
    return out.y[:, -1]


# --- the simplex (item 17) ---------------------------------------------------------------------


def test_replicator_path_solves_the_mobility_flow():
    p0, b = np.array([0.2, 0.5, 0.3]), np.array([0.7, -0.4, 1.1])
    flow = integrated(lambda _, p: p * (b - p @ b), p0, 1.7)
    assert_allclose(oracles.replicator_path(p0, b, 1.7), flow, rtol=1e-10)


@pytest.mark.parametrize("osc", [0.3, 2.0, 9.0])
def test_largest_total_variation_is_the_maximum_over_two_outcomes(osc):
    def negative_tv(x):
        s = 1 / (1 + np.exp(-x))
        return s - 1 / (1 + np.exp(-(x + osc)))

    grid = np.linspace(-20, 20, 200_001)
    assert_allclose(oracles.largest_total_variation(osc), -negative_tv(grid).min(), rtol=1e-6)


@pytest.mark.parametrize(("delta", "osc"), [(0.01, 8.0), (0.1, 0.5), (0.3, 1.0), (0.02, 3.0)])
def test_largest_locked_variation_is_the_maximum_over_subsets(delta, osc):
    """The maximum of a convex function over Δz ∈ [0, osc]^V is at a vertex: enumerate them."""
    assert delta <= 1 / (1 + np.exp(osc / 2))
    p = np.array([1 - delta, *(delta * np.array([0.5, 0.2, 0.2, 0.1]))])
    best = 0.0
    for size in range(1, 5):
        for subset in combinations(range(5), size):
            q = p.copy()
            q[list(subset)] *= np.exp(osc)
            best = max(best, 0.5 * np.abs(q / q.sum() - p).sum())
    assert_allclose(oracles.largest_locked_variation(delta, osc), best, rtol=1e-12)


def test_largest_locked_variation_joins_its_two_branches():
    osc = 3.0
    edge = 1 / (1 + np.exp(osc / 2))
    below = oracles.largest_locked_variation(edge * (1 - 1e-12), osc)
    assert_allclose(below, np.tanh(osc / 4), rtol=1e-10)
    assert_allclose(oracles.largest_locked_variation(2 * edge, osc), np.tanh(osc / 4))


def test_largest_locked_variation_printed_number():
    assert_allclose(oracles.largest_locked_variation(0.01, 8.0), 0.958, atol=5e-4)


# --- entropic transport (items 1, 2, 11, 12, 13) ------------------------------------------------


def gaussian_plan_value(A, B, C, eps):
    """½E|x−y|² + ε KL(π ‖ μ⊗ν) of the centred joint Gaussian with cross-covariance C."""
    joint = np.block([[A, C], [C.T, B]])
    sign, logdet = np.linalg.slogdet(joint)
    if sign <= 0 or np.linalg.eigvalsh(joint)[0] <= 0:
        return 1e3
    kl = 0.5 * (np.linalg.slogdet(A)[1] + np.linalg.slogdet(B)[1] - logdet)
    return 0.5 * (np.trace(A) + np.trace(B)) - np.trace(C) + eps * kl


@pytest.mark.parametrize(("A", "B", "eps"), COVARIANCES)
def test_entropic_gaussian_coupling_minimises_over_gaussian_plans(A, B, eps):
    d = len(A)
    found = minimize(
        lambda c: gaussian_plan_value(A, B, c.reshape(d, d), eps),
        np.zeros(d * d),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    C = oracles.entropic_gaussian_coupling(A, B, eps)
    assert_allclose(C, found.x.reshape(d, d), atol=2e-6)  # finite-difference gradients
    value = oracles.entropic_gaussian_cost(np.zeros(d), A, np.zeros(d), B, eps)
    assert_allclose(value, found.fun, rtol=1e-9)


def test_entropic_gaussian_cost_adds_half_the_squared_shift():
    A, B, eps = COVARIANCES[0]
    a, b = np.array([1.0, -2.0]), np.array([0.5, 0.3])
    shifted = oracles.entropic_gaussian_cost(a, A, b, B, eps)
    centred = oracles.entropic_gaussian_cost(0 * a, A, 0 * b, B, eps)
    assert_allclose(shifted - centred, 0.5 * (a - b) @ (a - b), rtol=1e-12)


def grid_sinkhorn(log_mu, log_nu, cost, eps, sweeps=60):
    """Log-domain Sinkhorn for KL against the product; potentials f, g divided by ε."""
    f = np.zeros_like(log_mu)
    for _ in range(sweeps):
        g = -logsumexp(f[:, None] + log_mu[:, None] - cost / eps, axis=0)
        f = -logsumexp(g[None, :] + log_nu[None, :] - cost / eps, axis=1)
    return f, g


def test_entropic_gaussian_coupling_against_sinkhorn_on_a_grid():
    x = np.linspace(-7, 7, 281)
    eps = 0.5
    log_mu = norm.logpdf(x, scale=1.0) - logsumexp(norm.logpdf(x, scale=1.0))
    log_nu = norm.logpdf(x, scale=0.7) - logsumexp(norm.logpdf(x, scale=0.7))
    cost = 0.5 * (x[:, None] - x[None, :]) ** 2
    f, g = grid_sinkhorn(log_mu, log_nu, cost, eps)
    plan = np.exp(f[:, None] + g[None, :] + log_mu[:, None] + log_nu[None, :] - cost / eps)
    c = oracles.entropic_gaussian_coupling(1.0, 0.49, eps)[0, 0]
    assert_allclose(x @ plan @ x, c, atol=1e-6)
    value = eps * (np.exp(log_mu) @ f + np.exp(log_nu) @ g)
    assert_allclose(value, oracles.entropic_gaussian_cost(0, 1.0, 0, 0.49, eps), atol=1e-6)


def test_entropic_gaussian_coupling_printed_number():
    c = oracles.entropic_gaussian_coupling(1.0, 0.49, 0.5)[0, 0]
    assert_allclose(c, 0.493303, atol=5e-7)


def test_bridge_covariance_against_potentials_on_a_grid():
    """μ_t ∝ (K_t φ̂)(K_{1−t} φ) with the heat kernel of √ε dB: no Gaussian algebra is used."""
    x = np.linspace(-8, 8, 401)
    eps, t = 0.5, 0.3
    log_mu = norm.logpdf(x, scale=1.0) - logsumexp(norm.logpdf(x, scale=1.0))
    log_nu = norm.logpdf(x, scale=0.7) - logsumexp(norm.logpdf(x, scale=0.7))
    square = 0.5 * (x[:, None] - x[None, :]) ** 2
    f, g = grid_sinkhorn(log_mu, log_nu, square, eps)
    forward = logsumexp(f[:, None] + log_mu[:, None] - square / (eps * t), axis=0)
    backward = logsumexp(g[None, :] + log_nu[None, :] - square / (eps * (1 - t)), axis=1)
    p = np.exp(forward + backward - logsumexp(forward + backward))
    var = oracles.gaussian_bridge_covariance(1.0, 0.49, eps, t)[0, 0]
    assert_allclose(p @ x**2, var, atol=1e-6)


def test_bridge_covariance_printed_number():
    var = oracles.gaussian_bridge_covariance(1.0, 0.49, 0.5, 0.5)[0, 0]
    assert_allclose(var, 0.744152, atol=5e-7)


@pytest.mark.parametrize(("A", "B", "eps"), COVARIANCES)
def test_bridge_covariance_has_its_end_points_and_reverses_in_time(A, B, eps):
    at = oracles.gaussian_bridge_covariance
    assert_allclose(at(A, B, eps, 0.0), A, atol=1e-12)
    assert_allclose(at(A, B, eps, 1.0), B, atol=1e-12)
    assert_allclose(at(A, B, eps, 0.3), at(B, A, eps, 0.7), rtol=1e-10)


def test_bridge_mean_is_a_straight_line():
    a, b = np.array([1.0, -1.0]), np.array([3.0, 0.0])
    assert_allclose(oracles.gaussian_bridge_mean(a, b, 0.25), [1.5, -0.75])


def test_bridge_drift_slope_is_a_free_riccati_and_moves_the_variance():
    s2, v2, eps = 1.0, 0.49, 0.5
    k0 = oracles.gaussian_bridge_drift_slope(s2, v2, eps, 0.0)
    k, var = integrated(lambda _, y: [-(y[0] ** 2), 2 * y[0] * y[1] + eps], [k0, s2], 0.6)
    assert_allclose(oracles.gaussian_bridge_drift_slope(s2, v2, eps, 0.6), k, rtol=1e-9)
    assert_allclose(oracles.gaussian_bridge_covariance(s2, v2, eps, 0.6)[0, 0], var, rtol=1e-9)


@pytest.mark.parametrize(("c", "eps"), [(1.0, 1.0), (2.0, 0.5), (0.3, 2.0)])
def test_two_point_coupling_is_the_minimiser(c, eps):
    def objective(s):
        plan = 0.5 * np.array([s, 1 - s, 1 - s, s])
        return c * (1 - s) + eps * np.sum(plan * np.log(plan / 0.25))

    found = minimize_scalar(
        objective, bounds=(0.01, 0.999), method="bounded", options={"xatol": 1e-10}
    ).x
    plan = 0.5 * np.array([[found, 1 - found], [1 - found, found]])
    assert_allclose(oracles.two_point_coupling(c, eps), plan, atol=1e-6)


@pytest.mark.parametrize(("c", "eps"), [(1.0, 1.0), (2.0, 0.5), (0.3, 2.0)])
def test_two_point_sinkhorn_rate_is_the_measured_contraction(c, eps):
    """Ratio of successive values of log(a₁/a₂), whose limit is 0 by symmetry."""
    K = np.exp(-np.array([[0.0, c], [c, 0.0]]) / eps)
    a = np.array([1.0, 1.0 + 1e-6])
    errors = []
    for _ in range(2):
        errors.append(np.log(a[0] / a[1]))
        b = 0.5 / (K.T @ a)
        a = 0.5 / (K @ b)
    assert_allclose(
        np.log(a[0] / a[1]) / errors[1], oracles.two_point_sinkhorn_rate(c, eps), rtol=1e-5
    )


def test_two_point_sinkhorn_rate_printed_number():
    assert_allclose(oracles.two_point_sinkhorn_rate(1.0, 1.0), 0.21355, atol=5e-6)


def test_centred_gaussian_wasserstein1_is_the_area_between_cdfs():
    area = 2 * quad(lambda x: norm.cdf(x) - norm.cdf(x, scale=2), 0, 60, epsabs=1e-12)[0]
    assert_allclose(oracles.centred_gaussian_wasserstein1(1, 2), area, rtol=1e-9)
    assert_allclose(oracles.centred_gaussian_wasserstein1(1, 2), np.sqrt(2 / np.pi))


def test_bures_distance_is_the_zero_noise_limit_of_the_entropic_cost():
    A, B, _ = COVARIANCES[0]
    C = oracles.entropic_gaussian_coupling(A, B, 1e-7)
    limit = np.trace(A) + np.trace(B) - 2 * np.trace(C)
    assert_allclose(oracles.bures_distance_squared(A, B), limit, atol=1e-6)


def test_bures_barycenter_minimises_the_weighted_distances():
    rng = np.random.default_rng(1)
    covariances, weights = [random_spd(rng, 2) for _ in range(3)], np.array([0.2, 0.5, 0.3])

    def objective(flat):
        L = np.array([[flat[0], 0], [flat[1], flat[2]]])
        S = L @ L.T + 1e-12 * np.eye(2)
        distances = [oracles.bures_distance_squared(S, c) for c in covariances]
        return weights @ distances

    found = minimize(objective, [1.0, 0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9})
    L = np.array([[found.x[0], 0], [found.x[1], found.x[2]]])
    S = oracles.bures_barycenter(covariances, weights)
    assert_allclose(S, L @ L.T, atol=1e-5)


def test_bures_barycenter_in_one_dimension_averages_standard_deviations():
    S = oracles.bures_barycenter([[[1.0]], [[9.0]]], [0.25, 0.75])
    assert_allclose(np.sqrt(S[0, 0]), 0.25 * 1 + 0.75 * 3, rtol=1e-12)


@pytest.mark.parametrize("k", [0.0, 1.5])
def test_jko_step_is_the_minimiser_over_quantile_functions(k):
    """200 free quantiles, no Gaussian assumption; the tail cut-off limits the agreement to 1 %."""
    s, nu, tau, n = 0.8, 0.5, 0.4, 200
    levels = (np.arange(n) + 0.5) / n
    y = s * norm.ppf(levels)

    def objective(x):
        gaps = np.diff(x)
        if gaps.min() <= 0:
            return 1e3, np.zeros(n)
        value = np.mean((x - y) ** 2) / (2 * tau) + 0.5 * k * np.mean(x**2)
        value -= nu * np.log(gaps * n).sum() / n
        grad = (x - y) / (tau * n) + k * x / n
        grad[1:] -= nu / (gaps * n)
        grad[:-1] += nu / (gaps * n)
        return value, grad

    x = minimize(objective, 1.3 * y, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    middle = slice(n // 4, 3 * n // 4)
    slope = np.polyfit(norm.ppf(levels)[middle], x[middle], 1)[0]
    assert_allclose(oracles.jko_confined_step(s, nu, tau, k), slope, rtol=1e-2)


def test_jko_confined_step_solves_its_quadratic():
    s, nu, tau, k = 0.8, 0.5, 0.4, 1.5
    out = oracles.jko_confined_step(s, nu, tau, k)
    found = brentq(lambda r: (r - s) / tau + k * r - nu / r, 1e-3, 10, xtol=1e-14)
    assert_allclose(out, found, rtol=1e-12)
    assert_allclose(oracles.jko_entropy_step(s, nu, tau), 0.5 * (s + np.sqrt(s**2 + 4 * nu * tau)))


# --- diffusion (items 3 to 7) --------------------------------------------------------------------


def test_ou_marginal_solves_the_moment_equations():
    m, s2, t = 1.3, 0.4, 0.9

    def beta(u):
        return 0.5 + 2 * u

    moments = integrated(lambda u, y: [-0.5 * beta(u) * y[0], beta(u) * (1 - y[1])], [m, s2], t)
    assert_allclose(oracles.ou_marginal(m, s2, 0.5 * t + t**2), moments, rtol=1e-10)


def test_ou_probability_flow_solves_the_flow_equation():
    m, s2, t, x0 = 1.3, 0.4, 0.9, -0.7

    def velocity(u, x):
        mean, var = oracles.ou_marginal(m, s2, 2 * u)
        return -0.5 * 2 * (x - (x - mean) / var)

    assert_allclose(oracles.ou_probability_flow(x0, m, s2, 2 * t), integrated(velocity, x0, t)[0])


@pytest.mark.parametrize(
    ("steps", "sde", "ode"),
    [(50, 0.064273, 0.034392), (100, 0.030249, 0.016844), (200, 0.014632, 0.008323)],
)
def test_reverse_sampling_printed_errors(steps, sde, ode):
    assert_allclose(oracles.reverse_sde_variance(0.25, 3.0, steps) - 0.25, sde, atol=5e-7)
    assert_allclose(oracles.reverse_ode_variance(0.25, 3.0, steps) - 0.25, ode, atol=5e-7)


def test_reverse_variances_are_those_of_simulated_particles():
    """200,000 particles; the sample variance has relative sd √(2/n) = 0.32 %, tested at 4 sd."""
    rng = np.random.default_rng(0)
    n, steps, horizon = 200_000, 20, 3.0
    h = horizon / steps
    start = rng.standard_normal(n) * np.sqrt(oracles.unit_clock_variance(0.25, horizon))
    x, y = start.copy(), start.copy()
    for k in range(steps):
        v = oracles.unit_clock_variance(0.25, horizon - k * h)
        x = x + h * (x - 2 * x / v) + np.sqrt(2 * h) * rng.standard_normal(n)
        y = y + h * (y - y / v)
    level = 4 * np.sqrt(2 / n)
    assert_allclose(x.var(), oracles.reverse_sde_variance(0.25, horizon, steps), rtol=level)
    assert_allclose(y.var(), oracles.reverse_ode_variance(0.25, horizon, steps), rtol=level)


def log_mixture(x, t, mu, s2):
    alpha, sd = np.exp(-t), np.sqrt(oracles.unit_clock_variance(s2, t))
    arms = [norm.logpdf(x, loc=c * alpha * mu, scale=sd) for c in (1, -1)]
    return np.logaddexp(*arms) - np.log(2)


@pytest.mark.parametrize("t", [0.05, 0.7, 2.0])
def test_mixture_score_is_the_derivative_of_the_log_density(t):
    x, h = np.linspace(-4, 4, 17), 1e-5
    slope = (log_mixture(x + h, t, 2.0, 0.25) - log_mixture(x - h, t, 2.0, 0.25)) / (2 * h)
    assert_allclose(oracles.mixture_score(x, t, 2.0, 0.25), slope, atol=1e-8)


def test_mixture_score_satisfies_stein():
    t = 0.7
    for f, df in [(lambda x: 1.0, lambda x: 0.0), (lambda x: x, lambda x: 1.0)]:
        total = quad(
            lambda x, f=f, df=df: (
                np.exp(log_mixture(x, t, 2.0, 0.25))
                * (oracles.mixture_score(x, t, 2.0, 0.25) * f(x) + df(x))
            ),
            -12,
            12,
            epsabs=1e-12,
            limit=200,
        )[0]
        assert abs(total) < 1e-9


@pytest.mark.parametrize("x_end", [1.0, -0.3, 0.02])
def test_mixture_probability_flow_against_integration(x_end):
    mu, s2, horizon = 2.0, 0.25, 3.0
    back = integrated(
        lambda t, x: -x - oracles.mixture_score(x, t, mu, s2), x_end, 0.0, t_start=horizon
    )[0]
    assert_allclose(oracles.mixture_probability_flow(x_end, horizon, mu, s2), back, rtol=1e-8)


def test_mixture_probability_flow_printed_number():
    assert_allclose(oracles.mixture_probability_flow(1.0, 3.0, 2.0, 0.25), 2.234885, atol=5e-7)


def test_speciation_time_is_where_the_score_slope_at_zero_changes_sign():
    mu, s2, h = 2.0, 0.25, 1e-5

    def slope(t):
        return float(oracles.mixture_score(h, t, mu, s2)) / h

    assert_allclose(oracles.speciation_time(mu**2, s2), brentq(slope, 0.1, 3.0), rtol=1e-8)


def test_u_turn_probability_is_the_frequency_of_returns():
    """Noise, then redraw the class from the posterior; n = 400,000, four binomial sd."""
    rng = np.random.default_rng(3)
    n, t, mu, s2 = 400_000, 0.9, 1.2, 0.25
    alpha, v = np.exp(-t), oracles.unit_clock_variance(s2, t)
    cls = rng.choice([-1.0, 1.0], n)
    x = alpha * (cls * mu + np.sqrt(s2) * rng.standard_normal(n))
    x += np.sqrt(1 - alpha**2) * rng.standard_normal(n)
    posterior = norm.pdf(x, alpha * mu, np.sqrt(v))
    posterior /= posterior + norm.pdf(x, -alpha * mu, np.sqrt(v))
    again = np.where(rng.random(n) < posterior, 1.0, -1.0)
    phi = oracles.u_turn_probability(t, mu, s2)
    assert abs(np.mean(again == cls) - phi) < 4 * np.sqrt(phi * (1 - phi) / n)


@pytest.mark.parametrize(("t", "mu", "s2"), [(0.1, 2.0, 0.25), (0.9, 1.2, 0.25), (0.2, 4.0, 0.05)])
def test_u_turn_probability_by_adaptive_quadrature(t, mu, s2):
    alpha, v = np.exp(-t), float(oracles.unit_clock_variance(s2, t))
    mean = quad(
        lambda x: norm.pdf(x, alpha * mu, np.sqrt(v)) * np.tanh(alpha * mu * x / v) ** 2,
        alpha * mu - 12 * np.sqrt(v),
        alpha * mu + 12 * np.sqrt(v),
        points=[0.0, alpha * mu],
        epsabs=1e-13,
        limit=500,
    )[0]
    assert_allclose(oracles.u_turn_probability(t, mu, s2), 0.5 * (1 + mean), rtol=1e-11)


def test_u_turn_probability_goes_from_certainty_to_a_coin():
    assert_allclose(oracles.u_turn_probability(1e-6, 5.0, 0.05), 1.0, atol=1e-9)
    assert_allclose(oracles.u_turn_probability(12.0, 2.0, 0.25), 0.5, atol=1e-6)


@pytest.mark.parametrize("g", [0.0, 0.3, 2.0])
def test_additive_coupling_rates_are_the_eigenvalues_of_the_drift(g):
    drift = np.array([[1 + g, -g], [-g, 1 + g]])
    assert_allclose(sorted(oracles.additive_coupling_rates(g)), np.linalg.eigvalsh(drift))


def test_coupled_mode_variance_solves_the_moment_equation():
    rate, s2, t = 1.6, 0.25, 0.8
    var = integrated(lambda _, v: 2 - 2 * rate * v, s2, t)[0]
    assert_allclose(oracles.coupled_mode_variance(t, rate, s2), var, rtol=1e-10)


@pytest.mark.parametrize("rate", [1.0, 1.6, 3.0])
def test_coupled_mode_speciation_time_is_where_the_arms_merge(rate):
    """The curvature of −log p at 0 is (1 − mean²/v)/v."""
    m2, s2 = 4.0, 0.25

    def curvature(t):
        return oracles.coupled_mode_variance(t, rate, s2) - m2 * np.exp(-2 * rate * t)

    root = brentq(curvature, 1e-3, 5.0)
    assert_allclose(oracles.coupled_mode_speciation_time(rate, m2, s2), root, rtol=1e-8)


def test_coupled_mode_at_rate_one_is_the_single_replica():
    assert_allclose(
        oracles.coupled_mode_speciation_time(1.0, 4.0, 0.25), oracles.speciation_time(4.0, 0.25)
    )


# --- spectra (items 8 and 9) ---------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_circle_spectrum_is_that_of_the_dense_kernel(beta):
    angles = 2 * np.pi * np.arange(64) / 64
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    K = np.exp(-beta * ((points[:, None] - points[None]) ** 2).sum(-1))
    dense = np.sort(np.linalg.eigvals(K / K.sum(1, keepdims=True)).real)[::-1]
    expected = oracles.circle_diffusion_spectrum(beta, [0, 1, 1, 2, 2, 3, 3])
    assert_allclose(dense[:7], expected, atol=1e-12)


def test_circle_spectrum_printed_number():
    assert_allclose(oracles.circle_diffusion_spectrum(2.0, 1), 0.86352261, atol=5e-9)


@pytest.mark.parametrize(("n", "q"), [(5, 0.0), (7, 0.13), (6, 0.25)])
def test_magnetic_cycle_spectrum_is_that_of_the_dense_laplacian(n, q):
    H = np.zeros((n, n), complex)
    for i in range(n):
        H[i, (i + 1) % n] += np.exp(2j * np.pi * q)
        H[(i + 1) % n, i] += np.exp(-2j * np.pi * q)
    degree = np.abs(H).sum(1)
    L = np.eye(n) - H / np.sqrt(np.outer(degree, degree))
    assert_allclose(oracles.magnetic_cycle_spectrum(n, q), np.linalg.eigvalsh(L), atol=1e-12)


# --- linear fields and Gaussian laws (items 10, 14, 15, 16) ---------------------------------------


def test_gaussian_entropy_by_quadrature():
    s = 0.6
    total = quad(lambda x: -norm.pdf(x, scale=s) * norm.logpdf(x, scale=s), -8, 8)[0]
    assert_allclose(oracles.gaussian_entropy(s**2), total, rtol=1e-9)
    assert_allclose(oracles.gaussian_entropy(np.eye(3)), 1.5 * np.log(2 * np.pi * np.e))


@pytest.mark.parametrize(("d", "level"), [(1, 0.1), (2, 0.1), (3, 0.1), (10, 0.2)])
def test_kozachenko_leonenko_reaches_the_gaussian_entropy_at_the_printed_level(d, level):
    x = np.random.default_rng(d).standard_normal((2000, d))
    k, n = 3, len(x)
    radius = cKDTree(x).query(x, k + 1)[0][:, k]
    log_ball = 0.5 * d * np.log(np.pi) - gammaln(0.5 * d + 1)
    estimate = digamma(n) - digamma(k) + log_ball + d * np.log(radius).mean()
    assert abs(estimate - oracles.gaussian_entropy(np.eye(d))) < level


@pytest.mark.parametrize("d", [2, 4])
def test_rotational_energy_is_the_distance_to_gradient_fields(d):
    """Least squares over symmetric S in the a⁻¹ norm under N(0, Σ): no Poisson equation is used."""
    rng = np.random.default_rng(d)
    A, Sigma, a = rng.standard_normal((d, d)), random_spd(rng, d), random_spd(rng, d)
    half, noise = np.linalg.cholesky(np.linalg.inv(a)).T, np.linalg.cholesky(Sigma)
    basis = []
    for i in range(d):
        for j in range(i, d):
            E = np.zeros((d, d))
            E[i, j] = E[j, i] = 1
            basis.append((half @ a @ E @ noise).ravel())
    target = (half @ A @ noise).ravel()
    residual = np.linalg.lstsq(np.array(basis).T, target, rcond=None)[1][0]
    assert_allclose(oracles.gaussian_rotational_energy(A, Sigma, a), residual, rtol=1e-9)


def test_hodge_remainder_carries_no_divergence_against_any_polynomial():
    """∫∇f·w dμ = 0 for f = x, y, x², xy, y², x³, …, y⁴: exact Gauss–Hermite in two dimensions."""
    A, Sigma = np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([[1.0, 0.3], [0.3, 2.0]])
    a = np.array([[1.0, 0.2], [0.2, 0.5]])
    W = A - a @ oracles.gaussian_hodge_potential(A, Sigma, a)
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / (2 * np.pi)
    x = z @ np.linalg.cholesky(Sigma).T
    w = x @ W.T
    for i in range(5):
        for j in range(5):
            gradient = np.stack(
                [
                    i * x[:, 0] ** max(i - 1, 0) * x[:, 1] ** j,
                    j * x[:, 0] ** i * x[:, 1] ** max(j - 1, 0),
                ],
                -1,
            )
            assert abs(mass @ (gradient * w).sum(-1)) < 1e-9


def test_rotational_energy_printed_number():
    A, Sigma = [[1, 2], [-1, 0.5]], [[1, 0.3], [0.3, 2]]
    value = oracles.gaussian_rotational_energy(A, Sigma, [[1, 0.2], [0.2, 0.5]])
    assert_allclose(value, 7.693734, atol=5e-7)


def test_gaussian_attention_output_by_quadrature():
    rng = np.random.default_rng(5)
    m, Sigma, A = np.array([0.5, -0.2]), random_spd(rng, 2), rng.standard_normal((2, 2))
    x = np.array([0.4, -0.7])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    keys = m + z @ np.linalg.cholesky(Sigma).T
    mass = np.outer(weights, weights).ravel() * np.exp(keys @ A.T @ x)
    softmax_mean = mass @ keys / mass.sum()
    assert_allclose(oracles.gaussian_attention_output(m, Sigma, A, x), softmax_mean, rtol=1e-8)


def nonreversible_example():
    rng = np.random.default_rng(7)
    U, Q = random_spd(rng, 3), rng.standard_normal((3, 3))
    return U, Q - Q.T


def test_nonreversible_ou_covariance_solves_lyapunov():
    U, Q = nonreversible_example()
    drift = -(np.eye(3) + Q) @ U
    S = solve_continuous_lyapunov(drift, -2 * np.eye(3))
    assert_allclose(oracles.nonreversible_ou_covariance(U), S, atol=1e-10)


def test_nonreversible_ou_entropy_production_is_the_rate_of_path_irreversibility():
    """KL between the law of (x₀, x_h) and of (x_h, x₀), over h, extrapolated to h → 0."""
    U, Q = nonreversible_example()
    S, drift = np.linalg.inv(U), -(np.eye(3) + Q) @ U

    def rate(h):
        E = expm(h * drift)
        joint = np.block([[S, S @ E.T], [E @ S, S]])
        swapped = np.block([[S, E @ S], [S @ E.T, S]])
        return 0.5 * (np.trace(np.linalg.solve(swapped, joint)) - 6) / h

    extrapolated = 2 * rate(5e-5) - rate(1e-4)
    assert_allclose(oracles.nonreversible_ou_entropy_production(Q, U), extrapolated, rtol=1e-4)
    assert oracles.nonreversible_ou_entropy_production(0 * Q, U) == 0


def test_sphere_clustering_rate_is_that_of_the_tokens():
    n, beta = 6, 2.0

    def tokens(_, flat):
        X = flat.reshape(n, n)
        P = np.exp(beta * X @ X.T)
        Y = P @ X / P.sum(1, keepdims=True)
        return (Y - (Y * X).sum(1, keepdims=True) * X).ravel()

    X = integrated(tokens, np.eye(n).ravel(), 1.0).reshape(n, n)
    gamma = integrated(lambda _, y: [oracles.sphere_clustering_rate(y[0], n, beta)], 0.0, 1.0)[0]
    assert_allclose(X[0] @ X[1], gamma, rtol=1e-9)
    assert_allclose(gamma, 0.249395, atol=5e-7)
