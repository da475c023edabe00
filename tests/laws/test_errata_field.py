"""Counterexamples to statements of source 001 on the master equation and its operators.

A field is an array (tokens, features) and integrals over positions are means over tokens.
``docs/theory/errata.md`` lists the statements by number.
"""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from flowscope.pde import attention_parts, path_alignment, persistence


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def evolved(operator, u, t_end):
    """The field at t_end of ∂_t u = operator(u)."""
    out = solve_ivp(
        lambda _, flat: operator(flat.reshape(u.shape)).ravel(),
        (0, t_end),
        u.ravel(),
        rtol=1e-10,
        atol=1e-12,
    )
    return out.y[:, -1].reshape(u.shape)


def field(tokens=12, features=4, seed=0):
    return np.random.default_rng(seed).standard_normal((tokens, features))


def spread(u):
    """μ_u and σ_u of equation 9."""
    mean = u.mean(0)
    return mean, np.sqrt(((u - mean) ** 2).sum(1).mean())


# E59


def test_euler_step_of_the_master_equation_leaks_the_residual_stream():
    """(Attn − u) + (FFN − u): one Euler step is (1 − 2Δt)u + Δt(Attn + FFN)."""
    u, dt = field(), 0.1
    attention = softmax(u @ u.T) @ u
    feed_forward = np.tanh(u)
    step = u + dt * ((attention - u) + (feed_forward - u))
    assert_allclose(step, (1 - 2 * dt) * u + dt * (attention + feed_forward), atol=1e-14)


def test_zero_weights_leave_a_transformer_alone_and_shrink_the_simulator():
    u = field()
    simulator = evolved(lambda v: (0 * v - v) + (0 * v - v), u, 1.0)
    assert_allclose(simulator, np.exp(-2) * u, rtol=1e-7)
    transformer = u + 0 * u
    assert np.linalg.norm(simulator) < 0.14 * np.linalg.norm(transformer)


# E60


def published_stabiliser(u, gamma):
    mean, sigma = spread(u)
    return -gamma * (u - mean) / sigma


def relaxing_stabiliser(u, gamma):
    mean, sigma = spread(u)
    return -gamma * (u - (u - mean) / sigma)


def test_published_stabiliser_extinguishes_the_variance_and_keeps_the_mean():
    """σ(t) = σ₀ − γt, extinction at σ₀/γ; the mean does not move."""
    u, gamma = field() + 3.0, 1.0
    mean, sigma = spread(u)
    later_mean, later = spread(evolved(lambda v: published_stabiliser(v, gamma), u, 0.9 * sigma))
    assert_allclose(later, 0.1 * sigma, rtol=1e-6)
    assert abs(later - 1.0) > 0.7, "unit variance was promised"
    assert_allclose(later_mean, mean, atol=1e-9)
    assert np.linalg.norm(later_mean) > 5, "zero mean was promised"


@pytest.mark.parametrize("leak", [0.0, 2.0])
def test_euler_steps_of_the_published_stabiliser_turn_an_extinct_field_over(leak):
    """Steps of 1/6 with γ = 1 end in ±γΔt/(2 − cΔt), with another sign at every step."""
    dt, gamma = 1 / 6, 1.0
    u, spreads = np.array([[0.8], [-0.8]]), []
    for _ in range(60):
        u = u + dt * (published_stabiliser(u, gamma) - leak * u)
        spreads.append(u[0, 0])
    if leak:  # without a leak the amplitude depends on the start, between 0 and γΔt
        assert_allclose(np.abs(spreads[-4:]), gamma * dt / (2 - leak * dt), rtol=1e-3)
    assert max(np.abs(spreads[-4:])) <= gamma * dt
    assert list(np.sign(spreads[-4:])) in ([1, -1, 1, -1], [-1, 1, -1, 1])


def test_relaxing_stabiliser_drives_to_zero_mean_and_unit_variance():
    mean, sigma = spread(evolved(lambda v: relaxing_stabiliser(v, 1.0), field() + 3.0, 20.0))
    assert_allclose(mean, 0.0, atol=1e-7)
    assert_allclose(sigma, 1.0, atol=1e-7)


