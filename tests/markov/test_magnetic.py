"""The magnetic Laplacian: its closed form, its gauge, and what it refuses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import magnetic_cycle_spectrum
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.magnetic import holonomy, log_kernel, magnetic_laplacian

D = torch.float64


def scores(n=7, seed=0, batch=()):
    g = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(*batch, n, 3, generator=g, dtype=D) for _ in range(2))
    return q @ k.mT


def cycle(n):
    """The directed cycle: ±½ along its edges, nothing else."""
    W = torch.full((n, n), -torch.inf, dtype=D).fill_diagonal_(0.0)
    i = torch.arange(n)
    W[i, (i + 1) % n], W[(i + 1) % n, i] = 0.5, -0.5
    return W


def spectrum(W, beta, charge, **options):
    return torch.linalg.eigvalsh(magnetic_laplacian(W, beta, charge, **options))


heads = st.builds(
    scores, n=st.integers(2, 9), seed=st.integers(0, 10_000), batch=st.sampled_from([(), (2,)])
)
charges = st.floats(-2, 2)
strengths = st.floats(0.05, 3)


@pytest.mark.parametrize("n", [3, 4, 7, 12])
@pytest.mark.parametrize("charge", [0.0, 0.1, -0.23, 1 / 3, 0.5])
def test_the_directed_cycle_has_the_spectrum_of_its_closed_form(n, charge):
    found = spectrum(cycle(n), 0.8, charge, loops=False)
    assert_close(found, torch.from_numpy(magnetic_cycle_spectrum(n, charge)), rtol=0, atol=1e-12)


def test_a_loop_slows_the_directed_cycle():
    """With loops of weight one each row has degree three: 1 − (1 + 2cos)/3."""
    without = torch.from_numpy(magnetic_cycle_spectrum(6, 0.1))
    assert_close(spectrum(cycle(6), 0.8, 0.1), 2 / 3 * without, rtol=0, atol=1e-12)


@given(heads, strengths, charges, st.booleans())
def test_it_is_hermitian_with_spectrum_between_zero_and_two(W, beta, charge, loops):
    L = magnetic_laplacian(W, beta, charge, loops=loops)
    assert_close(L, L.mH, rtol=0, atol=0)
    found = torch.linalg.eigvalsh(L)
    assert found.min() > -1e-12
    assert found.max() < 2 + 1e-12


@given(heads, strengths)
def test_without_charge_it_is_one_minus_the_symmetric_diffusion_operator(W, beta):
    w = W.diagonal(dim1=-2, dim2=-1)
    P = torch.softmax(beta * (W + W.mT - w[..., None] - w[..., None, :]), -1)
    symmetric = (P * P.mT).sqrt()
    L = magnetic_laplacian(W, beta, 0.0)
    assert_close(L.imag, torch.zeros_like(L.imag), rtol=0, atol=0)
    assert_close(L.real, torch.eye(W.shape[-1], dtype=D) - symmetric)


@given(heads, strengths, charges, st.integers(0, 100))
def test_an_exact_field_is_a_gauge(W, beta, charge, seed):
    g = torch.Generator().manual_seed(seed)
    a = torch.randn(*W.shape[:-1], generator=g, dtype=D)
    tilted = W + a[..., None] - a[..., None, :]
    found = spectrum(tilted, beta, charge)
    assert_close(found, spectrum(W, beta, charge), rtol=0, atol=1e-10)
    turn = torch.polar(torch.ones_like(a), 4 * math.pi * charge * a)
    L = magnetic_laplacian(W, beta, charge)
    gauged = turn[..., None] * L * turn.conj()[..., None, :]
    assert_close(magnetic_laplacian(tilted, beta, charge), gauged, rtol=0, atol=1e-10)


@given(heads, strengths, charges)
def test_an_exact_flux_has_the_spectrum_without_charge(W, beta, charge):
    a = W.diagonal(dim1=-2, dim2=-1)
    exact = 0.5 * (W + W.mT) + a[..., None] - a[..., None, :]
    assert_close(spectrum(exact, beta, charge), spectrum(exact, beta, 0.0), rtol=0, atol=1e-10)


def test_a_flux_that_is_not_exact_lifts_the_lowest_eigenvalue():
    W = scores()
    assert spectrum(W, 0.5, 0.0)[0].abs() < 1e-12
    assert spectrum(W, 0.5, 0.1)[0] > 1e-2


@given(heads, strengths, charges)
def test_the_opposite_charge_is_the_transpose(W, beta, charge):
    L = magnetic_laplacian(W, beta, charge)
    assert_close(magnetic_laplacian(W, beta, -charge), L.mT)
    assert_close(magnetic_laplacian(W.mT, beta, charge), L.mT)


def test_heads_are_taken_one_by_one_with_their_own_strength():
    W, beta = scores(batch=(2, 3)), torch.rand(2, 3, dtype=D) + 0.1
    L = magnetic_laplacian(W, beta, 0.2)
    assert L.shape == W.shape
    assert_close(L[1, 2], magnetic_laplacian(W[1, 2], float(beta[1, 2]), 0.2))


def test_precision_follows_the_scores():
    W = scores()
    assert magnetic_laplacian(W, 1.0, 0.1).dtype == torch.complex128
    for dtype in (torch.float32, torch.bfloat16):
        assert magnetic_laplacian(W.to(dtype), 1.0, 0.1).dtype == torch.complex64


def test_divergences_far_below_zero_do_not_overflow():
    W = -2000 * torch.randn(6, 3, dtype=D) @ torch.randn(6, 3, dtype=D).mT
    E, _ = log_kernel(W)
    assert E.max() > 800, "beyond the range of float64"
    found = spectrum(W, 1.0, 0.1)
    assert found.isfinite().all()
    assert found.min() > -1e-12


def test_the_phase_around_a_cycle_is_the_flux_times_the_charge():
    W, q = scores(batch=(2,)), 0.3
    A = 0.5 * (W - W.mT)
    wanted = 4 * math.pi * q * (A[:, 0, 2] + A[:, 2, 5] + A[:, 5, 0])
    found = holonomy(W, q, [(0, 2, 5), (5, 2, 0), (1, 3)])
    assert_close(found, torch.stack([wanted, -wanted, torch.zeros_like(wanted)], -1))
    assert_close(holonomy(W, q, torch.tensor([[0, 2, 5]])), wanted[:, None])


@given(heads, charges, st.integers(0, 100))
def test_an_exact_field_has_no_phase_around_any_cycle(W, charge, seed):
    n = W.shape[-1]
    a = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=D)
    loop = [list(range(n))]
    found = holonomy(W + a[:, None] - a, charge, loop)
    assert_close(found, holonomy(W, charge, loop), rtol=0, atol=1e-10)


def test_equal_phases_around_the_cycle_are_equal_spectra():
    """Another flux on each edge with the same sum, and with a sum one full turn larger."""
    n, q = 5, 0.13
    uneven = cycle(n)
    shift = torch.tensor([0.4, -0.3, 0.2, -0.5, 0.2], dtype=D)
    i = torch.arange(n)
    uneven[i, (i + 1) % n] += shift
    uneven[(i + 1) % n, i] -= shift
    loop = [range(n)]
    assert_close(holonomy(uneven, q, loop), holonomy(cycle(n), q, loop))
    wanted = spectrum(cycle(n), 1.0, q, loops=False)
    assert_close(spectrum(uneven, 1.0, q, loops=False), wanted)
    turned = cycle(n)
    turned[0, 1] += 0.5 / q
    turned[1, 0] -= 0.5 / q
    assert_close(
        holonomy(turned, q, loop) - holonomy(uneven, q, loop), torch.tensor([2 * math.pi], dtype=D)
    )
    assert_close(spectrum(turned, 1.0, q, loops=False), wanted)


@pytest.mark.parametrize("charge", [math.nan, math.inf])
def test_a_charge_is_a_finite_number(charge):
    with pytest.raises(InvalidInputError, match="charge must be a finite number"):
        magnetic_laplacian(scores(), 1.0, charge)


def test_a_token_alone_needs_its_loop():
    W = torch.zeros(3, 3).masked_fill(
        torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]]) > 0, -math.inf
    )
    assert_close(magnetic_laplacian(W, 1.0, 0.1)[2], torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(InvalidInputError, match="keep the loops"):
        magnetic_laplacian(W, 1.0, 0.1, loops=False)


@pytest.mark.parametrize(
    ("cycles", "words"),
    [
        ([(0,)], "at least two"),
        ([(0, 9)], r"tokens 0 … 4"),
        ([(0, -1)], "whole numbers"),
        ([(0.0, 1.0)], "whole numbers"),
        ([(0, 2)], "masked"),
        ([], "no cycle"),
    ],
)
def test_a_cycle_must_be_there(cycles, words):
    with pytest.raises(InvalidInputError, match=words):
        holonomy(cycle(5), 0.1, cycles)
