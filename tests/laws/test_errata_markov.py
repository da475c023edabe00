"""Counterexamples to statements of source 002, and the identities of the definition we use instead.

``W_ij = q_i·k_j``, ``d→_ij = W_ii − W_ij``, ``d← = (d→)ᵀ``, ``D = d→ + d←``. The statements are
listed by number in ``docs/theory/errata.md``.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.markov import (
    Bidivergence,
    damped_kernel,
    dialled_logits,
    quasi_stationary,
    sinkhorn_kernel,
    spectral_gap,
    stationary_distribution,
)
from flowscope.markov import entropy_production as production


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sinkhorn(z, sweeps=3000):
    P = np.exp(z - z.max())
    for _ in range(sweeps):
        P = P / P.sum(0, keepdims=True)
        P = P / P.sum(1, keepdims=True)
    return P


def head(n=5, d=3, seed=0):
    """Queries, keys and raw scores of a small random head."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    return q, k, q @ k.T


def forward_divergence(W):
    return np.diag(W)[:, None] - W


def stationary_law(P):
    w, V = np.linalg.eig(P.T)
    v = V[:, np.argmax(w.real)].real
    return v / v.sum()


def entropy_production(P):
    flow = stationary_law(P)[:, None] * P
    return 0.5 * np.sum((flow - flow.T) * np.log(flow / flow.T))


BETA = 0.7


# E53


def test_the_two_sinkhorn_operators_are_transposes():
    _, _, W = head()
    forward = sinkhorn(-BETA * forward_divergence(W))
    backward = sinkhorn(-BETA * forward_divergence(W).T)
    assert_allclose(backward, forward.T, atol=1e-10)
    assert_allclose(forward, sinkhorn(BETA * W), atol=1e-10)
    assert np.abs(forward - forward.T).max() > 0.1, "and not equal"


def test_products_of_bistochastic_kernels_are_bistochastic():
    product = sinkhorn(head(seed=1)[2]) @ sinkhorn(head(seed=2)[2])
    assert_allclose(product.sum(0), 1.0, atol=1e-12)
    assert_allclose(product.sum(1), 1.0, atol=1e-12)


# E54


def test_the_symmetrised_bidivergence_can_be_negative():
    """W = RBRᵀ with B = diag(1, −1), r = (0, 0) and (0, 1): D = −1."""
    R, B = np.array([[0.0, 0.0], [0.0, 1.0]]), np.diag([1.0, -1.0])
    d = forward_divergence(R @ B @ R.T)
    assert_allclose((d + d.T)[0, 1], -1.0)


def test_the_symmetrised_bidivergence_is_a_quadratic_form_of_the_symmetric_part():
    rng = np.random.default_rng(3)
    R, B = rng.standard_normal((6, 4)), rng.standard_normal((4, 4))
    d = forward_divergence(R @ B @ R.T)
    gaps = R[:, None] - R[None]
    form = np.einsum("ijk,kl,ijl->ij", gaps, 0.5 * (B + B.T), gaps)
    assert_allclose(d + d.T, form, atol=1e-12)


# E55


def test_squared_distance_of_query_and_key_does_not_give_attention():
    """q = 1, keys 1 and 3: attention prefers the second key, the squared distance the first."""
    q, k = 1.0, np.array([1.0, 3.0])
    attention, distance = softmax(q * k), softmax(-0.5 * (q - k) ** 2)
    assert_allclose(attention, [0.119203, 0.880797], atol=5e-7)
    assert_allclose(distance, [0.880797, 0.119203], atol=5e-7)


def test_forward_divergence_gives_attention():
    _, _, W = head()
    assert_allclose(softmax(-BETA * forward_divergence(W)), softmax(BETA * W), atol=1e-14)


def test_diffusion_map_is_the_product_of_the_two_experts():
    _, _, W = head()
    d = forward_divergence(W)
    product = softmax(-BETA * d) * softmax(-BETA * d.T)
    assert_allclose(product / product.sum(1, keepdims=True), softmax(-BETA * (d + d.T)), atol=1e-14)


def test_forward_divergence_splits_into_metric_exact_and_flux_parts():
    _, _, W = head()
    d, w = forward_divergence(W), np.diag(W)
    A = 0.5 * (W - W.T)
    parts = 0.5 * (d + d.T) + 0.5 * (w[:, None] - w[None, :]) - A
    assert_allclose(d, parts, atol=1e-14)