def test_normalisation_over_tokens_is_not_layer_norm():
    """A field equal at all positions: equation 9 divides by zero, LayerNorm does not notice."""
    u = np.broadcast_to(np.array([1.0, 2.0, 4.0]), (5, 3))
    assert spread(u)[1] == 0.0
    out = torch.nn.functional.layer_norm(torch.tensor(u), (3,))
    assert_allclose(out.pow(2).mean(-1), 1.0, atol=1e-4)


# E61


def test_stabiliser_dissipates_like_the_root_of_the_energy():
    u, gamma = 10 * field(), 2.0
    u = u - u.mean(0)
    _, sigma = spread(u)
    power = (u * published_stabiliser(u, gamma)).sum(1).mean()
    energy = 0.5 * (u**2).sum(1).mean()
    assert_allclose(power, -gamma * sigma, rtol=1e-12)
    assert power > 0.2 * (-2 * gamma * energy), "−2γE was promised"


@pytest.mark.parametrize(("start", "grows"), [(1.0, False), (3.0, True)])
def test_dissipation_above_the_threshold_does_not_stop_a_large_field(start, grows):
    """∂_t u = λu + S with γ = 2 > λ = 1: σ̇ = λσ − γ, so a field of σ₀ > γ/λ = 2 explodes."""
    u = np.array([[start], [-start]])
    out = evolved(lambda v: v + published_stabiliser(v, 2.0), u, 0.6)
    assert_allclose(spread(out)[1], 2 + (start - 2) * np.exp(0.6), rtol=1e-6)
    assert (spread(out)[1] > start) == grows


class Stack:
    """Blocks x + A(N x), then x + F(N x): softmax attention and tanh, N to length √d or nothing."""

    def __init__(self, seed, blocks, size, tokens=7, width=5):
        rng = np.random.default_rng(seed)
        self.normed, self.width = True, width
        self.u = 10.0 ** rng.uniform(-2, 3) * rng.standard_normal((tokens, width))
        self.weights = [
            [size * rng.standard_normal((width, width)) for _ in range(5)] for _ in range(blocks)
        ]

    def norm(self, u):
        length = np.linalg.norm(u, axis=1, keepdims=True)
        return u * np.sqrt(self.width) / np.maximum(length, 1e-300) if self.normed else u

    def lengths(self):
        """Length of the longest token before and after every block."""
        u, found = self.u, [np.linalg.norm(self.u, axis=1).max()]
        for query, key, value, up, down in self.weights:
            x = self.norm(u)
            u = u + softmax(x @ query @ (x @ key).T) @ x @ value
            u = u + np.maximum(self.norm(u) @ up, 0) @ down
            found.append(np.linalg.norm(u, axis=1).max())
        return np.array(found)

    def bound(self):
        """Most that one block can add to the length of a token, whatever the state."""
        two = partial(np.linalg.norm, ord=2)
        return max(np.sqrt(self.width) * (two(w[2]) + two(w[3]) * two(w[4])) for w in self.weights)


@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 5.0]))
def test_norms_of_a_pre_norm_stack_grow_at_most_linearly(seed, size):
    """A norm makes every branch bounded, so no weights and no depth blow the stream up."""
    stack = Stack(seed, blocks=12, size=size)
    lengths = stack.lengths()
    allowed = lengths[0] + stack.bound() * np.arange(len(lengths))
    assert (lengths <= allowed * (1 + 1e-12)).all()


def test_without_norm_the_same_stack_grows_exponentially():
    stack = Stack(0, blocks=12, size=1.0)
    stack.u = stack.u / np.linalg.norm(stack.u, axis=1).max()
    bound = stack.bound()
    stack.normed = False
    lengths = stack.lengths()
    assert lengths[-1] > 1e3 * (lengths[0] + 12 * bound)


# E62


def test_a_row_stochastic_matrix_can_expand_the_norm_fourfold():
    P = np.zeros((16, 16))
    P[:, 0] = 1.0
    assert_allclose(np.linalg.norm(P, 2), 4.0)


