"""Counterexamples to statements of sources 000 and 003 on transport, bridges and barycenters.

Cost ``½|x − y|² + ε KL`` throughout; ``docs/theory/errata.md`` lists the statements by number.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize_scalar


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def scaled(K, columns, sweeps):
    """Alternate column and row normalisation; rows sum to one at the end."""
    P = K.copy()
    for _ in range(sweeps):
        P = P * (columns / P.sum(0))
        P = P / P.sum(1, keepdims=True)
    return P


# E30


def sweep_error(K, a, sweeps):
    for _ in range(sweeps):
        b = 1 / (K.T @ a)
        a = 1 / (K @ b)
    return np.ptp(np.log(a))


def test_sinkhorn_rate_of_two_points_is_tanh_squared_of_half_the_cost():
    K = np.exp(-np.array([[0.0, 1.0], [1.0, 0.0]]))
    start = np.array([1.0, 1.0 + 1e-4])
    rate = sweep_error(K, start, 4) / sweep_error(K, start, 3)
    assert_allclose(rate, np.tanh(0.5) ** 2, rtol=1e-4)
    assert_allclose(np.tanh(0.5) ** 2, 0.21355, atol=5e-6)
    source = (1 - np.exp(-2)) / (1 + np.exp(-2))
    assert_allclose(source, 0.76159, atol=5e-6)
    assert source > 3.5 * rate


def test_sinkhorn_contracts_by_the_birkhoff_constant_of_the_kernel():
    """tanh²(Δ/4), Δ the Hilbert diameter; with cost 10 and ε = 1 the source promises too much."""
    C = np.array([[0.0, 10.0], [10.0, 0.0]])
    K = np.exp(-C)
    diameter = np.log(K[0, 0] * K[1, 1] / (K[0, 1] * K[1, 0]))
    rate = sweep_error(K, np.array([1.0, 1.1]), 2) / sweep_error(K, np.array([1.0, 1.1]), 1)
    assert rate <= np.tanh(diameter / 4) ** 2 + 1e-9
    assert rate > 0.999, "the source's 0.76159 ignores the size of the cost"


# E31


def gaussian_kernel(x, y, eps):
    return np.exp(-((x[:, None] - y[None, :]) ** 2) / (2 * eps))


def test_condition_number_grows_with_regularisation():
    x = np.linspace(0, 1, 6)
    conditions = [np.linalg.cond(gaussian_kernel(x, x, eps)) for eps in (0.01, 0.1, 1.0, 10.0)]
    assert_allclose(conditions[:3], [1.6446, 1140.7, 1.1412e8], rtol=1e-4)
    assert np.all(np.diff(np.log10(conditions)) > 2)


def test_raising_epsilon_until_the_kernel_is_well_conditioned_never_ends():
    x, eps = np.linspace(0, 1, 30), 0.1
    for _ in range(40):
        assert np.linalg.cond(gaussian_kernel(x, x, eps)) > 1e10
        eps *= 1.5
    assert eps > 1e6


# E32


def test_published_dual_gap_does_not_vanish_at_the_solution():
    K = np.exp(-np.array([[0.0, 1.0], [1.0, 0.0]]))
    mu = np.array([0.5, 0.5])
    a = b = np.full(2, np.sqrt(0.5 / K[0].sum()))
    assert_allclose(a[:, None] * K * b, 0.5 * K / K[0].sum())
    published = a @ K @ b - mu @ np.log(a) - mu @ np.log(b)
    assert_allclose(published, 2.006409, atol=5e-7)
    cost = -np.log(K)
    plan = a[:, None] * K * b
    primal = np.sum(plan * cost) + np.sum(plan * np.log(plan))
    dual = mu @ np.log(a) + mu @ np.log(b)
    assert_allclose(primal - dual, 0.0, atol=1e-14)


# E33


def test_nystrom_kernel_can_be_negative():
    points, landmarks = np.array([-0.5, 0.0, 0.5, 1.0]), np.array([0.0, 0.5])
    cross = gaussian_kernel(points, landmarks, 0.5)
    approximate = cross @ np.linalg.inv(gaussian_kernel(landmarks, landmarks, 0.5)) @ cross.T
    assert gaussian_kernel(points, points, 0.5).min() > 0
    assert_allclose(approximate.min(), -0.012088, atol=5e-7)


# E34


def test_lower_triangular_doubly_stochastic_matrices_are_the_identity():
    """The largest off-diagonal mass over all of them, by linear programming, is zero."""
    n = 6
    allowed = np.tril(np.ones((n, n))).ravel()
    constraints = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    off_diagonal = 1 - np.eye(n).ravel()
    out = linprog(
        -off_diagonal,
        A_eq=constraints,
        b_eq=np.ones(2 * n),
        bounds=np.stack([0 * allowed, allowed], axis=1),
    )
    assert out.success
    assert abs(out.fun) < 1e-9


def causal_kernel(n=8, seed=0):
    return np.tril(np.exp(np.random.default_rng(seed).standard_normal((n, n))))


def test_causal_sinkhorn_drifts_to_the_identity():
    K = causal_kernel()
    diagonals = [np.diag(scaled(K, np.ones(8), sweeps)).mean() for sweeps in (5, 50, 500, 5000)]
    assert_allclose(diagonals, [0.5756, 0.9159, 0.9900, 0.9990], atol=5e-5)
    attention = np.diag(K / K.sum(1, keepdims=True)).mean()
    assert attention < 0.45


def test_causal_sinkhorn_converges_like_one_over_the_number_of_sweeps():
    K = causal_kernel()
    gaps = [1 - np.diag(scaled(K, np.ones(8), sweeps)).mean() for sweeps in (500, 5000)]
    assert_allclose(gaps[0] / gaps[1], 10, rtol=0.1)


def test_strictly_front_loaded_columns_give_a_causal_coupling_at_a_linear_rate():
    K, columns = causal_kernel(), np.linspace(1.6, 0.4, 8)
    assert np.all(np.cumsum(columns)[:-1] > np.arange(1, 8))
    errors = [np.abs(scaled(K, columns, k).sum(0) - columns).max() for k in (40, 80)]
    assert errors[0] < 1e-3
    assert errors[1] < 1e-6
    assert np.diag(scaled(K, columns, 80)).mean() < 0.7


def test_columns_on_the_edge_of_feasibility_force_a_zero_block():
    """Σ_{j≤2} c_j = 2: rows 3 and 4 may put nothing on columns 1 and 2; 1/k convergence."""
    K, columns = causal_kernel(4), np.array([1.5, 0.5, 1.5, 0.5])
    blocks = [scaled(K, columns, k)[2:, :2].sum() for k in (1000, 10_000)]
    assert blocks[1] < 1e-3
    assert_allclose(blocks[0] / blocks[1], 10, rtol=0.1)


# E35


def test_a_mask_multiplied_before_the_exponential_leaks():
    logits, mask = np.array([1.0, 3.0]), np.array([1.0, 0.0])
    right = softmax(np.where(mask > 0, logits, -np.inf))
    product = softmax(logits * mask)
    assert_allclose(right, [1.0, 0.0])
    assert_allclose(product[1], 0.268941, atol=5e-7)


# E36


def gaussian_cost(s2, a2, eps):
    """Entropic cost between centred Gaussians of variances s2 and a2, KL against the product."""
    c = np.sqrt(s2 * a2 + eps**2 / 4) - eps / 2
    kl = -0.5 * np.log1p(-(c**2) / (s2 * a2))
    return 0.5 * (s2 + a2) - c + eps * kl


def lebesgue_cost(s2, a2, eps):
    """The same with KL against Lebesgue: minus ε times both entropies."""
    entropies = 0.5 * np.log(2 * np.pi * np.e * s2) + 0.5 * np.log(2 * np.pi * np.e * a2)
    return gaussian_cost(s2, a2, eps) - eps * entropies


def debiased_cost(s2, a2, eps):
    self_costs = gaussian_cost(s2, s2, eps) + gaussian_cost(a2, a2, eps)
    return gaussian_cost(s2, a2, eps) - 0.5 * self_costs


@pytest.mark.parametrize(
    ("cost", "expected"), [(gaussian_cost, 0.7), (lebesgue_cost, 1.3), (debiased_cost, 1.0)]
)
def test_entropic_barycenter_of_one_law_is_biased_unless_debiased(cost, expected):
    """Input variance a = 1, ε = 0.3: product reference a − ε, Lebesgue a + ε, debiased a."""
    found = minimize_scalar(
        lambda s2: cost(s2, 1.0, 0.3), bounds=(0.05, 5), method="bounded", options={"xatol": 1e-10}
    )
    assert_allclose(found.x, expected, atol=1e-5)


# E37


def test_descending_the_squared_distance_converges_and_the_distance_itself_does_not():
    """N(m, 1) against N(0, 1): W₂ = |m|, ∇W₂ = sign m, −∇½W₂² = −m = T(x) − x."""
    step, squared, plain = 0.1, 0.05, 0.05
    for _ in range(200):
        squared += step * (-squared)
        plain += step * (-np.sign(plain))
    assert abs(squared) < 1e-10
    assert_allclose(abs(plain), 0.05, atol=1e-12)


def test_the_published_drift_points_away_from_the_barycenter():
    m = 0.5
    for _ in range(10):
        m += 0.1 * np.sign(m)
    assert_allclose(m, 1.5)


# E38


def test_geometric_mixture_is_not_the_bridge():
    """N(∓a, 1), ε = 2, t = ½. The minimiser of ½KL(ρ|μ₀) + ½KL(ρ|μ₁) is ∝ √(μ₀μ₁) = N(0, 1)."""
    eps, a = 2.0, 1.5
    c = np.sqrt(1 + eps**2 / 4) - eps / 2
    bridge = 0.25 + 0.25 + 0.25 * (2 * c + eps)
    x = np.linspace(-12, 12, 4001)
    density = np.exp(-0.25 * (x + a) ** 2 - 0.25 * (x - a) ** 2)
    density /= density.sum()
    geometric = density @ x**2
    assert_allclose(bridge, 1.207107, atol=5e-7)
    assert_allclose(geometric, 1.0, rtol=1e-10)
    assert bridge - geometric > 0.2


# E39: the stationary bridge N(0, 1) → N(0, 1), reference √2 dB, in closed form

EPS = 2.0
K_START = np.sqrt(1 + EPS**2 / 4) - EPS / 2 - 1


def drift_slope(t):
    return K_START / (1 + K_START * t)


def log_potential(x, t):
    """φ with drift ε∂ₓφ = k(t)x; the x-free part follows from the HJB equation, f' = −k/2."""
    return drift_slope(t) * x**2 / (2 * EPS) - 0.5 * np.log1p(K_START * t)


