"""Dials on scores: what each corner is, and that no row is told of a later token."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.bidivergence import Bidivergence
from flowscope.markov.dials import degree_tilt, dialled_logits, operator_square
from flowscope.markov.kernels import attention_kernel, diffusion_kernel

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
dials = st.floats(-2, 2)


def close(found, wanted, tolerance=1e-12):
    assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def causal(z):
    return z.masked_fill(torch.ones(z.shape[-2:]).triu(1) > 0, -inf)


# --- sectors ---


@given(scores(), betas)
def test_all_dials_at_one_are_the_scores_themselves(W, beta):
    close(dialled_logits(W, beta), beta * W)


@given(scores(), betas, dials, dials, dials)
def test_dials_scale_the_sectors(W, beta, metric, exact, flux):
    b = Bidivergence.of(W)
    sectors = metric * b.metric + exact * b.exact - flux * b.flux
    found = dialled_logits(W, beta, metric=metric, exact=exact, flux=flux)
    close(torch.softmax(found, -1), torch.softmax(-beta * sectors, -1), 1e-11)


@given(scores(), betas)
def test_doubled_metric_alone_is_the_diffusion_map(W, beta):
    z = dialled_logits(W, beta, metric=2, exact=0, flux=0)
    close(torch.softmax(z, -1), diffusion_kernel(W, beta), 1e-11)


@given(scores(), dials, dials)
def test_a_row_constant_is_free_where_exact_and_flux_turn_together(W, metric, turn):
    shifted = W + normal(*W.shape[:-1], 1, seed=3)
    one, two = (
        torch.softmax(dialled_logits(x, metric=metric, exact=turn, flux=turn), -1)
        for x in (W, shifted)
    )
    close(one, two, 1e-11)


def test_a_row_constant_is_a_tilt_where_they_do_not():
    W, c = normal(4, 4), normal(4, seed=3)
    one, two = (dialled_logits(x, exact=0.0) for x in (W, W + c[:, None]))
    close(torch.softmax(two, -1), torch.softmax(one - c / 2, -1))


@given(scores(smallest=3), betas, dials, dials, dials)
def test_an_entry_depends_on_its_two_tokens_only(W, beta, metric, exact, flux):
    changed = W.clone()
    changed[..., -1, :] += 1
    changed[..., :, -1] -= 2
    one, two = (
        dialled_logits(x, beta, metric=metric, exact=exact, flux=flux) for x in (W, changed)
    )
    assert torch.equal(one[..., :-1, :-1], two[..., :-1, :-1])


def test_masked_pairs_stay_masked_whatever_the_dials():
    here = torch.arange(5) < 2
    W = normal(5, 5).masked_fill(here[:, None] != here, -inf)
    for metric in (0.0, 1.0, -1.0):
        z = dialled_logits(W, metric=metric, exact=0.3, flux=0.0)
        assert torch.equal(z.isneginf(), W.isneginf())
        assert not z.isnan().any()


def test_each_head_has_its_own_dial():
    W, flux = normal(3, 4, 4), torch.tensor([0.0, 0.5, 1.0], dtype=D)
    for h in range(3):
        close(dialled_logits(W, flux=flux)[h], dialled_logits(W[h], flux=float(flux[h])))


# --- operator square ---


@given(st.integers(2, 8), betas, st.integers(0, 10**6))
def test_corners_of_the_operator_square(tokens, beta, seed):
    q, k = normal(2, tokens, 3, seed=seed), normal(2, tokens, 3, seed=seed + 1)
    W, m = q @ k.mT, (q + k) / math.sqrt(2)
    gaps = (m[:, :, None] - m[:, None]).pow(2).sum(-1)
    corner = {
        (1, 1): attention_kernel(W, beta),
        (0, 1): torch.softmax(-beta / 2 * Bidivergence.of(W).symmetric, -1),
        (0, 0): torch.softmax(-beta / 4 * gaps, -1),
    }
    for (a, b), wanted in corner.items():
        close(torch.softmax(operator_square(q, k, beta, a=a, b=b), -1), wanted)


@given(st.integers(2, 8), dials, dials, st.integers(0, 10**6))
def test_the_square_is_that_of_its_definition(tokens, a, b, seed):
    q, k = normal(tokens, 3, seed=seed), normal(tokens, 3, seed=seed + 1)
    m, n = (q + k) / math.sqrt(2), (q - k) / math.sqrt(2)
    g = 0.5 * (m * m).sum(-1) - b * 0.5 * (n * n).sum(-1)
    found = operator_square(q, k, a=a, b=b)
    for i in range(tokens):
        for j in range(tokens):
            wanted = (
                0.5 * m[i] @ m[j] - b * 0.5 * n[i] @ n[j] + a * 0.5 * (q[i] @ k[j] - q[j] @ k[i])
            )
            close(found[i, j], wanted + (1 - a) * 0.5 * (g[i] - g[j]))


def test_the_square_and_the_sectors_share_an_edge():
    """b = 1: a turns the exact part and the flux, each against w_i."""
    q, k = normal(2, 5, 3), normal(2, 5, 3, seed=1)
    W = q @ k.mT
    for a in (0.0, 0.4, 1.0):
        one = operator_square(q, k, a=a, b=1.0)
        two = dialled_logits(W, exact=a, flux=a)
        close(torch.softmax(one, -1), torch.softmax(two, -1))


# --- degrees ---


@given(scores(), betas, st.floats(0, 1))
def test_the_tilt_of_the_doubled_metric_is_the_alpha_normalisation(W, beta, alpha):
    z = dialled_logits(W, beta, metric=2, exact=0, flux=0)
    tilted = z + degree_tilt(W, beta, alpha=alpha, metric=2)
    close(torch.softmax(tilted, -1), diffusion_kernel(W, beta, alpha), 1e-11)


@given(scores(), betas, st.floats(0, 1), dials)
def test_causal_degrees_sum_up_to_the_row(W, beta, alpha, metric):
    K = torch.exp(-beta / 2 * metric * Bidivergence.of(W / 4).symmetric)
    found = degree_tilt(W / 4, beta, alpha=alpha, metric=metric, causal=True)
    tokens = W.shape[-1]
    for i in range(tokens):
        wanted = -alpha * K[..., : i + 1, : i + 1].sum(-2).log()
        close(found[..., i, : i + 1], wanted)
        assert not found[..., i, i + 1 :].any()
    whole = degree_tilt(W / 4, beta, alpha=alpha, metric=metric)
    close(found[..., -1, :], whole[..., -1, :])


@given(scores(smallest=3), st.floats(0, 1), dials, st.integers(1, 7))
def test_a_later_token_changes_no_earlier_row(W, alpha, metric, first):
    first = min(first, W.shape[-1] - 1)

    def rows(W):
        z = dialled_logits(W, metric=metric, exact=0.5, flux=2.0)
        tilt = degree_tilt(W, alpha=alpha, metric=metric, causal=True)
        return torch.softmax(causal(z + tilt), -1)[..., :first, :]

    later = W.clone()
    later[..., first:, :] += 3 * normal(*W[..., first:, :].shape, seed=1)
    later[..., :, first:] *= -2
    assert torch.equal(rows(W), rows(later))


def test_degrees_over_all_tokens_do_tell_of_later_ones():
    """What the causal sum is for."""
    W = normal(4, 4)
    later = W.clone()
    later[3, 3] += 5
    one, two = (degree_tilt(x, alpha=1.0)[:3, :3] for x in (W, later))
    assert float((one - two).abs().max()) > 0.1


def test_masked_pairs_count_in_no_degree():
    here = torch.arange(5) < 2
    W = normal(5, 5)
    packed = W.masked_fill(here[:, None] != here, -inf)
    for flag in (False, True):
        found = degree_tilt(packed, alpha=0.7, causal=flag)
        close(found[:2, :2], degree_tilt(W[:2, :2], alpha=0.7, causal=flag))
        close(found[2:, 2:], degree_tilt(W[2:, 2:], alpha=0.7, causal=flag))


# --- slopes, refusals ---


def test_slopes_pass_through_the_dials():
    W, q, k = (normal(*s).requires_grad_() for s in ((4, 4), (4, 2), (4, 2)))
    assert torch.autograd.gradcheck(
        lambda W: dialled_logits(W, flux=0.3) + degree_tilt(W, alpha=0.5, causal=True), (W,)
    )
    assert torch.autograd.gradcheck(lambda q, k: operator_square(q, k, a=0.2, b=0.7), (q, k))


def test_slopes_are_numbers_where_pairs_are_masked():
    here = torch.arange(5) < 2
    W = normal(5, 5).masked_fill(here[:, None] != here, -inf).requires_grad_()
    z = dialled_logits(W, metric=0.5) + degree_tilt(W, alpha=0.5, metric=0.5, causal=True)
    (torch.softmax(z, -1) * normal(5, 5, seed=1)).sum().backward()
    assert bool(W.grad.isfinite().all())
    assert not W.grad[here[:, None] != here].any()
    assert W.grad[~here][:, ~here].any()


@pytest.mark.parametrize("name", ["metric", "exact", "flux"])
@pytest.mark.parametrize("value", [math.nan, inf])
def test_a_dial_that_is_no_number_is_refused(name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be finite"):
        dialled_logits(normal(3, 3), **{name: value})


def test_dials_of_another_batch_are_refused():
    with pytest.raises(InvalidInputError, match="flux must be one number or one for each matrix"):
        dialled_logits(normal(2, 3, 3), flux=torch.ones(3))


@pytest.mark.parametrize(
    ("q", "k", "sentence"),
    [
        (normal(4, 3), normal(5, 3), "same shape"),
        (normal(8, 4, 3), normal(2, 4, 3), "Repeat key heads"),
        (normal(1, 3), normal(1, 3), "two tokens"),
        (normal(3), normal(3), "tokens by width"),
        (normal(3, 2) * inf, normal(3, 2), "finite"),
    ],
)
def test_queries_and_keys_that_do_not_match_are_refused(q, k, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        operator_square(q, k)


def test_dials_refuse_scores_that_are_masked_already():
    with pytest.raises(InvalidInputError, match="one side"):
        dialled_logits(causal(normal(3, 3)))
    with pytest.raises(InvalidInputError, match="alpha must lie"):
        degree_tilt(normal(3, 3), alpha=1.2)
    with pytest.raises(InvalidInputError, match="beta must be positive"):
        degree_tilt(normal(3, 3), 0.0, alpha=0.2)
