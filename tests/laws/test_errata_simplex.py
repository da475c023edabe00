"""Counterexamples to statements of source 000 on the simplex: mobility, locking, entropy, prox.

Each test shows the right value and by how much the source's is off; ``docs/theory/errata.md`` lists
them by number.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, minimize


def mobility(p):
    return np.diag(p) - np.outer(p, p)


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def random_laws(n=200, size=12, seed=0):
    """Probability vectors from nearly uniform to nearly deterministic."""
    rng = np.random.default_rng(seed)
    return [softmax(rng.standard_normal(size) * 10 ** rng.uniform(-1, 1)) for _ in range(n)]


# E01


def test_mobility_has_an_eigenvalue_above_a_quarter():
    spectrum = np.linalg.eigvalsh(mobility(np.array([0.5, 0.25, 0.25])))
    assert_allclose(spectrum, [0.0, 0.25, 0.375], atol=1e-15)
    assert spectrum[-1] - 0.25 > 0.12


def test_mobility_norm_is_at_most_twice_the_largest_bernoulli_variance():
    assert_allclose(np.linalg.eigvalsh(mobility(np.array([0.9, 0.1])))[-1], 0.18)
    for p in random_laws():
        bound = 2 * np.max(p * (1 - p))
        assert np.linalg.eigvalsh(mobility(p))[-1] <= bound + 1e-15
        assert bound <= 0.5


# E02


def test_inverse_temperature_bound_holds_for_the_scaled_mobility_only():
    tau = 4.0
    p = softmax(np.array([1.0, 1.0]) / tau)
    norm = np.linalg.eigvalsh(mobility(p))[-1]
    assert_allclose(norm, 0.5)
    assert norm > 3.9 / (2 * tau)
    assert_allclose(norm / tau, 1 / (2 * tau))


def test_half_variance_step_of_the_sharp_bound_proof_is_false():
    """The proof claims vᵀJv ≤ ½Σp v² for v ⊥ 1; for the uniform law both sides differ by two."""
    p, v = np.full(3, 1 / 3), np.array([1.0, -1.0, 0.0]) / np.sqrt(2)
    assert_allclose(v @ mobility(p) @ v, p @ v**2)
    assert v @ mobility(p) @ v > 1.9 * (0.5 * p @ v**2)


# E03


def largest_first_order_l1(p):
    """max ‖Jv‖₁ over ‖v‖_∞ ≤ 1: a convex function, so over sign vectors."""
    signs = 2.0 * ((np.arange(2 ** len(p))[:, None] >> np.arange(len(p))) & 1) - 1
    return np.abs(signs * p - (signs @ p)[:, None] * p).sum(1).max()


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.4])
def test_first_order_locking_constant_is_four_delta_one_minus_delta(delta):
    p = np.array([1 - delta, *(delta * np.array([0.6, 0.3, 0.1]))])
    right = 4 * delta * (1 - delta)
    assert_allclose(largest_first_order_l1(p), right, rtol=1e-12)
    assert right > 1.19 * min(1, 2 * delta)


def test_first_order_locking_constant_at_a_tenth():
    assert_allclose(largest_first_order_l1(np.array([0.9, 0.1])), 0.36)


# E04


def exact_locking_bound(delta, osc):
    if delta > 1 / (1 + np.exp(osc / 2)):
        return np.tanh(osc / 4)
    odds = delta / (1 - delta) * np.exp(osc)
    return odds / (1 + odds) - delta


def test_a_locked_row_can_move_almost_all_its_mass():
    delta, osc = 0.01, 8.0
    p = np.array([1 - delta, delta])
    q = softmax(np.log(p) + np.array([0.0, osc]))
    assert_allclose(total_variation(p, q), 0.957857, atol=5e-7)
    assert_allclose(exact_locking_bound(delta, osc), total_variation(p, q), rtol=1e-12)
    source_l1 = min(1, 2 * delta) * osc / 2
    assert_allclose([2 * total_variation(p, q), source_l1], [1.92, 0.08], atol=5e-3)


def test_exact_locking_bound_holds_for_every_step_size():
    rng = np.random.default_rng(1)
    for p in random_laws(400, size=6, seed=2):
        step = rng.standard_normal(6) * 10 ** rng.uniform(-2, 1.2)
        bound = exact_locking_bound(1 - p.max(), np.ptp(step))
        assert total_variation(p, softmax(np.log(p) + step)) <= bound + 1e-12


# E05


def test_entropy_can_rise_under_the_mobility_flow():
    p = softmax(np.array([1.0, 0.0, -1.0]))
    b = -np.log(p)
    covariance = p @ (b * np.log(p)) - (p @ b) * (p @ np.log(p))

    def entropy_after(t):
        q = p * np.exp(t * b)
        q = q / q.sum()
        return -q @ np.log(q)

    measured = (entropy_after(1e-5) - entropy_after(-1e-5)) / 2e-5
    assert_allclose(-covariance, measured, rtol=1e-8)
    assert_allclose(measured, 0.424405, atol=5e-7)


def test_equation_14_gives_half_the_entropy_rate():
    p = softmax(np.array([1.0, 0.0, -1.0]))
    b, log_p = -np.log(p), np.log(p)
    J = mobility(p)
    right = -np.sum(J * b[None, :] * log_p[:, None])
    equation_14 = -0.5 * np.sum(J * b[None, :] * (log_p[:, None] - log_p[None, :]))
    assert_allclose(equation_14, 0.5 * right, rtol=1e-12)
    assert right - equation_14 > 0.2


# E06


def scaled_mobility_norm(gap, tau):
    return np.linalg.eigvalsh(mobility(softmax(np.array([gap, 0.0]) / tau)))[-1] / tau


@pytest.mark.parametrize("gap", [0.5, 2.0, 7.0])
def test_mobility_is_unimodal_in_temperature(gap):
    taus = gap * np.geomspace(0.1, 20, 400)
    norms = np.array([scaled_mobility_norm(gap, tau) for tau in taus])
    assert_allclose(norms, 1 / (2 * taus * np.cosh(gap / (2 * taus)) ** 2), rtol=1e-10)
    peak = int(norms.argmax())
    assert np.all(np.diff(norms[: peak + 1]) > 0)
    assert np.all(np.diff(norms[peak:]) < 0)


def test_mobility_peaks_at_0_64792_of_the_logit_gap():
    gap = 2.0
    x = brentq(lambda y: 2 * y * np.tanh(y) - 1, 0.1, 2)
    assert_allclose(1 / (2 * x), 0.64792, atol=5e-6)
    best = scaled_mobility_norm(gap, gap / (2 * x))
    assert best > 1.5 * scaled_mobility_norm(gap, 0.25 * gap)
    assert best > 1.5 * scaled_mobility_norm(gap, 3.0 * gap)


# E07


def test_curvature_gap_is_not_monotone_in_temperature():
    """Two points at distance 1, logit gaps 1 and 3 of the two queries towards the second key."""

    def gap(tau):
        return abs(1 / (1 + np.exp(-3 / tau)) - 1 / (1 + np.exp(-1 / tau)))

    cold, middle, hot = gap(0.1), gap(1.0), gap(10.0)
    assert_allclose([cold, middle, hot], [0.0000454, 0.2215155, 0.0494633], atol=5e-8)
    assert middle > 1000 * cold, "raising the temperature raised 1 − κ"
    assert middle > 4 * hot, "raising the temperature lowered 1 − κ"


# E08


def test_kl_prox_is_not_the_jko_step():
    """Two points at distance 1, u uniform, c = (0, 1), τ = 0.4: the W₂ prox does not move."""
    tau, c, u = 0.4, np.array([0.0, 1.0]), np.array([0.5, 0.5])
    grid = np.linspace(0, 1, 100_001)
    jko = grid[np.argmin(grid * c[1] + np.abs(grid - u[1]) / (2 * tau))]
    kl_prox = u * np.exp(-c / tau)
    kl_prox /= kl_prox.sum()
    assert_allclose(jko, 0.5)
    assert_allclose(kl_prox[1], 0.0758582, atol=5e-8)
    assert jko - kl_prox[1] > 0.42


def test_kl_prox_is_a_replicator_step():
    """The prox of step s/τ is the time-s solution of ṗ = J(p)(−c)/τ, whatever the ground metric."""
    p0, c, tau = np.array([0.2, 0.5, 0.3]), np.array([0.4, -1.0, 2.0]), 0.7
    flow = solve_ivp(
        lambda _, p: p * (-c / tau + p @ c / tau), (0, 1), p0, rtol=1e-12, atol=1e-14
    ).y[:, -1]
    prox = p0 * np.exp(-c / tau)
    assert_allclose(prox / prox.sum(), flow, rtol=1e-9)


# E09


def test_prox_keeps_its_prior_and_equals_attention_for_a_uniform_one_only():
    z, tau, u = np.array([1.0, 0.0, -1.0]), 0.8, np.array([0.1, 0.2, 0.7])

    def solved(prior):
        def objective(free):
            p = softmax(np.append(free, 0.0))
            return -z @ p + tau * p @ np.log(p / prior)

        out = minimize(objective, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
        return softmax(np.append(out.x, 0.0)), out.fun

    attention = softmax(z / tau)
    uniform, _ = solved(np.full(3, 1 / 3))
    assert_allclose(uniform, attention, atol=1e-6)
    tilted, value = solved(u)
    assert_allclose(tilted, u * np.exp(z / tau) / (u @ np.exp(z / tau)), atol=1e-6)
    assert total_variation(tilted, attention) > 0.26
    assert_allclose(value, -tau * np.log(u @ np.exp(z / tau)), rtol=1e-8)


# E10


def test_smallest_eigenvalue_of_the_mobility_is_zero():
    for p in random_laws(50):
        assert_allclose(mobility(p) @ np.ones(len(p)), 0.0, atol=1e-15)


def test_rock_paper_scissors_never_converges():
    """b = Ap with A antisymmetric: Π p_i is conserved and the orbit comes back to its start."""
    A = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    p0 = np.array([0.6, 0.2, 0.2])

    def section(_, p):
        return p[1] - p[2]

    section.direction = 1.0
    out = solve_ivp(
        lambda _, p: p * (A @ p - p @ A @ p),
        (0, 60),
        p0,
        method="DOP853",
        events=section,
        rtol=1e-12,
        atol=1e-14,
    )
    assert_allclose(out.y.prod(axis=0), p0.prod(), rtol=1e-9)
    returns = out.y_events[0][out.t_events[0] > 1]
    assert len(returns) >= 2
    assert_allclose(returns, np.broadcast_to(p0, returns.shape), atol=1e-8)
    distance = np.linalg.norm(out.y - 1 / 3, axis=0)
    assert distance.min() > 0.2


# E12


def frobenius_squared_from_moments(p):
    second, third = (p**2).sum(dtype=p.dtype), (p**3).sum(dtype=p.dtype)
    return second + second * second - p.dtype.type(2) * third


def frobenius_squared_from_tail(p):
    first, tail = p[0], p[1:]
    t1, t2, t4 = (np.sum(tail**k, dtype=p.dtype) for k in (1, 2, 4))
    spread = np.sum(tail**2 * (1 - tail) ** 2, dtype=p.dtype)
    return first**2 * t1**2 + spread + 2 * first**2 * t2 + t2**2 - t4


@pytest.mark.parametrize("delta", [1e-4, 1e-5, 1e-6])
def test_moment_form_of_the_frobenius_norm_cancels_in_float32(delta):
    p = np.full(1000, delta / 999)
    p[0] = 1 - delta
    exact = np.sum(mobility(p) ** 2)
    single = p.astype(np.float32)
    assert_allclose(frobenius_squared_from_tail(single), exact, rtol=1e-4)
    assert abs(frobenius_squared_from_moments(single) - exact) > 0.5 * exact


def test_tail_form_of_the_frobenius_norm_is_an_identity():
    for p in random_laws(50):
        p = np.sort(p)[::-1]
        exact = np.sum(mobility(p) ** 2)
        assert_allclose(frobenius_squared_from_tail(p), exact, rtol=1e-12, atol=1e-16)
        assert_allclose(frobenius_squared_from_moments(p), exact, rtol=1e-12, atol=1e-15)


# E13


def test_small_mobility_does_not_mean_a_committed_row():
    """The uniform law over GPT-2's vocabulary passes 000's low-latency early-exit threshold."""
    p = np.full(50_257, 1 / 50_257)
    norm = np.sqrt(frobenius_squared_from_moments(p))
    assert_allclose(norm, 0.0044606, atol=5e-8)
    assert norm < 1e-2


# E14


def test_adding_a_constant_to_the_logits_changes_the_raw_norms_and_not_the_law():
    z = np.array([1.0, 0.0, -1.0])
    path = np.array([z + shift for shift in (0.0, 3.0, -2.0, 5.0)])
    laws = np.array([softmax(row) for row in path])
    assert_allclose(laws, np.broadcast_to(laws[0], laws.shape), atol=1e-15)
    steps = np.diff(path, axis=0)
    assert (steps**2).sum() > 200
    assert np.abs(steps).max() > 6
    centred = steps - steps.mean(axis=1, keepdims=True)
    assert_allclose(centred, 0.0, atol=1e-15)
    assert_allclose(np.ptp(steps, axis=1), 0.0, atol=1e-15)