def bridge_density(x, t):
    c = np.sqrt(1 + EPS**2 / 4) - EPS / 2
    var = (1 - t) ** 2 + t**2 + t * (1 - t) * (2 * c + EPS)
    return np.exp(-(x**2) / (2 * var)) / np.sqrt(2 * np.pi * var)


def derivatives(f, x, t, h=1e-4):
    """∂_t f, ∂_x f, ∂_xx f by central differences."""
    f_t = (f(x, t + h) - f(x, t - h)) / (2 * h)
    f_x = (f(x + h, t) - f(x - h, t)) / (2 * h)
    return f_t, f_x, (f(x + h, t) - 2 * f(x, t) + f(x - h, t)) / h**2


def test_log_potential_of_a_bridge_solves_hjb_and_not_equation_8():
    x, t = 1.0, 0.3
    f_t, f_x, f_xx = derivatives(log_potential, x, t)
    hjb = f_t + 0.5 * EPS * f_x**2 + 0.5 * EPS * f_xx
    equation_8 = f_t + 0.5 * EPS * f_xx
    assert abs(hjb) < 1e-6
    assert_allclose(equation_8, -(drift_slope(t) ** 2) * x**2 / (2 * EPS), atol=1e-6)
    assert equation_8 < -0.12


def test_exponential_of_the_log_potential_solves_equation_8():
    f_t, _, f_xx = derivatives(lambda x, t: np.exp(log_potential(x, t)), 1.0, 0.3)
    assert abs(f_t + 0.5 * EPS * f_xx) < 1e-6


