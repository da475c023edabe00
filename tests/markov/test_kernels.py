"""Kernels made of scores: what each equals, what it keeps, and what is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.bidivergence import Bidivergence
from flowscope.markov.kernels import (
    attention_kernel,
    damped_kernel,
    diffusion_kernel,
    doob_transform,
    product_of_experts,
    sinkhorn_kernel,
    time_reversal,
)

D = torch.float64
inf = math.inf


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=D)


@st.composite
def scores(draw, smallest=2):
    """Scores of one to three heads over two to eight tokens."""
    heads, tokens = draw(st.integers(1, 3)), draw(st.integers(smallest, 8))
    return 2 * normal(heads, tokens, tokens, seed=draw(st.integers(0, 10**6)))


betas = st.floats(0.05, 3)


def close(found, wanted, tolerance=1e-12):
    assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def row_normalised(K):
    return K / K.sum(-1, keepdim=True)


def gradient(a):
    return a[..., :, None] - a[..., None, :]


def causal(W):
    return W.masked_fill(torch.ones(W.shape[-2:]).triu(1) > 0, -inf)


def kernel(*shape, seed=0):
    return torch.softmax(normal(*shape, seed=seed), -1)


# --- attention ---


@given(scores(), betas)
def test_attention_is_the_softmax_of_either_form(W, beta):
    P = attention_kernel(W, beta)
    close(P, torch.softmax(beta * W, -1))
    close(P, torch.softmax(-beta * Bidivergence.of(W).forward, -1))


@given(scores(), betas)
def test_backward_attention_is_the_softmax_of_the_backward_divergence(W, beta):
    P = attention_kernel(W, beta, direction="backward")
    close(P, torch.softmax(-beta * Bidivergence.of(W).backward, -1))


@given(scores(), betas)
def test_a_row_constant_changes_no_kernel(W, beta):
    shifted = W + normal(*W.shape[:-1], 1, seed=3)
    for direction in ("forward", "backward"):
        one, two = (attention_kernel(x, beta, direction=direction) for x in (W, shifted))
        close(one, two)
    close(diffusion_kernel(W, beta, 0.5), diffusion_kernel(shifted, beta, 0.5), 1e-11)
    close(sinkhorn_kernel(W, beta, iterations=2), sinkhorn_kernel(shifted, beta, iterations=2))


def test_each_head_has_its_own_strength():
    W, beta = normal(3, 4, 4), torch.tensor([0.5, 1.0, 2.0], dtype=D)
    for h in range(3):
        assert torch.equal(attention_kernel(W, beta)[h], attention_kernel(W[h], float(beta[h])))


def test_attention_takes_a_causal_mask_and_cross_attention():
    W = causal(normal(2, 4, 4))
    close(attention_kernel(W, 0.5), torch.softmax(0.5 * W, -1))
    cross = normal(3, 5)
    close(attention_kernel(cross), torch.softmax(cross, -1))


def test_backward_attention_under_a_causal_mask_looks_ahead_only():
    P = attention_kernel(causal(normal(4, 4)), direction="backward")
    assert not P.tril(-1).any()
    close(P.sum(-1), torch.ones(4, dtype=D))


@given(scores(smallest=3), betas)
def test_cycle_affinity_is_twice_beta_times_the_flux_around(W, beta):
    P, A = attention_kernel(W, beta), Bidivergence.of(W).flux
    ahead = P[:, 0, 1].log() + P[:, 1, 2].log() + P[:, 2, 0].log()
    back = P[:, 0, 2].log() + P[:, 2, 1].log() + P[:, 1, 0].log()
    close(ahead - back, 2 * beta * (A[:, 0, 1] + A[:, 1, 2] + A[:, 2, 0]), 1e-11)


@given(scores(), betas)
def test_exact_flux_makes_attention_reversible_and_a_doob_tilt(W, beta):
    a = normal(*W.shape[:-1], seed=5)
    S = (W + W.mT) / 2
    P = attention_kernel(S + gradient(a), beta)
    # π_i ∝ e^{−βa_i} Σ_j e^{β(S_ij − a_j)} in closed form
    weight = torch.logsumexp(beta * (S - a[:, None, :]), -1) - beta * a
    flow = torch.softmax(weight, -1)[..., None] * P
    close(flow, flow.mT)
    close(P, doob_transform(attention_kernel(S, beta), torch.exp(-beta * a)))
    b = Bidivergence.of(S + gradient(a))
    close(P, doob_transform(torch.softmax(-beta * b.metric, -1), torch.exp(beta * b.potential)))


@given(scores(smallest=3))
def test_flux_that_is_not_exact_leaves_no_law_in_balance(W):
    """Kolmogorov: some triangle has an affinity, so no π balances every pair."""
    b, P = Bidivergence.of(W), attention_kernel(W)
    size = b.coexact.abs().amax((-2, -1))
    L = P.log()
    around = L[..., :, :, None] + L[..., None, :, :] + L.mT[..., :, None, :]  # ij, jk, ki
    turned = L[..., :, None, :] + L.mT[..., None, :, :] + L.mT[..., :, :, None]  # ik, kj, ji
    affinity = (around - turned).abs().amax((-3, -2, -1))
    assert bool((affinity > 1e-3 * size).all())


# --- diffusion ---


@given(scores(), betas)
def test_diffusion_is_the_product_of_the_two_experts(W, beta):
    forward, backward = (attention_kernel(W, beta, direction=d) for d in ("forward", "backward"))
    P = diffusion_kernel(W, beta)
    close(P, row_normalised(forward * backward))
    close(P, product_of_experts(forward, backward))
    close(P, torch.softmax(-beta * Bidivergence.of(W).symmetric, -1))


@given(scores(), betas, st.floats(0, 1))
def test_alpha_normalisation_is_the_ratio_and_a_doob_transform(W, beta, alpha):
    K = torch.exp(-beta / 4 * Bidivergence.of(W).symmetric)
    g = K.sum(-1)
    P = diffusion_kernel(W, beta / 4, alpha)
    close(P, row_normalised(K / (g[..., :, None] * g[..., None, :]) ** alpha), 1e-11)
    close(P, doob_transform(diffusion_kernel(W, beta / 4), g**-alpha), 1e-11)


@given(st.integers(2, 8), betas, st.integers(0, 10**6))
def test_equal_queries_and_keys_give_the_coifman_lafon_map(tokens, beta, seed):
    x = normal(2, tokens, 3, seed=seed)
    gaps = (x[:, :, None] - x[:, None]).pow(2).sum(-1)
    close(diffusion_kernel(x @ x.mT, beta), row_normalised(torch.exp(-beta * gaps)), 1e-11)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_points_of_a_circle_have_the_spectrum_of_bessel(alpha):
    """Equal degrees: α does not matter."""
    angle = 2 * math.pi * torch.arange(60, dtype=D) / 60
    x = torch.stack([angle.cos(), angle.sin()], -1)
    found = torch.linalg.eigvalsh(diffusion_kernel(x @ x.mT, 2.0, alpha)).flip(0)[:7]
    wanted = oracles.circle_diffusion_spectrum(2.0, [0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@given(scores(), betas, st.floats(0, 1))
def test_diffusion_is_reversible(W, beta, alpha):
    P = diffusion_kernel(W / 4, beta, alpha)
    logs = torch.log(P)
    drive = logs - logs.mT  # exact if the chain is reversible
    close(drive, gradient(drive.mean(-1)), 1e-10)


def test_divergences_far_below_zero_do_not_overflow():
    W = torch.tensor([[0.0, 900.0], [900.0, 0.0]])
    assert torch.equal(diffusion_kernel(W, 1.0, 1.0), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


# --- products, tilts, reversal, damping ---


def test_experts_with_nothing_in_common_are_refused():
    eye = torch.eye(3, dtype=D)
    with pytest.raises(InvalidInputError, match=r"nothing in common at row \(0,\)"):
        product_of_experts(eye, eye.roll(1, 0))


def test_experts_that_each_underflow_are_multiplied_in_logarithms():
    P = torch.tensor([[1e-300, 1 - 1e-300], [0.5, 0.5]], dtype=D)
    found = product_of_experts(P, P.flip(-1), P.flip(-1), P)
    close(found, torch.full((2, 2), 0.5, dtype=D))


def test_one_expert_is_itself_and_none_is_refused():
    P = kernel(2, 3, 3)
    close(product_of_experts(P), P)
    with pytest.raises(InvalidInputError, match="at least one kernel"):
        product_of_experts()
    with pytest.raises(InvalidInputError, match="shapes"):
        product_of_experts(P, kernel(2, 4, 4))


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_tilts_add_up(tokens, seed):
    P = kernel(2, tokens, tokens, seed=seed)
    h, f = (normal(2, tokens, seed=seed + s).exp() for s in (1, 2))
    close(doob_transform(doob_transform(P, h), f), doob_transform(P, h * f))
    close(doob_transform(P, h), row_normalised(P * h[:, None, :]))
    close(doob_transform(P, torch.ones(tokens, dtype=D)), P)


def test_a_tilt_of_great_range_neither_overflows_nor_vanishes():
    P = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]], dtype=D)
    h = torch.tensor([1e-300, 1e-300, 1e300], dtype=D)
    close(doob_transform(P, h)[0], torch.tensor([0.5, 0.5, 0.0], dtype=D))


def test_a_tilt_that_leaves_a_row_nothing_is_refused():
    with pytest.raises(InvalidInputError, match=r"row \(0,\) sees only tokens where h is zero"):
        doob_transform(torch.eye(2, dtype=D), torch.tensor([0.0, 1.0], dtype=D))


@pytest.mark.parametrize(
    ("h", "sentence"),
    [
        ([1.0, -1.0], "not be negative"),
        ([1.0, math.nan], "finite"),
        ([1.0, inf], "finite"),
        ([1.0, 1.0, 1.0], "one number for each of 2 tokens"),
        ([[1.0, 1.0]] * 3, "leading shapes"),
    ],
)
def test_a_tilt_that_is_none_is_refused(h, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        doob_transform(kernel(2, 2, 2), h)


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_reversal_at_the_stationary_law(tokens, seed):
    """Its flow is the transposed flow; twice is the chain itself; the law stays."""
    P = kernel(tokens, tokens, seed=seed)
    pi = torch.linalg.matrix_power(P, 4096)[0]
    pi = pi / pi.sum()
    back = time_reversal(P, pi)
    close(pi[:, None] * back, (pi[:, None] * P).mT)
    close(back.sum(-1), torch.ones(tokens, dtype=D))
    close(time_reversal(back, pi), P)


@given(scores(), betas)
def test_reversible_chains_are_their_own_reversal(W, beta):
    D_ = Bidivergence.of(W / 4).symmetric
    degree = torch.softmax(torch.logsumexp(-beta * D_, -1), -1)
    P = diffusion_kernel(W / 4, beta)
    close(time_reversal(P, degree), P, 1e-11)


def test_reversal_refuses_a_law_that_moves_and_one_with_holes():
    P = kernel(3, 3)
    with pytest.raises(InvalidInputError, match="must be stationary"):
        time_reversal(P, None)
    with pytest.raises(InvalidInputError, match="no mass to token"):
        time_reversal(attention_kernel(causal(normal(3, 3))), torch.tensor([1.0, 0, 0], dtype=D))


def test_damping_mixes_with_the_uniform_law():
    P = kernel(2, 4, 4)
    close(damped_kernel(P, 0.0), P)
    close(damped_kernel(P, 1.0), torch.full_like(P, 0.25))
    close(damped_kernel(P, 0.15), 0.85 * P + 0.15 / 4)
    with pytest.raises(InvalidInputError, match="damping must lie"):
        damped_kernel(P, 1.5)


# --- Sinkhorn ---


def alternated(z, normalisations, first):
    """Rows and columns of e^z normalised in turn, so many times in all."""
    axis = {"rows": -1, "columns": -2}[first]
    for _ in range(normalisations):
        z = z - torch.logsumexp(z, axis, keepdim=True)
        axis = -3 - axis
    return z.exp()


@given(scores(), betas, st.integers(0, 4))
def test_sinkhorn_of_scores_and_of_the_forward_divergence_agree_at_every_count(W, beta, count):
    P = sinkhorn_kernel(W, beta, iterations=count)
    close(P, sinkhorn_kernel(-Bidivergence.of(W).forward, beta, iterations=count))
    close(P, alternated(beta * W, 2 * count + 1, "rows"))
    close(P.sum(-1), torch.ones(W.shape[:-1], dtype=D))


@given(scores(), betas, st.integers(0, 4))
def test_sinkhorn_of_the_backward_divergence_is_the_transpose_when_columns_come_first(
    W, beta, count
):
    backward = -beta * Bidivergence.of(W).backward
    transposed = alternated(backward, 2 * count + 1, "columns").mT
    close(sinkhorn_kernel(W, beta, iterations=count), transposed)


def test_sinkhorn_of_the_backward_divergence_with_rows_first_is_the_transpose_in_the_limit_only():
    W = normal(5, 5, seed=1)
    back = -Bidivergence.of(W).backward
    early, late = (
        (sinkhorn_kernel(back, iterations=k) - sinkhorn_kernel(W, iterations=k).mT).abs().max()
        for k in (1, 2000)
    )
    assert early > 1e-2
    assert late < 1e-12


def test_columns_first_tell_the_gauge_apart_until_the_limit():
    W = normal(5, 5, seed=1)
    forms = W, -Bidivergence.of(W).forward
    early, late = (
        (alternated(forms[0], k, "columns") - alternated(forms[1], k, "columns")).abs().max()
        for k in (2, 4000)
    )
    assert early > 1e-2
    assert late < 1e-12


def test_products_of_bistochastic_kernels_are_bistochastic():
    P, Q = (sinkhorn_kernel(normal(2, 6, 6, seed=s), iterations=2000) for s in (1, 2))
    for axis in (-1, -2):
        close((P @ Q).sum(axis), torch.ones(2, 6, dtype=D))


def test_a_bistochastic_kernel_reversed_at_the_uniform_law_is_its_transpose():
    P = sinkhorn_kernel(normal(2, 6, 6, seed=1), iterations=2000)
    close(time_reversal(P, None), P.mT)


# --- what is refused ---


@pytest.mark.parametrize("make", [attention_kernel, diffusion_kernel])
@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, inf])
def test_a_strength_that_is_not_positive_is_refused(make, beta):
    with pytest.raises(InvalidInputError, match="beta must be positive"):
        make(torch.zeros(2, 2), beta)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(InvalidInputError, match="alpha must lie"):
        diffusion_kernel(torch.zeros(2, 2), 1.0, alpha)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (torch.zeros(4), "queries by keys"),
        (torch.zeros(3, 1), "two keys"),
        (torch.zeros(0, 3), "two keys"),
        (torch.full((2, 2), math.nan), "NaN"),
        (torch.full((2, 2), inf), "below"),
        (torch.tensor([[0.0, 0.0], [-inf, -inf]]), r"masked whole, at \(1,\)"),
        (torch.zeros(2, 2).long(), "floating-point"),
    ],
)
def test_attention_refuses_what_gives_no_row(bad, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        attention_kernel(bad)


def test_backward_attention_needs_a_diagonal():
    with pytest.raises(InvalidInputError, match="square"):
        attention_kernel(torch.zeros(2, 3), direction="backward")
    with pytest.raises(InvalidInputError, match="diagonal"):
        attention_kernel(torch.tensor([[0.0, 1.0], [1.0, -inf]]), direction="backward")
    with pytest.raises(InvalidInputError, match="direction must be"):
        attention_kernel(torch.zeros(2, 2), direction="sideways")


def test_symmetric_kernels_refuse_a_causal_mask():
    for make in (diffusion_kernel, lambda W: sinkhorn_kernel(W, iterations=3)):
        with pytest.raises(InvalidInputError, match="one side"):
            make(causal(torch.zeros(3, 3)))


def test_slopes_pass_through_every_kernel():
    W = normal(4, 4).requires_grad_()
    h = torch.tensor([1.0, 0.0, 2.0, 1.0], dtype=D)

    def total(W):
        P = attention_kernel(W, 0.7)
        both = product_of_experts(P, diffusion_kernel(W, 0.3, 0.5))
        return doob_transform(both, h) + sinkhorn_kernel(W, iterations=2) + damped_kernel(P, 0.1)

    assert torch.autograd.gradcheck(total, (W,))