def test_cycle_affinity_is_twice_beta_times_the_flux_around_the_cycle():
    _, _, W = head()
    P, A = softmax(BETA * W), 0.5 * (W - W.T)
    i, j, k = 0, 2, 3
    affinity = np.log(P[i, j] * P[j, k] * P[k, i] / (P[i, k] * P[k, j] * P[j, i]))
    assert_allclose(affinity, 2 * BETA * (A[i, j] + A[j, k] + A[k, i]), rtol=1e-12)


def operator_square(q, k, a, b):
    m, n = (q + k) / np.sqrt(2), (q - k) / np.sqrt(2)
    g = 0.5 * (m**2).sum(1) - 0.5 * b * (n**2).sum(1)
    W = q @ k.T
    return (
        0.5 * m @ m.T
        - 0.5 * b * n @ n.T
        + a * 0.5 * (W - W.T)
        + (1 - a) * 0.5 * (g[:, None] - g[None, :])
    )


def test_corners_of_the_operator_square():
    q, k, W = head()
    d = forward_divergence(W)
    m = (q + k) / np.sqrt(2)
    gaps = ((m[:, None] - m[None]) ** 2).sum(-1)
    assert_allclose(softmax(operator_square(q, k, 1, 1)), softmax(W), atol=1e-14)
    assert_allclose(softmax(operator_square(q, k, 0, 1)), softmax(-0.5 * (d + d.T)), atol=1e-14)
    assert_allclose(softmax(operator_square(q, k, 0, 0)), softmax(-0.25 * gaps), atol=1e-14)


# E56


def magnetic_laplacian(W, charge):
    d = forward_divergence(W)
    K = np.exp(-BETA * (d + d.T))
    H = K * np.exp(2j * np.pi * charge * (W - W.T))
    degree = K.sum(1)
    return np.eye(len(W)) - H / np.sqrt(np.outer(degree, degree))


def test_the_magnetic_phase_is_not_a_function_of_the_bidivergence():
    """Same symmetric part, flux removed: same D, same diffusion map, another magnetic spectrum."""
    _, _, W = head()
    symmetric = 0.5 * (W + W.T)
    plain = [np.linalg.eigvalsh(magnetic_laplacian(M, 0.0)) for M in (W, symmetric)]
    assert_allclose(plain[0], plain[1], atol=1e-12)
    charged = [np.linalg.eigvalsh(magnetic_laplacian(M, 0.1)) for M in (W, symmetric)]
    assert np.abs(charged[0] - charged[1]).max() > 0.03


def test_a_phase_outside_the_normalisation_keeps_the_laplacian_hermitian_and_nonnegative():
    L = magnetic_laplacian(head()[2], 0.1)
    assert_allclose(L, L.conj().T, atol=1e-15)
    assert np.linalg.eigvalsh(L).min() > -1e-12


def test_a_phase_inside_the_normalisation_gives_no_stochastic_or_hermitian_kernel():
    _, _, W = head()
    d = forward_divergence(W)
    H = np.exp(-BETA * (d + d.T) + 2j * np.pi * 0.1 * (W - W.T))
    inside = H / H.sum(1, keepdims=True)
    assert np.abs(np.linalg.eigvals(inside).imag).max() > 0.01
    assert np.abs(inside).sum(1).max() > 1.05


# E57


def test_a_causal_chain_ends_at_token_zero():
    _, _, W = head(n=8)
    masked = np.where(np.tril(np.ones_like(W)) > 0, BETA * W, -np.inf)
    P = softmax(masked)
    law = stationary_law(P)
    assert_allclose(law, np.eye(8)[0], atol=1e-10)
    flow = law[:, None] * P
    assert_allclose(flow - flow.T, 0.0, atol=1e-10)
    assert np.abs(stationary_law(softmax(BETA * W)) - law).max() > 0.5, "unmasked it is another"


# E58


def test_entropy_production_is_the_mean_flux_of_the_plain_softmax_chain_only():
    _, _, W = head()
    A, P = 0.5 * (W - W.T), softmax(BETA * W)
    mean_flux = 2 * BETA * np.sum(stationary_law(P)[:, None] * P * A)
    assert_allclose(entropy_production(P), mean_flux, rtol=1e-10)
    damped = 0.85 * P + 0.15 / len(P)
    flux_of_damped = 2 * BETA * np.sum(stationary_law(damped)[:, None] * damped * A)
    assert flux_of_damped > 1.2 * entropy_production(damped)