def test_bridge_density_is_the_product_of_the_two_potentials_without_the_reference_law():
    """ĥ = μ_t/h solves the forward equation 9, so μ_t = h ĥ; the ν_t of equation 10 is too much."""

    def other(x, t):
        return bridge_density(x, t) / np.exp(log_potential(x, t))

    f_t, _, f_xx = derivatives(other, 0.7, 0.4)
    assert abs(f_t - 0.5 * EPS * f_xx) < 1e-6


# E89


def causal_logits(n=6, seed=0):
    z = np.random.default_rng(seed).normal(size=(n, n))
    return np.where(np.tril(np.ones((n, n))) > 0, z, -np.inf)


def test_column_scaling_lets_the_last_query_move_the_first_rows():
    z = causal_logits()
    other = z.copy()
    other[-1, 0] += 3.0  # only what the last query looks for
    columns = np.linspace(1.6, 0.4, 6)
    before, after = (scaled(np.exp(x), columns, 200) for x in (z, other))
    assert np.abs(softmax(other) - softmax(z))[:-1].max() == 0
    moved = 0.5 * np.abs(after - before)[:-1].sum(-1)
    assert moved[0] == 0  # one key only
    assert moved[1:].min() > 0.01
    assert_allclose(moved[1], 0.040592, atol=1e-6)


# E90


def test_a_large_finite_key_mask_is_undone_by_column_scaling():
    z = np.random.default_rng(1).normal(size=(5, 5))
    padded = z.copy()
    padded[:, -1] -= 1e2
    assert softmax(padded)[:, -1].max() < 1e-40
    revived = scaled(np.exp(padded), np.ones(5), 200)
    assert_allclose(revived, scaled(np.exp(z), np.ones(5), 200), atol=1e-12)
    assert_allclose(revived[:, -1].sum(), 1.0)
