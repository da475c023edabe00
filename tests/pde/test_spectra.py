"""Spectra over positions and over the modes of a kernel."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.pde import graph_spectrum, token_spectrum


def wave(n, k, phase=0.3):
    return torch.cos(2 * math.pi * k * torch.arange(n) / n + phase).double()[:, None]


@pytest.mark.parametrize("n", [16, 17])
@pytest.mark.parametrize("k", [1, 4, 5, 7])
def test_a_wave_has_its_energy_at_its_frequency(n, k):
    spectrum = token_spectrum(wave(n, k) + 5)
    assert spectrum.shares.sum().item() == pytest.approx(1)
    assert spectrum.shares[k - 1].item() == pytest.approx(1)
    assert spectrum.frequencies[k - 1].item() == pytest.approx(k / n)
    assert spectrum.high_frequency.item() == pytest.approx(float(k / n > 0.25), abs=1e-12)


def test_the_highest_frequency_of_an_even_length_counts_once():
    spectrum = token_spectrum((-1.0) ** torch.arange(8).double()[:, None] + wave(8, 1, 0.0))
    assert spectrum.shares[[0, -1]].tolist() == pytest.approx([1 / 3, 2 / 3])


@given(st.integers(0, 10**6), st.integers(3, 20))
def test_shares_sum_to_one_and_ignore_the_mean(seed, n):
    x = torch.randn((n, 4), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    first, moved = token_spectrum(x), token_spectrum(x + torch.arange(4))
    assert first.shares.sum().item() == pytest.approx(1)
    torch.testing.assert_close(first.shares, moved.shares, rtol=1e-8, atol=1e-12)


def test_white_noise_has_a_flat_spectrum():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((128, 4000), generator=generator, dtype=torch.float64)
    want = torch.full((64,), 2 / 127, dtype=torch.float64)
    want[-1] = 1 / 127
    torch.testing.assert_close(token_spectrum(x).shares, want, rtol=0.1, atol=0)


def test_graph_spectrum_of_a_cycle_is_the_fourier_spectrum():
    n = 12
    P = torch.roll(torch.eye(n), 1, dims=1).double()
    x = torch.randn((n, 3), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    graph, fourier = graph_spectrum(P, x), token_spectrum(x)
    wanted = [1 - math.cos(2 * math.pi * k / n) for k in range(1, n // 2 + 1) for _ in range(2)][
        :-1
    ]
    assert graph.frequencies.tolist() == pytest.approx(wanted, abs=1e-12)
    pairs = [*graph.shares[:-1].view(-1, 2).sum(1).tolist(), graph.shares[-1].item()]
    assert pairs == pytest.approx(fourier.shares.tolist(), abs=1e-12)


def test_a_smooth_signal_lies_in_low_modes_of_its_graph():
    """Two communities: the split between them is the first mode, noise is not."""
    block = torch.ones(5, 5).double() / 5
    P = 0.99 * torch.block_diag(block, block) + 0.01 / 10
    split = torch.tensor([1.0] * 5 + [-1.0] * 5).double()[:, None]
    assert graph_spectrum(P, split).shares[0].item() == pytest.approx(1)
    within = torch.tensor([1.0, -1, 0, 0, 0] + [0.0] * 5).double()[:, None]
    assert graph_spectrum(P, within).shares[0].item() == pytest.approx(0, abs=1e-12)


def test_spectra_refuse_signals_without_variation():
    with pytest.raises(InvalidInputError, match="equal"):
        token_spectrum(torch.ones(6, 2))
    with pytest.raises(InvalidInputError, match="three"):
        token_spectrum(torch.randn(2, 2))
    with pytest.raises(InvalidInputError, match="square"):
        graph_spectrum(torch.eye(4)[:3], torch.randn(4, 2))
    with pytest.raises(InvalidInputError, match="tokens"):
        graph_spectrum(torch.eye(4), torch.randn(5, 2))


def test_a_batch_is_its_members():
    x = torch.randn((3, 9, 2), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    P = torch.softmax(x @ x.mT, -1)
    for j in range(3):
        torch.testing.assert_close(token_spectrum(x).shares[j], token_spectrum(x[j]).shares)
        torch.testing.assert_close(
            graph_spectrum(P, x).shares[j], graph_spectrum(P[j], x[j]).shares
        )
