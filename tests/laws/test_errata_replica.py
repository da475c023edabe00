"""Counterexamples to statements of source 004 on coupled replicas, speciation and its protocols.

``docs/theory/errata.md`` lists the statements by number.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from flowscope.models.loading import load
from flowscope.nets import bundled_path
from flowscope.probes.block_callable import live_block
from flowscope.replica import (
    Propagator,
    commitment_time,
    mode_energies,
    naive_gap,
    sigmoid_fit,
    speciation_parameter,
    split_half_gap,
    stacked_gram,
)

TOKENS, WIDTH = 5, 6


def weights(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"q": (4, WIDTH), "k": (4, WIDTH), "v": (WIDTH, WIDTH), "w": (12, WIDTH)}
    shapes["o"] = (WIDTH, 12)
    return {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64) / WIDTH**0.5
        for name, shape in shapes.items()
    }


def symmetric_state(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def norm(H):
    return torch.nn.functional.layer_norm(H, (WIDTH,))


def projections(H, W):
    X = norm(H)
    return X @ W["q"].T, X @ W["k"].T, X @ W["v"].T


def kernel(Q, K):
    return torch.softmax(Q @ K.T / Q.shape[-1] ** 0.5, -1)


def feed_forward(H, W):
    return torch.tanh(norm(H) @ W["w"].T) @ W["o"].T


def single_block(H, W):
    Q, K, V = projections(H, W)
    H = H + kernel(Q, K) @ V
    return H + feed_forward(H, W)


def coupled_block(H_a, H_b, W, g):
    """Equation 19 inside a pre-norm block: blockwise softmax, mix 1/(1+g) and g/(1+g)."""
    out = []
    for own, other in ((H_a, H_b), (H_b, H_a)):
        Q, K, V = projections(own, W)
        _, K_other, V_other = projections(other, W)
        mixed = (kernel(Q, K) @ V + g * kernel(Q, K_other) @ V_other) / (1 + g)
        H = own + mixed
        out.append(H + feed_forward(H, W))
    return out


def difference_jacobian(g, W, H, h=1e-5):
    """Finite difference of the difference mode, H^{A,B} = H ± h/√2, of the real coupled block."""
    columns = []
    for index in range(H.numel()):
        direction = torch.zeros(H.numel(), dtype=H.dtype)
        direction[index] = h
        shift = direction.reshape(H.shape) / 2**0.5
        up = coupled_block(H + shift, H - shift, W, g)
        columns.append(((up[0] - up[1]) / 2**0.5 / h).ravel())
    return torch.stack(columns, 1).numpy()


def channels(W, H, g):
    """Matrices of A₀J_V h and (δA⁺ + gδA⁻)V₀, per unit h, and of I + J_MLP."""
    Q, K, V = projections(H, W)
    jacobian = torch.autograd.functional.jacobian
    size = H.numel()

    def intra(X):
        Q1, K1, _ = projections(X, W)
        return kernel(Q1, K1) @ V

    def inter(X):
        Q1, _, _ = projections(X, W)
        _, K1, _ = projections(2 * H - X, W)
        return kernel(Q1, K1) @ V

    routing = jacobian(lambda X: kernel(Q, K) @ projections(X, W)[2], H).reshape(size, size)
    pattern = (jacobian(intra, H) + g * jacobian(inter, H)).reshape(size, size)
    middle = H + kernel(Q, K) @ V
    mlp = jacobian(lambda X: X + feed_forward(X, W), middle).reshape(size, size)
    return routing.numpy(), pattern.numpy(), mlp.numpy()


def propagator(W, H, g, factor=1.0):
    routing, pattern, mlp = channels(W, H, g)
    rho, xi = (1 - g) / (1 + g), 1 / (1 + g)
    inner = np.eye(len(mlp)) + factor * (rho * routing + xi * pattern)
    return mlp @ inner


# E80


@pytest.mark.parametrize("g", [0.0, 0.3, 1.0])
def test_propagator_without_the_factor_two_is_the_jacobian_of_the_coupled_block(g):
    W, H = weights(), symmetric_state()
    measured = difference_jacobian(g, W, H)
    assert_allclose(propagator(W, H, g), measured, atol=1e-6)
    published = propagator(W, H, g, factor=2.0)
    assert 0.3 < np.linalg.norm(published - measured) / np.linalg.norm(measured) < 1


def test_uncoupled_propagator_is_the_single_block_jacobian():
    W, H = weights(), symmetric_state()
    size = H.numel()
    single = torch.autograd.functional.jacobian(lambda X: single_block(X, W), H)
    assert_allclose(propagator(W, H, 0.0), single.reshape(size, size).numpy(), atol=1e-12)


def test_zero_coupling_is_bit_identical_to_the_uncoupled_model():
    W, H = weights(), symmetric_state()
    other = symmetric_state(seed=2)
    coupled = coupled_block(H, other, W, 0.0)
    assert torch.equal(coupled[0], single_block(H, W))
    assert torch.equal(coupled[1], single_block(other, W))


# E81


def kernel_derivative(A, delta_logits):
    return A * (delta_logits - (A * delta_logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("g", [0.0, 0.3, 1.0])
def test_query_channel_is_not_suppressed_by_the_coupling(g):
    """ξ(δA⁺ + gδA⁻) = Dσ[δQ K₀ᵀ] + ρ Dσ[Q₀ δKᵀ]."""
    rng = np.random.default_rng(0)
    Q, K, dQ, dK = rng.standard_normal((4, 6, 3))
    logits = Q @ K.T
    A = np.exp(logits - logits.max(1, keepdims=True))
    A /= A.sum(1, keepdims=True)
    intra = kernel_derivative(A, dQ @ K.T + Q @ dK.T)
    inter = kernel_derivative(A, dQ @ K.T - Q @ dK.T)
    total = (intra + g * inter) / (1 + g)
    query, key = kernel_derivative(A, dQ @ K.T), kernel_derivative(A, Q @ dK.T)
    assert_allclose(total, query + (1 - g) / (1 + g) * key, atol=1e-14)
    if g == 1.0:
        assert_allclose(total, query, atol=1e-14)
        published_share = np.linalg.norm(0.5 * (query + key))
        assert abs(np.linalg.norm(total) / published_share - 1) > 0.1


# E82


def test_modes_keep_different_gains_at_full_coupling():
    """At g = 1 the attention part I + ξP(1) is the query channel; its gains depend on the mode."""
    W, H = weights(), symmetric_state()
    routing, pattern, _ = channels(W, H, 1.0)
    gains = np.linalg.svd(np.eye(H.numel()) + 0.5 * pattern, compute_uv=False)
    assert_allclose([gains.min(), gains.max()], [0.384, 3.635], atol=1e-3)
    assert np.linalg.norm(0.5 * pattern) > 0.9 * np.linalg.norm(routing)


# E83


def kappa(gamma, m2, c, eta):
    return gamma * m2 / (c * ((1 - eta) * c + gamma))


def critical_m2(gamma, c, eta):
    return c * ((1 - eta) * c + gamma) / gamma


@pytest.mark.parametrize("gamma", [0.1, 0.4, 2.0])
def test_published_snr_at_speciation_is_one_over_gamma(gamma):
    """The bifurcation of u = κ tanh u is at κ = 1; equation 53 there reads 1/γ, no fixed number."""
    c, eta = 0.5, 0.7
    m2 = critical_m2(gamma, c, eta)
    assert_allclose(kappa(gamma, m2, c, eta), 1.0)
    snr = m2 / (c * ((1 - eta) * c + gamma))
    assert_allclose(snr, 1 / gamma)


def test_nonzero_branches_appear_when_kappa_passes_one():
    for value, expected in [(0.99, 0.0), (1.01, 0.17338)]:
        u = 1.0
        for _ in range(20_000):
            u = value * np.tanh(u)
        assert_allclose(u, expected, atol=1e-4)


# E84


def test_the_live_jacobian_reaches_one_exactly_at_kappa_one():
    gamma, c, eta = 0.4, 0.5, 0.7
    for shift in (-0.01, 0.0, 0.01):
        m2 = critical_m2(gamma, c, eta) + shift
        total = eta - gamma * (1 / c - m2 / c**2)
        assert np.sign(round(total - 1, 12)) == np.sign(round(kappa(gamma, m2, c, eta) - 1, 12))


def test_using_the_live_jacobian_as_eta_counts_the_score_twice():
    """At the true onset κ = 1; with η replaced by η − γΛ_eff the formula says 1.375."""
    gamma, c, eta = 0.4, 0.5, 0.7
    m2 = critical_m2(gamma, c, eta)
    live = eta - gamma * (1 / c - m2 / c**2)
    assert_allclose(m2, 0.6875)
    assert_allclose(live, 1.0)
    assert_allclose(kappa(gamma, m2, c, live), 1.375)


# E85


def test_hidden_gains_do_not_multiply_across_reverse_steps():
    """Two layers of gain 3, an output head of gain 0: the hidden difference is 9 at each step."""
    z, hidden = 1.0, []
    for _ in range(5):
        state = 3 * (3 * z)
        hidden.append(state)
        z = z + 0.0 * state
    assert hidden == [9.0] * 5
    published = 3.0 ** (2 * 5)
    assert published / hidden[-1] > 6000


# E86


def gap_ratio(gram_basis, gram_cross, band=8):
    """G_int of equations 75–80 from the Gram matrices V₀V₀ᵀ and V_sV₀ᵀ."""
    w, U = np.linalg.eigh(gram_basis)
    w, U = w[::-1], U[:, ::-1]
    energy = ((gram_cross @ U) ** 2).sum(0) / w**2
    return energy[-band:].mean() / energy[:band].mean()


def null_gaps(dimension, power=0.0, draws=40, seed=0, samples=32):
    """G_int when V_s is an independent draw of the law of V_0, spectrum k^{−2·power}."""
    rng = np.random.default_rng(seed)
    scale = np.arange(1, dimension + 1.0) ** -power
    out = []
    for _ in range(draws):
        first, second = rng.standard_normal((2, samples, dimension)) * scale
        out.append(gap_ratio(first @ first.T, second @ first.T))
    return np.array(out)


@pytest.mark.parametrize(
    ("dimension", "power", "expected", "level"),
    [(64, 0.0, 10.0, 1.0), (64, 0.5, 4.8, 0.5), (4096, 0.0, 1.27, 0.1), (4096, 0.5, 0.225, 0.02)],
)
def test_internal_gap_ratio_is_biased_when_nothing_changed(dimension, power, expected, level):
    gaps = null_gaps(dimension, power)
    assert_allclose(gaps.mean(), expected, atol=level)
    assert abs(gaps.mean() - 1) > 6 * gaps.std() / np.sqrt(len(gaps))


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_split_half_basis_removes_the_bias_of_the_gap_ratio(power):
    """Modes from one half of the pairs, energies of the other; 100 draws, four standard errors."""
    rng = np.random.default_rng(1)
    scale = np.arange(1, 257.0) ** -power
    logs = []
    for _ in range(100):
        first, second = rng.standard_normal((2, 32, 256)) * scale
        modes = np.linalg.svd(first[:16], full_matrices=False)[2].T
        energy = ((second[16:] @ modes) ** 2).sum(0) / ((first[16:] @ modes) ** 2).sum(0)
        logs.append(np.log(energy[-8:].mean() / energy[:8].mean()))
    assert abs(np.mean(logs)) < 4 * np.std(logs) / np.sqrt(100)
    assert 0.2 < np.std(logs) < 0.5


def resampled_gaps(gram, samples, rng, pairs, draws=60):
    """G_int after swapping (V_0, V_s) within pairs, or after permuting all rows."""
    out, rows = [], np.arange(samples)
    for _ in range(draws):
        if pairs:
            swapped = rng.random(samples) < 0.5
            i, j = np.where(swapped, rows + samples, rows), np.where(swapped, rows, rows + samples)
        else:
            i, j = np.split(rng.permutation(2 * samples), 2)
        out.append(gap_ratio(gram[np.ix_(i, i)], gram[np.ix_(j, i)]))
    return np.mean(out)


def test_exchange_null_swaps_within_pairs_and_permutation_overcorrects():
    """Pairs of correlation 0.9, nothing else changed: G_int 1.03, exchange 1.03, permutation 5."""
    rng = np.random.default_rng(2)
    observed, exchange, permutation = [], [], []
    for _ in range(20):
        first, noise = rng.standard_normal((2, 32, 256))
        second = 0.9 * first + np.sqrt(1 - 0.81) * noise
        rows = np.vstack([first, second])
        gram = rows @ rows.T
        observed.append(gap_ratio(gram[:32, :32], gram[32:, :32]))
        exchange.append(resampled_gaps(gram, 32, rng, pairs=True))
        permutation.append(resampled_gaps(gram, 32, rng, pairs=False))
    assert_allclose(np.mean(observed), np.mean(exchange), atol=0.03)
    assert np.mean(permutation) > 4 * np.mean(observed)


# E87


@pytest.mark.parametrize("tokens", [16, 256, 1024])
def test_diffuse_attention_brings_no_suppression_of_pattern_modulation(tokens):
    """Uniform attention, δS and V₀ aligned: ‖δA V₀‖/‖P_⊥V₀‖ = 1 for every N; bound 2√(N/N_eff)."""
    v = np.tile([1.0, -1.0], tokens // 2)
    A = np.full((tokens, tokens), 1 / tokens)
    delta = kernel_derivative(A, np.broadcast_to(v, (tokens, tokens)))
    ratio = np.linalg.norm(delta @ v) / np.linalg.norm(v - v.mean())
    effective = 1 / (A[0] ** 2).sum()
    assert_allclose(effective, tokens)
    assert_allclose(ratio, 1.0)
    assert_allclose(2 * np.sqrt(tokens / effective), 2.0)


def test_exact_identities_of_the_row_softmax():
    rng = np.random.default_rng(4)
    logits, dS, V = rng.standard_normal((3, 7, 7))
    A = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    P0 = np.full((7, 7), 1 / 7)
    dA = kernel_derivative(A, dS)
    assert_allclose(dA.sum(1), 0.0, atol=1e-14)
    assert_allclose(A @ P0, P0, atol=1e-14)
    assert_allclose(dA @ V, dA @ (np.eye(7) - P0) @ V, atol=1e-14)


# E88


def reverse_variance(slope, start, horizon):
    """Variance at t = 0 of dv = −slope(t) v ds + √2 dW run from t = horizon down to 0."""
    out = solve_ivp(
        lambda s, v: -2 * slope(horizon - s) * v + 2, (0, horizon), [start], rtol=1e-10, atol=1e-12
    )
    return out.y[0, -1]


def test_coupling_added_to_the_reverse_drift_is_not_the_coupled_forward_process():
    """Difference mode, data variance ¼, g = ½, T = 3, unit clock (dX = −X dt + √2 dW)."""
    g, s2, horizon = 0.5, 0.25, 3.0
    rate = 1 + 2 * g

    def single(t):
        return s2 * np.exp(-2 * t) + 1 - np.exp(-2 * t)

    def coupled(t):
        return s2 * np.exp(-2 * rate * t) + (1 - np.exp(-2 * rate * t)) / rate

    by_hand = reverse_variance(lambda t: -1 + 2 / single(t) + 2 * g, single(horizon), horizon)
    joint = reverse_variance(lambda t: -rate + 2 / coupled(t), coupled(horizon), horizon)
    assert_allclose(joint, s2, rtol=1e-6)
    assert_allclose(by_hand, 0.1793, atol=5e-5)


# E98


def flat_curves(count=100, pairs=32, steps=11, seed=0):
    """Agreement that does not depend on the intervention step: noise around .6."""
    rng = np.random.default_rng(seed)
    return np.linspace(0, 100, steps), 0.6 + 0.1 * rng.standard_normal((count, pairs, steps))


def test_a_sigmoid_through_flat_curves_has_a_midpoint_and_the_rule_says_no_transition():
    """100 flat curves of 32 pairs: 84 midpoints inside the scan; the rule lets 2 pass."""
    x, curves = flat_curves()
    midpoints = np.array([sigmoid_fit(x, np.median(rows, 0)).midpoint for rows in curves])
    assert np.isfinite(midpoints).all()
    inside = (midpoints >= x[0]) & (midpoints <= x[-1])
    assert inside.mean() > 0.7
    placed = [commitment_time(x, rows, resamples=200).status == "ok" for rows in curves]
    assert np.mean(placed) < 0.1
    # A transition of the height of source 004 is seen by the same rule.
    steps = 0.15 / (1 + np.exp(-(x - 45) / 6))
    found = commitment_time(x, curves[0] + steps, resamples=200)
    assert found.status == "ok"
    assert abs(found.midpoint - 45) < 10


# E99, E100: the bundled trained transformer


@pytest.fixture(scope="module")
def trained():
    return load(bundled_path("image"), dtype=torch.float32).model


def difference_rows(model, latents, time):
    """(H^A − H^B)/√2 behind every block, a row per pair."""
    pairs, seen = len(latents) // 2, []

    def keep(module, args, output):
        seen.append(((output[:pairs] - output[pairs:]) / 2**0.5).flatten(1))

    hooks = [block.register_forward_hook(keep) for block in model.transformer_blocks]
    times, labels = torch.full((2 * pairs,), time), torch.full((2 * pairs,), 8)
    with torch.no_grad():
        model(latents, timestep=times, class_labels=labels)
    for hook in hooks:
        hook.remove()
    return seen


def test_the_same_latents_read_at_two_times_make_a_gap(trained):
    """Nothing has moved but the clock, from 990 to 700: layer 8 of 16 shows a gap at 8 pairs."""
    middle, apart = torch.randn(2, 8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    latents = torch.cat([middle + 0.3 * apart, middle - 0.3 * apart]) / 1.09**0.5
    first, later = difference_rows(trained, latents, 990), difference_rows(trained, latents, 700)
    gram = stacked_gram(first[7], later[7])
    energies = mode_energies(gram).energies
    assert_allclose([energies[0], energies[-1]], [1.53, 0.99], atol=0.05)
    assert_allclose(naive_gap(gram, 2, 2), 0.77, atol=0.03)
    assert split_half_gap(gram, 2, 2).interval[1] < -0.5
    # The first block has hardly heard of the time, and at the same time nothing has changed.
    assert abs(naive_gap(stacked_gram(first[0], later[0]), 2, 2) - 1) < 0.02
    assert_allclose(naive_gap(stacked_gram(first[7], first[7]), 2, 2), 1.0, atol=1e-9)


@pytest.mark.parametrize(("layer", "time", "dropped"), [(0, 500, 0.18), (7, 100, 0.42)])
def test_gates_of_a_trained_block_are_not_small_and_the_cross_term_is_not_either(
    trained, layer, time, dropped
):
    """K_0 against I + J_MLP + attention (eq 33), along a random direction."""
    generator = torch.Generator().manual_seed(0)
    batch = {
        "hidden_states": torch.randn(1, 1, 28, 28, generator=generator),
        "timestep": torch.tensor([time]),
        "class_labels": torch.tensor([8]),
    }
    live = live_block(trained, batch, layer)
    h = torch.randn(live.H0.shape, generator=generator)
    block = trained.transformer_blocks[layer]
    with torch.no_grad():
        _, first, _, _, second = block.norm1(
            live.H0, batch["timestep"], batch["class_labels"], hidden_dtype=torch.float32
        )
    rms = [float(gate.square().mean().sqrt()) for gate in (first, second)]
    assert min(rms) > 0.3

    def attended(H):
        q, k, v = live.block.project(H)
        heads = torch.softmax(live.block.scale * q @ k.mT, -1) @ v
        return first[:, None] * block.attn1.to_out[0](heads.transpose(1, 2).flatten(2))

    propagator = Propagator(live.block, live.H0)
    whole, direct = propagator.apply(h, 0.0), propagator.channels(h, 0.0).direct
    with torch.no_grad():
        attention = torch.func.jvp(attended, (live.H0,), (h,))[1]
    cross = whole - direct - attention
    assert_allclose(float(cross.norm() / (whole - h).norm()), dropped, atol=0.05)


# E101


@pytest.mark.parametrize("g", [0.0, 0.5, 1.0])
def test_leading_modes_are_wide_ones_so_the_order_of_routing_does_not_order_speciation(g):
    """χ = .3 > .1 as eq 61 asks, c = 1 > .25 as leading and trailing say: the trailing is first."""
    rho = (1 - g) / (1 + g)
    leading = speciation_parameter(0.5, m2=0.6, c=1.0, eta=0.8 + rho * 0.3)
    trailing = speciation_parameter(0.5, m2=0.6, c=0.25, eta=0.8 + rho * 0.1)
    assert leading < 1 < trailing
    equal = speciation_parameter(0.5, m2=0.6, c=0.25, eta=0.8 + rho * 0.3)
    assert equal >= trailing


# E102


@pytest.mark.parametrize("tokens", [16, 256])
def test_routing_can_lose_a_coherent_value_change_completely(tokens):
    """All rows look at token 1, which does not change: ε = (N − 1)^{−1/2} and A₀δV = 0."""
    A = np.zeros((tokens, tokens))
    A[:, 0] = 1
    rough = np.eye(tokens) - 1 / tokens
    change = np.ones(tokens)
    change[0] = 0
    epsilon = np.linalg.norm(rough @ change) / np.linalg.norm(change - rough @ change)
    transmission = np.linalg.norm(A @ rough, 2)
    assert_allclose(epsilon, (tokens - 1) ** -0.5)
    assert_allclose(transmission, (tokens - 1) ** 0.5)
    assert_allclose(1 - transmission * epsilon, 0, atol=1e-12)
    assert_allclose(A @ change, 0)


# E103


@pytest.mark.parametrize(("each", "branch"), [(0.45, 0.0), (0.6, 0.7903)])
def test_modes_of_one_mixture_speciate_together_where_their_parameters_sum_to_one(each, branch):
    """Equation 36 with two modes of the same κ, iterated: u = (κ₁ + κ₂) tanh u."""
    gamma, c, eta = 0.4, np.array([0.5, 0.3]), np.array([0.7, 0.6])
    m = np.sqrt(each * c * ((1 - eta) * c + gamma) / gamma)
    assert_allclose([kappa(gamma, *z) for z in zip(m**2, c, eta, strict=True)], each)
    v = np.array([0.3, 0.0])
    for _ in range(5000):
        v = eta * v + gamma * (-v / c + m / c * np.tanh((m / c) @ v))
    assert_allclose((m / c) @ v, branch, atol=1e-4)
    assert (np.abs(v) > 0.1).all() == (branch > 0)
    # The onset is that of the whole Jacobian at zero (E84).
    live = np.diag(eta - gamma / c) + gamma * np.outer(m / c, m / c)
    assert (np.linalg.eigvalsh(live).max() > 1) == (2 * each > 1)