@given(st.integers(0, 10**6), st.floats(0.0, 8.0))
def test_the_mass_on_a_sink_is_the_leak_of_attention(seed, pull):
    """On the tokens that are no sink attention shrinks the largest value by its leak at least."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((9, 9))
    scores[:, 0] += pull
    P, v = softmax(scores), rng.standard_normal((9, 3))
    v[0] = 0.0  # a sink that gives nothing
    parts = attention_parts(torch.tensor(P), torch.tensor(v), [0])
    leak = parts.leak.numpy()
    assert_allclose(leak, P[:, 0], rtol=1e-12)
    largest = np.abs(P[1:] @ v).max(1)
    assert (largest <= (1 - leak[1:]) * np.abs(v).max() + 1e-12).all()
    equal = np.where(np.arange(9)[:, None] > 0, 1.0, 0.0)
    assert_allclose((P @ equal)[1:, 0], 1 - leak[1:], rtol=1e-9)  # reached where all are equal


def test_without_a_sink_equal_tokens_do_not_leak():
    P = softmax(np.random.default_rng(0).standard_normal((9, 9)))
    assert_allclose(P @ np.ones((9, 1)), 1.0, rtol=1e-12)


def test_row_stochastic_norm_is_at_most_the_root_of_the_largest_column_sum():
    rng = np.random.default_rng(0)
    for _ in range(50):
        P = softmax(3 * rng.standard_normal((10, 10)))
        assert np.linalg.norm(P, 2) <= np.sqrt(P.sum(0).max()) + 1e-12


# E63


@pytest.mark.parametrize("scale", [1.0, 4.0, 16.0])
def test_dot_product_attention_has_no_global_lipschitz_constant(scale):
    """Tokens (0, R, −R): the first output moves with the first token by 1/3 + 2R²/3."""
    x = torch.tensor([0.0, scale, -scale], dtype=torch.float64)

    def attention(v):
        return torch.softmax(torch.outer(v, v), -1) @ v

    jacobian = torch.autograd.functional.jacobian(attention, x)
    assert_allclose(jacobian[0, 0], 1 / 3 + 2 * scale**2 / 3, rtol=1e-12)


# E64


def published_diffusivity(slope_of_positions, feed_forward_jacobian, attention_variance):
    """Equation 8 with its constant set to one."""
    return slope_of_positions**2 * np.trace(feed_forward_jacobian) * attention_variance


def test_published_diffusivity_has_the_wrong_sign_and_units():
    assert published_diffusivity(1.0, -np.eye(3), 1.0) < 0, "a backward heat equation"
    once = published_diffusivity(1.0, np.eye(3), 1.0)
    assert published_diffusivity(2.0, np.eye(3), 1.0) == 4 * once, "by the unit of the embedding"


def test_a_pointwise_network_moves_nothing_between_positions():
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((8, 4)), rng.standard_normal((4, 8))
    positions = rng.standard_normal((6, 4))

    def network(u):
        return np.maximum((u + positions) @ first.T, 0) @ second.T

    u = field(6, 4)
    shifted = u.copy()
    shifted[2] += 1.0
    change = np.abs(network(shifted) - network(u)).sum(1)
    assert np.count_nonzero(change) == 1


def test_attention_moments_are_the_drift_and_diffusivity():
    """(Pu − u)/Δt = c u' + D u'' exactly for quadratic u, c and D the first two moments."""
    rng = np.random.default_rng(2)
    x, dt = np.sort(rng.random(9)), 0.1
    P = softmax(rng.standard_normal((9, 9)))
    gaps = x[None, :] - x[:, None]
    c, D = (P * gaps).sum(1) / dt, 0.5 * (P * gaps**2).sum(1) / dt
    u, slope, curvature = 1 + 2 * x - 3 * x**2, 2 - 6 * x, -6.0
    assert_allclose((P @ u - u) / dt, c * slope + D * curvature, atol=1e-12)
    assert D.min() > 0


# E65


