"""Currents, affinities and entropy production against closed forms and the laws they obey."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.irreversibility import (
    currents,
    cycle_affinities,
    displacement,
    entropy_production,
    flux_production,
    net_flow,
)
from flowscope.markov.stationary import stationary_distribution


def scores(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def ring(p, q, n=3):
    """Hops to the next token with probability p, to the one before with q."""
    eye = torch.eye(n, dtype=torch.float64)
    return p * eye.roll(1, -1) + q * eye.roll(-1, -1) + (1 - p - q) * eye


def even(kernel):
    return torch.full(kernel.shape[:-1], 1 / kernel.shape[-1], dtype=torch.float64)


def reversible(n, seed=0):
    K = torch.exp(scores(n, n, seed=seed))
    K = K + K.mT
    return K / K.sum(-1, keepdim=True), K.sum(-1) / K.sum()


@given(st.floats(1e-6, 0.5), st.floats(1e-6, 0.5), st.integers(3, 6))
def test_the_biased_ring_has_its_closed_forms(p, q, n):
    P = ring(p, q, n)
    assert_close(
        entropy_production(P, even(P)).item(), (p - q) * math.log(p / q), rtol=1e-7, atol=1e-24
    )
    assert_close(currents(P, even(P))[0, 1].item(), (p - q) / n, rtol=1e-9, atol=1e-17)
    affinity = cycle_affinities(P, torch.arange(n)).item()
    assert_close(affinity, n * math.log(p / q), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("size", [1e-2, 1e-5, 1e-8])
def test_small_asymmetries_keep_their_digits(size):
    """Hop rates a power of two, changed by a relative amount that floats hold exactly."""
    a = 2.0 ** round(math.log2(size))
    p, q = 0.25 * (1 + a), 0.25 * (1 - a)
    exact = 0.5 * a * math.log1p(2 * a / (1 - a))
    found = entropy_production(ring(p, q, 4), even(ring(p, q, 4))).item()
    # The flows are exact here; a logarithm of their ratio would be off by 1e-16/a.
    assert_close(found, exact, rtol=1e-13, atol=0)


def test_entropy_production_is_that_of_its_definition():
    P = torch.softmax(2 * scores(3, 8, 8), -1)
    law = torch.softmax(scores(3, 8, seed=1), -1)
    x = law[..., None] * P
    oracle = 0.5 * ((x - x.mT) * (x / x.mT).log()).sum((-2, -1))
    assert_close(entropy_production(P, law), oracle, rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [3, 20])
def test_detailed_balance_produces_nothing(n):
    P, law = reversible(n)
    assert_close(stationary_distribution(P), law, rtol=1e-13, atol=0)
    found = entropy_production(P, law).item()
    assert 0 <= found < 1e-28
    assert currents(P, law).abs().max() < 1e-16


def test_entropy_production_is_never_negative_next_to_balance():
    for seed in range(50):
        P, law = reversible(5, seed)
        assert entropy_production(P, law) >= 0


def test_entropy_production_is_the_divergence_rate_of_walk_and_reversal():
    """KL of paths of three tokens less that of two, summed over all paths."""
    P = torch.softmax(scores(4, 4), -1)
    pi = stationary_distribution(P)
    pair = pi[:, None] * P
    triple = pair[:, :, None] * P[None]
    kl = [(x * (x / x.permute(*range(x.ndim - 1, -1, -1))).log()).sum() for x in (pair, triple)]
    assert_close(entropy_production(P, pi), kl[1] - kl[0], rtol=1e-12, atol=0)
    assert_close(entropy_production(P, pi), kl[0], rtol=1e-12, atol=0)


def test_a_one_way_step_is_infinite_and_an_absent_edge_counts_nothing():
    assert entropy_production(ring(0.5, 0.0), even(ring(0.5, 0.0))).item() == math.inf
    sparse = ring(0.3, 0.2, 5)
    assert_close(entropy_production(sparse, even(sparse)).item(), 0.1 * math.log(1.5))
    two_parts = torch.block_diag(ring(0.3, 0.2), torch.eye(2, dtype=torch.float64))
    law = torch.tensor([1, 1, 1, 0, 0], dtype=torch.float64) / 3
    assert_close(entropy_production(two_parts, law).item(), 0.1 * math.log(1.5))


def test_flows_that_underflow_are_not_one_way():
    P = torch.tensor([[1.0, 1e-200], [1e-200, 1.0]], dtype=torch.float64)
    law = torch.tensor([1.0, 1e-200], dtype=torch.float64)
    # 1e-200·log(1e-200/1e-400), the second flow being zero in float64
    assert_close(entropy_production(P, law).item() * 1e200, 200 * math.log(10))
    one_way = torch.tensor([[1.0, 0.0], [1e-200, 1.0]], dtype=torch.float64)
    assert entropy_production(one_way, law).item() == math.inf, "though its flow underflows"


def test_entropy_production_equals_the_mean_flux_of_plain_softmax_attention():
    W, beta = scores(4, 12, 12), torch.tensor([0.3, 0.7, 1.0, 2.0], dtype=torch.float64)
    P = torch.softmax(beta[:, None, None] * W, -1)
    pi = stationary_distribution(P)
    assert_close(flux_production(W, beta, pi), entropy_production(P, pi), rtol=1e-12, atol=0)


def test_a_pair_missing_on_both_sides_does_not_break_the_identity():
    W = scores(6, 6)
    W[0, 3] = W[3, 0] = -torch.inf
    P = torch.softmax(0.7 * W, -1)
    pi = stationary_distribution(P)
    assert_close(flux_production(W, 0.7, pi), entropy_production(P, pi), rtol=1e-12, atol=0)


def test_the_mean_flux_is_not_the_entropy_production_of_damped_masked_or_displaced_chains():
    W, beta = scores(8, 8), 0.7
    P = torch.softmax(beta * W, -1)

    def gap(kernel, law):
        flux, production = flux_production(W, beta, law), entropy_production(kernel, law)
        return (flux / production - 1).abs().item()

    damped = 0.85 * P + 0.15 / 8
    assert gap(damped, stationary_distribution(damped)) > 0.05
    window = (torch.arange(8)[:, None] - torch.arange(8)).abs() <= 2
    masked = torch.softmax((beta * W).masked_fill(~window, -torch.inf), -1)
    assert gap(masked, stationary_distribution(masked)) > 0.05
    assert gap(P, even(P)) > 0.05


def test_the_law_must_be_stated():
    for routine in (currents, net_flow, entropy_production):
        with pytest.raises(InvalidInputError, match="stationary_distribution"):
            routine(ring(0.5, 0.2), None)


def test_cycle_affinity_is_twice_beta_times_the_flux_around_it():
    W, beta = scores(2, 7, 7), 0.6
    A = 0.5 * (W - W.mT)
    cycles = torch.tensor([[[0, 2, 3, 5], [6, 1, 4, 2]]])
    found = cycle_affinities(torch.softmax(beta * W, -1), cycles)
    oracle = 2 * beta * A[:, cycles, cycles.roll(-1, -1)].sum(-1)
    assert found.shape == (2, 1, 2)
    assert_close(found, oracle, rtol=1e-12, atol=1e-14)


def test_cycles_that_cannot_be_walked():
    one_way, absent = ring(0.5, 0.0), ring(0.3, 0.3, 5)
    assert cycle_affinities(one_way, torch.tensor([0, 1, 2])).item() == math.inf
    assert cycle_affinities(one_way, torch.tensor([2, 1, 0])).item() == -math.inf
    assert cycle_affinities(absent, torch.tensor([0, 1, 3])).isnan()


@pytest.mark.parametrize(
    ("cycles", "said"),
    [([0, 1], "three tokens"), ([0, 1, 3], "tokens 0 to 2"), ([0.0, 1.0, 2.0], "whole numbers")],
)
def test_cycles_are_checked(cycles, said):
    with pytest.raises(InvalidInputError, match=said):
        cycle_affinities(ring(0.3, 0.2), torch.tensor(cycles))


def test_currents_are_antisymmetric_and_sum_to_the_net_flow():
    P, law = torch.softmax(scores(2, 6, 6), -1), torch.softmax(scores(2, 6, seed=1), -1)
    J = currents(P, law)
    assert_close(J, -J.mT, rtol=0, atol=0)
    assert_close(J.sum(-1), net_flow(P, law), rtol=1e-12, atol=1e-16)
    assert_close(displacement(P, law), 0.5 * net_flow(P, law).abs().sum(-1), rtol=1e-12, atol=0)


@given(st.integers(0, 1000), st.floats(0.1, 6.0))
def test_nothing_is_displaced_at_the_stationary_law(seed, scale):
    P = torch.softmax(scale * scores(6, 6, seed=seed), -1)
    pi = stationary_distribution(P)
    assert net_flow(P, pi).abs().max() < 1e-15
    assert displacement(P, pi) < 1e-14
    assert displacement(P) > 1e-4, "the uniform law is moved"


def test_displacement_of_a_sink_is_what_has_not_arrived():
    P = torch.zeros(5, 5, dtype=torch.float64)
    P[:, 0] = 1.0
    assert_close(displacement(P).item(), 0.8)


def test_a_batch_with_all_three_kinds_of_edge():
    chains = torch.stack([ring(0.3, 0.2, 4), ring(0.5, 0.0, 4), ring(0.25, 0.25, 4)])
    found = entropy_production(chains, even(chains))
    assert_close(found[0].item(), 0.1 * math.log(1.5))
    assert found[1:].tolist() == [math.inf, 0.0]


def test_float32_kernels_are_read_in_float64():
    P = torch.softmax(scores(9, 9).float(), -1)
    assert entropy_production(P, stationary_distribution(P)).dtype == torch.float64
    assert net_flow(P, stationary_distribution(P)).abs().max() < 1e-15
