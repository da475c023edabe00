"""Counterexamples to statements of source 000 on depth paths: variation, detector, gate, drift.

``docs/theory/errata.md`` lists them by number.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.optimize import linprog


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum(axis=-1)


# E15


def test_vanishing_squared_steps_allow_unbounded_variation():
    """A zigzag of step L^{−3/4}: Σ‖Δz‖² = L^{−½} → 0 while Σ‖Δz‖ = L^{¼} → ∞."""
    for layers, squares, variation in [(16, 0.25, 2.0), (10_000, 0.01, 10.0)]:
        steps = (-1.0) ** np.arange(layers) * layers**-0.75
        assert_allclose((steps**2).sum(), squares)
        assert_allclose(np.abs(steps).sum(), variation)


# E16


@pytest.mark.parametrize("layers", [10, 100, 1000])
def test_bounded_variation_allows_a_jump_in_the_limit(layers):
    """All motion in one layer: variation 1 and ∫|D_L| = 1 for every L, yet no common modulus."""
    z = (np.arange(layers + 1) > layers // 2).astype(float)
    derivative = np.diff(z) * layers
    assert_allclose(np.abs(np.diff(z)).sum(), 1.0)
    assert_allclose(np.abs(derivative).mean(), 1.0)
    assert derivative.max() == layers
    assert np.abs(np.diff(z)).max() == 1.0, "a move of 1 over a time of 1/L"


# E18, E19, E20: the online detector as published (Algorithm 1)


def published_detector(norms, window, base):
    """Yield (S_local, |B|, τ_adaptive) at each layer, exactly as Algorithm 1 reads."""
    running, buffer, out = 0.0, [], []
    for value in norms:
        running += value**2
        buffer.append(value)
        if len(buffer) > window:
            running -= buffer.pop(0) ** 2
        with np.errstate(invalid="ignore"):
            ratio = np.std(buffer) / np.mean(buffer)
        out.append((running, len(buffer), base * (1 + 0.1 * ratio)))
    return out


def test_published_detector_divides_by_zero_on_a_quiet_window():
    *_, (running, _, threshold) = published_detector([0.0] * 6, window=4, base=1.0)
    assert running == 0.0
    assert np.isnan(threshold)


def test_published_detector_lets_a_spike_raise_its_own_threshold():
    """Window 10, background 0.1, one spike whose window mean is 1.2 times the base threshold."""
    spike = np.sqrt(12 - 9 * 0.01)
    norms = [0.1] * 20 + [spike]
    running, size, threshold = published_detector(norms, window=10, base=1.0)[-1]
    assert_allclose(running / size, 1.2)
    assert threshold > 1.22
    assert running / size < threshold, "not flagged"
    _, _, quiet = published_detector(norms, window=10, base=1.0)[-2]
    assert_allclose(quiet, 1.0)
    assert running / size > 1.19 * quiet, "flagged against the history before it"


def test_published_detector_drifts_by_running_subtraction():
    """Once a step of 1e9 has left the window the running sum stays at 0; the true one is 4e-6."""
    norms = [1e-3] * 4 + [1e9] + [1e-3] * 8
    sums = [running for running, _, _ in published_detector(norms, window=4, base=1.0)]
    true = sum(v**2 for v in norms[-4:])
    assert_allclose(true, 4e-6)
    assert sums[-1] == 0.0


# E22


def test_mass_residual_of_1e_14_is_out_of_reach_in_float32():
    logits = 3 * torch.randn(64, 50_257, generator=torch.Generator().manual_seed(0))
    single = torch.softmax(logits, -1).double().sum(-1)
    double = torch.softmax(logits.double(), -1).sum(-1)
    assert (single - 1).abs().max() > 1e-10
    vocabulary_eps = np.sqrt(50_257) * np.finfo(np.float64).eps
    assert (double - 1).abs().max() < vocabulary_eps


# E23


def test_one_minus_the_largest_probability_is_off_by_percents_in_float32():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 50_257, generator=generator)
    logits[:, 0] = 25.0
    true = torch.softmax(logits.double(), -1)[:, 1:].sum(-1)
    single = torch.softmax(logits, -1)
    complement = (1 - single[:, 0]).double()
    tail_sum = single[:, 1:].double().sum(-1)
    assert ((tail_sum / true - 1).abs() < 1e-4).all()
    assert 0.02 < (complement / true - 1).abs().max() < 0.5


# E24


def test_an_initial_error_is_not_damped_by_e_to_the_gamma_minus_one():
    """ṗ = b p(1−p), Lipschitz constant b = 0.1 = Γ, no discretisation: Ξ_L = 0."""
    gamma, start, shift = 0.1, 0.5, 1e-3

    def path(p0):
        return solve_ivp(
            lambda _, p: gamma * p * (1 - p),
            (0, 1),
            [p0],
            rtol=1e-12,
            atol=1e-14,
            t_eval=np.linspace(0, 1, 11),
        ).y[0]

    worst = np.abs(path(start + shift) - path(start)).max()
    assert worst > 9 * (np.exp(gamma) - 1) * shift, "the source's bound"
    assert worst <= np.exp(gamma) * shift, "Grönwall"


# E25


def synthetic_depth_path(tokens=40, layers=12, vocabulary=300, seed=0):
    """Logits that move a little at each layer, with a slowly decaying spectrum."""
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, vocabulary + 1) ** -0.5
    basis = np.linalg.qr(rng.standard_normal((vocabulary, vocabulary)))[0]
    steps = rng.standard_normal((layers, tokens, vocabulary))
    steps[0] *= 12
    return 4 * np.cumsum(steps, axis=0) * spectrum @ basis


def test_decoding_principal_coordinates_alone_loses_more_than_a_layer_moves():
    z = synthetic_depth_path()
    z = z - z.mean(axis=-1, keepdims=True)
    flat = z.reshape(-1, z.shape[-1])
    mean = flat.mean(0)
    B = np.linalg.svd(flat - mean, full_matrices=False)[2][:16]
    y = (z - mean) @ B.T
    truncated = total_variation(softmax(z), softmax(mean + y @ B)).mean()
    moved = total_variation(softmax(z[1:]), softmax(z[:-1])).mean()
    assert_allclose([truncated, moved], [0.64, 0.10], atol=0.01)
    assert truncated > moved + 0.5
    carried = z[:-1] + (y[:-1] - y[:-1]) @ B
    assert_allclose(softmax(carried), softmax(z[:-1]), atol=1e-15)


# E26


def test_drift_budget_over_a_vocabulary_is_vacuous():
    assert np.tanh(9 / 4) > 0.978
    assert np.tanh(30 / 4) > 0.999999


def restricted_budget(z, step, eta):
    """tanh(osc_S/4) + η, S the shortest prefix by max(p, q) with 1 − η of both; and the TV."""
    p, q = softmax(z), softmax(z + step)
    order = np.argsort(-np.maximum(p, q))
    size = 1 + np.argmax((p[order].cumsum() >= 1 - eta) & (q[order].cumsum() >= 1 - eta))
    return np.tanh(np.ptp(step[order[:size]]) / 4) + eta, total_variation(p, q)


def test_mass_restricted_budget_holds():
    rng = np.random.default_rng(3)
    for _ in range(200):
        z, step = rng.standard_normal(200) * 4, rng.standard_normal(200)
        bound, moved = restricted_budget(z, step, 0.01)
        assert moved <= bound


def test_mass_restricted_budget_is_tight_and_ignores_the_far_tail():
    """Two outcomes with odds e^{∓1} hold all but 1e-4; a tail token moves by 8, the pair by 2."""
    z, step = np.array([1.0, 0.0, -9.0]), np.array([0.0, 2.0, -6.0])
    bound, moved = restricted_budget(z, step, 0.01)
    assert 0 < bound - moved < 0.0101
    assert np.tanh(np.ptp(step) / 4) > moved + 0.5


# E27


def transport_cost(p, q, distance):
    """Exact W₁ by linear programming; None when no coupling exists."""
    n = len(p)
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    out = linprog(distance.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    return out.fun if out.success else None


def test_restricted_rows_have_no_coupling_until_renormalised():
    P, Q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.0, 0.1, 0.3, 0.6])
    common = (P > 0) & (Q > 0)
    distance = np.array([[0.0, 1.0], [1.0, 0.0]])
    p, q = P[common], Q[common]
    assert_allclose([p.sum(), q.sum()], [0.5, 0.4])
    assert transport_cost(p, q, distance) is None
    assert_allclose(transport_cost(p / p.sum(), q / q.sum(), distance), 0.35, rtol=1e-9)


# E28


def test_curvature_with_two_metrics_has_an_arbitrary_sign():
    p, q = np.array([0.6, 0.4]), np.array([0.25, 0.75])
    d_query, d_key = 1.0, np.array([[0.0, 1.0], [1.0, 0.0]])
    curvatures = [1 - transport_cost(p, q, unit * d_key) / d_query for unit in (1.0, 3.0)]
    assert_allclose(curvatures, [0.65, -0.05], atol=1e-9)


# E29


def test_following_one_head_through_the_layers_depends_on_the_order_of_heads():
    """Relabelling the heads of a layer leaves its output alone and changes the "path" of head 0."""
    rng = np.random.default_rng(5)
    rows = softmax(rng.standard_normal((2, 2, 6)))
    values, outputs = rng.standard_normal((2, 6, 3)), rng.standard_normal((2, 3, 4))

    def written(order):
        return sum(rows[1, h] @ values[h] @ outputs[h] for h in order)

    assert_allclose(written([0, 1]), written([1, 0]), atol=1e-14)
    steps = [total_variation(rows[0, 0], rows[1, h]) for h in (0, 1)]
    assert_allclose(steps, [0.63, 0.28], atol=0.005)
