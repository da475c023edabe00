"""Spectra, gaps and mixing times against closed forms and against all eigenvalues."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov import relaxation
from flowscope.markov.relaxation import mixing_time, relaxation_time, spectral_gap, spectrum
from flowscope.markov.stationary import stationary_distribution

N = 80  # above the size up to which all eigenvalues are computed


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def two_states(p, q):
    return torch.tensor([[1 - p, p], [q, 1 - q]], dtype=torch.float64)


def lazy_cycle(n):
    eye = torch.eye(n, dtype=torch.float64)
    return 0.5 * eye + 0.25 * (eye.roll(1, -1) + eye.roll(-1, -1))


def kernels():
    """One kernel of each kind that a head may have, and what is hard about it."""
    W, x = randn(N, N), torch.arange(N, dtype=torch.float64)
    sink = W.clone()
    sink[:, 0] += 4
    permuted = W.clone()
    permuted[torch.arange(N), torch.from_numpy(np.random.default_rng(0).permutation(N))] += 12
    K = torch.exp(W + W.mT)
    return {
        "random: eigenvalues fill a disk": torch.softmax(W, -1),
        "peaked": torch.softmax(8 * W, -1),
        "sink": torch.softmax(sink, -1),
        "near-permutation: eigenvalues fill a ring": torch.softmax(permuted, -1),
        "reversible": K / K.sum(-1, keepdim=True),
        "local: slow": torch.softmax(-(x[:, None] - x).abs() + 0.5 * W, -1),
        "drift: far from normal": torch.softmax(-1.5 * (x[:, None] - 1 - x).abs() + 0.3 * W, -1),
        "low rank": torch.softmax(2 * randn(N, 8) @ randn(8, N, seed=1) / math.sqrt(8), -1),
    }


@given(st.floats(1e-3, 0.999), st.floats(1e-3, 0.999))
def test_two_states_have_one_minus_p_minus_q(p, q):
    values = spectrum(two_states(p, q))
    assert_close(values.real, torch.tensor([1, 1 - p - q], dtype=torch.float64), rtol=0, atol=1e-14)
    gap = 1 - abs(1 - p - q)
    assert_close(spectral_gap(two_states(p, q)).item(), gap, rtol=0, atol=1e-14)
    assert_close(relaxation_time(two_states(p, q)).item(), 1 / gap, rtol=1e-10, atol=0)


@given(st.floats(0.01, 0.45), st.floats(0.01, 0.45), st.floats(0.01, 0.6))
def test_two_states_mix_when_the_closed_form_says_so(p, q, tolerance):
    """The distance from the worse start is max(p, q)/(p+q)·(1−p−q)ᵗ."""
    exact = math.log(tolerance * (p + q) / max(p, q)) / math.log(1 - p - q)
    if abs(exact - round(exact)) < 1e-6:
        return
    assert mixing_time(two_states(p, q), tolerance).item() == max(0, math.ceil(exact))


@pytest.mark.parametrize("n", [5, 20, 100])
def test_the_lazy_walk_on_a_cycle_has_its_cosine(n):
    slow = 0.5 + 0.5 * math.cos(2 * math.pi / n)
    assert_close(spectral_gap(lazy_cycle(n)).item(), 1 - slow, rtol=1e-4, atol=0)
    assert_close(relaxation_time(lazy_cycle(n)).item(), 1 / (1 - slow), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n", [40, 60, 120])
def test_a_drifting_walk_has_its_closed_form_where_plain_eigenvalues_are_wrong(n):
    """Steps up p and down q on a line, staying at the ends: 1 − p − q + 2√(pq) cos(πk/n)."""
    p, q = 0.05, 0.7
    eye = torch.eye(n, dtype=torch.float64)
    P = p * eye.roll(1, -1).triu(1) + q * eye.roll(-1, -1).tril(-1)
    P = P + torch.diag(1 - P.sum(-1))
    k = torch.arange(1, n, dtype=torch.float64)
    values = 1 - p - q + 2 * math.sqrt(p * q) * (math.pi * k / n).cos()
    gap = 1 - values.abs().max().item()
    assert_close(spectral_gap(P).item(), gap, rtol=1e-4, atol=0)
    assert_close(spectrum(P)[0].item(), 1 + 0j, rtol=0, atol=1e-10)
    plain = np.sort(np.abs(np.linalg.eigvals(P.numpy())))[-2]
    assert abs(1 - plain - gap) > 1e-3 * gap or n < 60


def test_the_spectrum_of_a_cycle_is_the_roots_of_unity_in_order():
    values = spectrum(torch.eye(5, dtype=torch.float64).roll(1, -1))
    roots = torch.exp(2j * math.pi * torch.arange(5, dtype=torch.float64) / 5)
    assert_close(values, roots, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [6, 100])
def test_a_deterministic_cycle_never_settles(n):
    P = torch.eye(n, dtype=torch.float64).roll(1, -1)
    assert spectral_gap(P) < 1e-8
    assert relaxation_time(P).item() == math.inf
    assert mixing_time(P).item() == math.inf


def test_separate_parts_have_no_gap_and_no_mixing_time():
    part = torch.softmax(randn(50, 50), -1)
    P = torch.block_diag(part, part)
    assert spectral_gap(P) < 1e-12
    with pytest.raises(InvalidInputError, match="closed classes"):
        mixing_time(P)


def test_a_kernel_of_equal_rows_forgets_at_once():
    for n in (5, 100):
        P = torch.softmax(randn(n), -1).expand(n, n)
        assert_close(spectral_gap(P).item(), 1.0)
        assert mixing_time(P).item() == 1


@pytest.mark.parametrize("kind", kernels())
def test_the_gap_beyond_the_small_size_agrees_with_all_eigenvalues(kind):
    P = kernels()[kind]
    scale = np.sqrt(stationary_distribution(P).numpy())
    second = np.sort(np.abs(np.linalg.eigvals(scale[:, None] * P.numpy() / scale)))[-2]
    assert_close(math.log(1 - spectral_gap(P).item()), math.log(second), rtol=2e-4, atol=0)


def test_the_ways_to_the_gap_agree_in_one_batch_and_all_are_taken():
    P = torch.stack(list(kernels().values()))
    S, root = relaxation._balanced(P, None)
    A = S - root
    residual = relaxation._ritz_modulus(A)[1]
    found, settled = relaxation._growth(A)
    taken = residual <= relaxation._RESIDUAL
    assert 0 < taken.sum() < len(P)
    assert 0 < settled.sum() < len(P)
    exact = relaxation._largest(A)
    assert_close(found[settled].log(), exact[settled].log(), rtol=2e-4, atol=0)
    assert (exact[~settled] > 0.99).all(), "slow chains get all their eigenvalues"
    assert_close(spectral_gap(P), 1 - exact, rtol=2e-4, atol=0)


def test_a_ring_of_nearly_equal_moduli_is_not_taken_for_settled():
    """Near-permutations: norms of powers stand still long before the largest modulus leads."""
    generator = torch.Generator().manual_seed(3)
    W = torch.randn(6, N, N, generator=generator, dtype=torch.float64)
    for b in range(6):
        W[b, torch.arange(N), torch.randperm(N, generator=generator)] += 14
    P = torch.softmax(W, -1)
    exact = 1 - spectrum(P)[:, 1].abs()
    assert_close(spectral_gap(P), exact, rtol=2e-4, atol=0)


def test_the_gap_of_a_causal_kernel_is_that_of_its_diagonal():
    P = torch.softmax(randn(10, 10), -1).tril()
    P = P / P.sum(-1, keepdim=True)
    assert_close(spectral_gap(P), 1 - P.diagonal()[1:].max(), rtol=1e-10, atol=0)


def test_mixing_time_is_that_of_powers_one_by_one():
    P = torch.softmax(torch.stack([randn(9, 9), 5 * randn(9, 9, seed=1)]), -1)
    P = torch.cat([P, lazy_cycle(9)[None]])
    pi = stationary_distribution(P)
    found = mixing_time(P, 0.1)
    for b in range(3):
        power, steps = torch.eye(9, dtype=torch.float64), 0
        while 0.5 * (power - pi[b]).abs().sum(-1).max() > 0.1:
            power, steps = power @ P[b], steps + 1
        assert found[b].item() == steps
    assert len(set(found.tolist())) == 3
    assert_close(mixing_time(P, 0.1, law=pi), found)


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 6, 7, 8, 9, 60])
def test_a_time_beyond_the_cap_is_infinite_and_one_within_is_not(longest):
    P = two_states(0.05, 0.05)  # ½·.9ᵗ ≤ ¼ from t = 7 on
    assert mixing_time(P, longest=longest).item() == (7 if longest >= 7 else math.inf)


def test_a_very_slow_chain_is_timed_exactly():
    p = 1e-4
    exact = math.log(0.5) / math.log1p(-2 * p)
    assert mixing_time(two_states(p, p)).item() == math.ceil(exact)


def test_a_law_that_is_near_every_start_is_mixed_at_once():
    assert mixing_time(two_states(0.5, 0.5), 0.6).item() == 0


def test_shapes_and_dtypes():
    P = torch.softmax(randn(2, 3, 70, 70).float(), -1)
    assert spectral_gap(P).shape == mixing_time(P).shape == (2, 3)
    assert spectral_gap(P).dtype == torch.float64
    assert spectrum(P[0]).shape == (3, 70)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, math.nan])
def test_tolerance_is_checked(tolerance):
    with pytest.raises(InvalidInputError, match="tolerance"):
        mixing_time(lazy_cycle(5), tolerance)
