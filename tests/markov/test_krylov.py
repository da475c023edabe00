"""Law and second eigenvalue from a Krylov space, against elimination and dense eigenvalues."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.markov import chain_quantities, spectrum, stationary_distribution
from flowscope.markov.krylov import leading_pair


def kernels(seed, n, size, count=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    z = size * torch.randn(count, n, n, generator=generator)
    return torch.softmax(z.to(dtype), -1)


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(3, 20), st.floats(0.05, 4))
def test_a_whole_space_is_exact(seed, n, size):
    P = kernels(seed, n, size)
    found = leading_pair(P, n)
    law, moduli = stationary_distribution(P), spectrum(P).abs()
    settled = found.settled(law=1e-9, modulus=1e-9)
    torch.testing.assert_close(found.law[settled], law[settled], atol=1e-8, rtol=0)
    torch.testing.assert_close(found.modulus[settled], moduli[settled, 1], atol=1e-7, rtol=0)
    assert bool(settled.any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 3.0, 6.0])
def test_errors_that_are_stated_cover_those_that_are_made(dtype, size):
    P = kernels(1, 120, size, count=6, dtype=dtype)
    found = leading_pair(P, 24)
    law, moduli = stationary_distribution(P), spectrum(P).abs()[:, 1]
    off = (found.law.double() - law).abs().sum(-1) / 2
    floor = 200 * torch.finfo(dtype).eps
    assert bool((off <= 4 * found.law_error + floor).all())
    assert bool(((found.modulus - moduli).abs() <= 20 * found.modulus_error + floor).all())


def test_a_bistochastic_chain_starts_elsewhere():
    """The lazy walk on a cycle: the uniform law is stationary, λ₂ = ½ + ½ cos(2π/n)."""
    n = 40
    step = torch.eye(n, dtype=torch.float64)
    P = step / 2 + (step.roll(1, 0) + step.roll(-1, 0)) / 4
    found = leading_pair(P[None], n - 1)
    torch.testing.assert_close(found.law, torch.full((1, n), 1 / n, dtype=torch.float64))
    expected = 0.5 + 0.5 * math.cos(2 * math.pi / n)
    assert float(found.modulus) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("odds", [2, 9, 30])
@pytest.mark.parametrize("dimension", [10, 20, 40, 64])
def test_a_drifting_chain_is_right_or_not_settled(odds, dimension, dtype):
    """A walk with drift on a line, |λ₂| = hold + 2√(pq) cos(π/n): P is far from normal.

    Its eigenvalues in floating point are off by a tenth and more, with residuals of rounding size.
    """
    n, hold = 128, 0.1
    p, q = 0.9 * odds / (1 + odds), 0.9 / (1 + odds)
    P = torch.eye(n, dtype=torch.float64) * hold
    for i in range(n):
        P[i, max(i - 1, 0)] += p
        P[i, min(i + 1, n - 1)] += q
    found = leading_pair(P[None].to(dtype), dimension)
    expected = hold + 2 * math.sqrt(p * q) * math.cos(math.pi / n)
    if bool(found.settled(law=1e-4, modulus=2e-3)):
        assert float(found.modulus) == pytest.approx(expected, abs=0.02)


def test_chains_that_do_not_settle_are_eliminated():
    """Two groups that hardly meet mix too slowly for a small space; the numbers are right still."""
    n = 80
    z = torch.randn(2, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z[1] += 14 * torch.block_diag(torch.ones(n // 2, n // 2), torch.ones(n // 2, n // 2))
    P = torch.softmax(z, -1)
    assert leading_pair(P, 8).settled(law=1e-4, modulus=1e-6).tolist() != [True, True]
    found, law = chain_quantities(z), stationary_distribution(P)
    torch.testing.assert_close(found["top_token"], law.amax(-1), rtol=1e-3, atol=0)
    torch.testing.assert_close(found["gap"], 1 - spectrum(P).abs()[:, 1], rtol=1e-2, atol=1e-9)
