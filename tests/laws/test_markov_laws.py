"""Laws that hold for every kernel of the package, whatever the scores."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope import markov


def _bridged(W):
    P = markov.attention_kernel(W)
    n = P.shape[-1]
    end = torch.arange(1, n + 1, dtype=P.dtype)
    uniform = torch.full((n,), 1 / n, dtype=P.dtype)
    return markov.kernel_bridge(P, uniform, end / end.sum()).forward


KERNELS = {
    "attention": markov.attention_kernel,
    "attention, backward": lambda W: markov.attention_kernel(W, direction="backward"),
    "diffusion": markov.diffusion_kernel,
    "diffusion, α = ½": lambda W: markov.diffusion_kernel(W, alpha=0.5),
    "diffusion, α = 1": lambda W: markov.diffusion_kernel(W, alpha=1.0),
    "experts": lambda W: markov.product_of_experts(
        markov.attention_kernel(W), markov.attention_kernel(W.mT)
    ),
    "Doob": lambda W: markov.doob_transform(
        markov.attention_kernel(W), torch.linspace(1, 3, W.shape[-1], dtype=W.dtype)
    ),
    "damped": lambda W: markov.damped_kernel(markov.attention_kernel(W), 0.1),
    "Sinkhorn": lambda W: markov.sinkhorn_kernel(W, iterations=400),
    "bridge": _bridged,
    "dialled": lambda W: torch.softmax(markov.dialled_logits(W, metric=0.5, flux=2.0), -1),
}
REVERSIBLE = {"diffusion", "diffusion, α = ½", "diffusion, α = 1", "experts"}


def scores(seed, n):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n, dtype=torch.float64, generator=generator)


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 7))
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_a_kernel_and_its_law_stays(name, seed, n):
    P = KERNELS[name](scores(seed, n))
    assert_close(P.sum(-1), torch.ones(n, dtype=P.dtype), rtol=0, atol=1e-12)
    assert bool((P >= 0).all())
    law = markov.stationary_distribution(P)
    assert_close(law @ P, law, rtol=1e-12, atol=1e-15)
    assert float(markov.net_flow(P, law).abs().max()) < 1e-14


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 7))
@pytest.mark.parametrize("name", KERNELS)
def test_time_reversal_is_an_involution_that_keeps_law_gap_and_entropy_production(name, seed, n):
    P = KERNELS[name](scores(seed, n))
    law = markov.stationary_distribution(P)
    back = markov.time_reversal(P, law)
    assert_close(markov.stationary_distribution(back), law, rtol=1e-10, atol=1e-14)
    assert_close(markov.time_reversal(back, law), P, rtol=1e-9, atol=1e-13)
    sigma = markov.entropy_production(P, law)
    assert float(sigma) >= 0
    assert_close(markov.entropy_production(back, law), sigma, rtol=1e-8, atol=1e-13)
    assert_close(markov.currents(back, law), -markov.currents(P, law), rtol=1e-8, atol=1e-14)
    assert_close(markov.spectral_gap(back), markov.spectral_gap(P), rtol=1e-6, atol=1e-9)


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 7))
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"Doob", "bridge"}))
def test_names_of_tokens_do_not_matter(name, seed, n):
    """The two kernels that are left out are tilted towards given tokens."""
    W = scores(seed, n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    P, renamed = KERNELS[name](W), KERNELS[name](W[order][:, order])
    assert_close(renamed, P[order][:, order], rtol=1e-9, atol=1e-12)
    laws = [markov.stationary_distribution(x) for x in (P, renamed)]
    assert_close(laws[1], laws[0][order], rtol=1e-8, atol=1e-13)
    one, two = (
        markov.entropy_production(x, law) for x, law in zip((P, renamed), laws, strict=True)
    )
    assert_close(one, two, rtol=1e-7, atol=1e-12)


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 7))
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_what_is_mutual_are_reversible_and_others_are_not(name, seed, n):
    P = KERNELS[name](scores(seed, n))
    law = markov.stationary_distribution(P)
    cycles = torch.combinations(torch.arange(n), 3)
    affinity = float(markov.cycle_affinities(P, cycles).abs().max())
    sigma = float(markov.entropy_production(P, law))
    if name in REVERSIBLE:
        assert affinity < 1e-10
        assert sigma < 1e-12
    else:
        assert affinity > 1e-6
        assert sigma > 0