@pytest.mark.parametrize("seed", range(5))
def test_currents_at_the_stationary_law_never_sum_to_a_drive(seed):
    P = softmax(BETA * head(seed=seed)[2])
    flow = stationary_law(P)[:, None] * P
    current = flow - flow.T
    assert_allclose(current.sum(1), 0.0, atol=1e-12)
    assert np.abs(current).max() > 1e-3, "a steady state, not an equilibrium"
    uniform = P / len(P)
    assert np.abs((uniform - uniform.T).sum(1)).max() > 1e-2, "driven at a ρ other than π"


# E95


def test_a_row_constant_moves_the_exact_part_and_the_flux_and_nothing_that_attention_sees():
    _, _, W = head()
    c = np.random.default_rng(1).standard_normal(5)
    assert_allclose(softmax(BETA * (W + c[:, None])), softmax(BETA * W), atol=1e-15)
    one, other = Bidivergence.of(W), Bidivergence.of(W + c[:, None])
    shift = 0.5 * (c[:, None] - c[None, :])
    assert np.abs(shift).max() > 1
    assert_allclose(other.exact - one.exact, shift, atol=1e-14)
    assert_allclose(other.flux - one.flux, shift, atol=1e-14)
    for name in ("symmetric", "antisymmetric", "potential", "coexact"):
        assert_allclose(getattr(other, name), getattr(one, name), atol=1e-14, err_msg=name)
    sizes = [float(b.flux.norm() / b.metric.norm()) for b in (one, other)]
    assert_allclose(sizes, [0.628, 0.737], atol=1e-3)
    assert_allclose(other.flux_ratio(), one.flux_ratio(), rtol=1e-12)


def test_turning_the_flux_alone_depends_on_the_gauge_and_both_together_does_not():
    _, _, W = head()
    V = W + np.random.default_rng(1).standard_normal(5)[:, None]
    alone = [softmax(dialled_logits(x, BETA, flux=0.0).numpy()) for x in (W, V)]
    both = [softmax(dialled_logits(x, BETA, flux=0.0, exact=0.0).numpy()) for x in (W, V)]
    assert_allclose(0.5 * np.abs(alone[0] - alone[1]).sum(1).max(), 0.10, atol=5e-3)
    assert_allclose(both[0], both[1], atol=1e-14)
    for P in (*alone, *both):
        assert_allclose(entropy_production(P), 0.0, atol=1e-12)


# E96


def normalised_in_turn(z, sweeps, first):
    """Rows and columns divided by their sums in turn, beginning and ending with one of them."""
    P = np.exp(z)
    P = P / P.sum(first, keepdims=True)
    for _ in range(sweeps):
        P = P / P.sum(1 - first, keepdims=True)
        P = P / P.sum(first, keepdims=True)
    return P


ROWS, COLUMNS = 1, 0


@pytest.mark.parametrize("sweeps", [0, 1, 2, 3])
def test_a_constant_is_absorbed_by_the_normalisation_over_its_own_axis_at_every_count(sweeps):
    _, _, W = head()
    forward = -BETA * forward_divergence(W)
    attention = normalised_in_turn(BETA * W, sweeps, ROWS)
    assert_allclose(normalised_in_turn(forward, sweeps, ROWS), attention, atol=1e-14)
    assert_allclose(normalised_in_turn(forward.T, sweeps, COLUMNS), attention.T, atol=1e-14)
    assert_allclose(sinkhorn_kernel(W, BETA, iterations=sweeps), attention, atol=1e-14)


def test_the_other_axis_first_agrees_in_the_limit_only():
    _, _, W = head()
    forward = -BETA * forward_divergence(W)

    def off(sweeps):
        P = normalised_in_turn(forward, sweeps, COLUMNS)
        Q = normalised_in_turn(forward.T, sweeps, ROWS)
        P = P - normalised_in_turn(BETA * W, sweeps, COLUMNS)
        return np.abs(P).max(), np.abs(Q - normalised_in_turn(BETA * W, sweeps, ROWS).T).max()

    assert_allclose(off(0), [0.376, 0.364], atol=1e-3)
    assert_allclose(off(1), [0.025, 0.032], atol=1e-3)
    assert max(off(50)) < 1e-13


# E97


def causal_head(n=8):
    _, _, W = head(n=n)
    return softmax(np.where(np.tril(np.ones_like(W)) > 0, BETA * W, -np.inf))


def damped_production(P, damping):
    Q = damped_kernel(P, damping)
    return float(production(Q, stationary_distribution(Q)))