def test_the_ceiling_interpolant_leaves_the_segment():
    """h = (0, 1, 3) at depth ½: floor gives ½; the published ceiling extrapolates to 0."""
    h, depth = np.array([0.0, 1.0, 3.0]), 0.5

    def interpolant(base):
        return h[base] + (depth - base) * (h[base + 1] - h[base])

    assert interpolant(int(np.floor(depth))) == 0.5
    assert interpolant(int(np.ceil(depth))) == 0.0


# E66


def test_summed_heads_subtract_the_field_once_per_head():
    """Four heads with W_V = 0 and W_O = I: attention writes 0, so the operator is −u, not −4u."""
    u, heads = field(), 4
    published = np.eye(4) @ sum((0 * u - u).T for _ in range(heads))
    right = sum(0 * u for _ in range(heads)) - u
    assert_allclose(published.T, 4 * right)


def test_heads_need_their_own_output_projection():
    """Σ_h W_O^h Z_h equals the concatenated projection; one shared W_O on the sum does not."""
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((2, 5, 3))
    W = rng.standard_normal((2, 6, 3))
    concatenated = np.concatenate([Z[0], Z[1]], axis=1) @ np.concatenate([W[0], W[1]], axis=1).T
    assert_allclose(np.einsum("hkd,hnd->nk", W, Z), concatenated, atol=1e-12)
    shared = (Z[0] + Z[1]) @ W[0].T
    assert np.abs(shared - concatenated).max() > 0.5


# E67


def binned_information(x, y, bins):
    counts = np.histogram2d(x, y, bins=bins)[0] / len(x)
    independent = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True)
    kept = counts > 0
    return np.sum(counts[kept] * np.log(counts[kept] / independent[kept]))


def test_information_of_a_deterministic_map_is_set_by_the_bins():
    x = np.random.default_rng(0).random(200_000)
    values = [binned_information(x, x, bins) for bins in (8, 64)]
    assert_allclose(values, [np.log(8), np.log(64)], atol=1e-2)
    assert values[1] - values[0] > 2


def test_information_of_independent_samples_is_not_zero_when_binned():
    rng = np.random.default_rng(0)
    shuffled = binned_information(rng.random(1000), rng.random(1000), 30)
    assert shuffled > 0.4, "the null that must be printed beside the value"


# E68


def test_standing_still_scores_the_published_alignment():
    """States that keep a cosine of .98 with the input, as 001 reports: no motion scores as high."""
    draw = np.random.default_rng(0)
    start, noise = draw.standard_normal((2, 1, 1, 64, 128))
    moved = 0.98 * start + np.sqrt(1 - 0.98**2) * noise
    reference = torch.from_numpy(np.concatenate([start, *[moved] * 5]))
    still = path_alignment(persistence(reference), reference)
    assert_allclose(still.cosine, 0.98, atol=0.005)
    assert still.cosine.min() > 0.970, "the simulator's"
    assert_allclose(still.mse, 0.04, atol=0.002)
    assert still.spectral.min() > 0.967, "the simulator's"
    assert_allclose(still.skill, 0.0, atol=1e-12)


# E69


def test_a_stable_residual_flow_can_forget_its_input():
    """u̇ = Ωu with Ω antisymmetric keeps the norm; at t = π/2 the cosine is 0, at π it is −1."""
    omega = np.array([[0.0, -1.0], [1.0, 0.0]])
    u = np.array([[1.0, 0.0]])
    for t, cosine in [(np.pi / 2, 0.0), (np.pi, -1.0)]:
        out = evolved(lambda v: v @ omega.T, u, t)
        assert_allclose(np.linalg.norm(out), 1.0, rtol=1e-8)
        assert_allclose((out * u).sum(), cosine, atol=1e-7)


def test_a_network_without_residual_can_keep_its_input():
    """v ↦ Gv with G orthogonal and close to I, thirty layers: the cosine stays above 0.95."""
    angle = 0.01
    G = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert (np.linalg.matrix_power(G, 30) @ [1.0, 0.0])[0] > 0.95