def test_damped_entropy_production_of_a_causal_chain_goes_with_the_damping():
    P = causal_head()
    dampings = 10.0 ** -np.arange(1, 10)
    found = np.array([damped_production(P, d) for d in dampings])
    assert_allclose(found[:3], [0.266, 0.0518, 0.00715], rtol=1e-2)
    assert np.all(np.diff(found) < 0)
    visits = np.linalg.inv(np.eye(7) - P[1:, 1:]).sum(0) / 8  # of a walk between two jumps
    moves = np.sum(visits[:, None] * np.tril(P[1:, 1:], -1))
    assert_allclose(moves, 0.801, atol=1e-3)
    growth = np.diff(found / dampings) / np.log(10)  # per factor e of 1/δ
    assert_allclose(growth[-1], moves, rtol=1e-4)


def test_at_a_law_that_stays_put_the_damped_entropy_production_diverges():
    P = causal_head()
    dampings = 10.0 ** -np.arange(6, 10)
    even = np.full(len(P), 1 / len(P))
    found = np.array([float(production(damped_kernel(P, d), even)) for d in dampings])
    one_way = np.sum(np.tril(P, -1)) / 8
    assert_allclose(np.diff(found) / np.log(10), one_way, rtol=1e-4)


def test_one_way_steps_of_a_chain_that_is_not_absorbed_diverge_with_the_logarithm():
    P = np.array([[0.2, 0.8, 0.0], [0.1, 0.2, 0.7], [0.6, 0.1, 0.3]])
    found = np.array([damped_production(P, d) for d in 10.0 ** -np.arange(6, 10)])
    assert_allclose(np.diff(found) / np.log(10), stationary_law(P)[2] * 0.6, rtol=1e-4)


# Notes 13


def test_the_strictly_lower_part_has_no_quasi_stationary_law_and_the_transient_block_has_one():
    P = causal_head()
    strict = np.tril(P, -1)
    assert_allclose(np.linalg.matrix_power(strict, 8), 0.0, atol=0)
    bare = strict.copy()
    bare[0, 0] = 1.0
    bare[1:] /= bare[1:].sum(1, keepdims=True)
    with pytest.raises(InvalidInputError, match="nilpotent"):
        quasi_stationary(bare)
    found = quasi_stationary(P)
    law, T = found.law.numpy()[1:], P[1:, 1:]
    assert_allclose(law @ T, float(found.survival) * law, atol=1e-14)
    assert_allclose(float(found.survival), np.diag(P)[1:].max(), atol=1e-15)


def test_the_walk_conditioned_never_to_end_stays_at_one_token():
    T = causal_head()[1:, 1:]
    values, vectors = np.linalg.eig(T)
    survival = values.real.max()
    h = np.abs(vectors[:, values.real.argmax()].real)
    m = int(np.diag(T).argmax())
    kept = np.where(h > 1e-12)[0]  # the Doob transform lives where h does
    conditioned = T[np.ix_(kept, kept)] * h[kept] / (survival * h[kept][:, None])
    assert_allclose(conditioned.sum(1), 1.0, atol=1e-10)
    end = np.linalg.matrix_power(conditioned, 4000)
    assert_allclose(end[:, list(kept).index(m)], 1.0, atol=1e-8)


# Notes 14


def test_eigenvalues_of_a_drifting_chain_need_its_symmetric_form():
    N, p, q = 128, 0.9, 0.1
    P = np.diag(np.full(N - 1, p), 1) + np.diag(np.full(N - 1, q), -1)
    P[0, 0], P[-1, -1] = q, p
    order = np.random.default_rng(0).permutation(N)
    P = P[np.ix_(order, order)]  # tokens are in no order that a solver could use
    exact = 2 * np.sqrt(p * q) * np.cos(np.pi / N)
    plain = np.sort(np.abs(np.linalg.eigvals(P)))[-2]
    assert plain > exact + 0.1
    assert_allclose(1 - float(spectral_gap(P)), exact, rtol=1e-10)


# Notes 15


def test_entropy_production_grows_with_the_scale_of_the_scores_and_the_flux_ratio_does_not():
    _, _, W = head()
    found = [entropy_production(softmax(t * BETA * W)) for t in (0.25, 1.0, 4.0)]
    assert_allclose(found, [0.0327, 0.455, 3.65], rtol=1e-2)
    ratios = [float(Bidivergence.of(t * W).flux_ratio()) for t in (0.25, 1.0, 4.0)]
    assert_allclose(ratios, ratios[0], rtol=1e-12)
