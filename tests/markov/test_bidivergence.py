"""The two divergences of scores: sectors, gauge, signature, and the ratio of the weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.bidivergence import Bidivergence, weight_ratio

D = torch.float64
inf = math.inf


def normal(*shape, seed=0, dtype=D):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@st.composite
def scores(draw):
    """Scores of one to three heads over two to eight tokens."""
    heads, tokens = draw(st.integers(1, 3)), draw(st.integers(2, 8))
    return 2 * normal(heads, tokens, tokens, seed=draw(st.integers(0, 10**6)))


def close(found, wanted, tolerance=1e-12):
    assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def packed(W):
    """Two documents that do not see each other: the first two tokens, and the rest."""
    here = torch.arange(W.shape[-1]) < 2
    return W.masked_fill(here[:, None] != here, -inf)


def gradient(a):
    return a[..., :, None] - a[..., None, :]


# --- divergences and sectors ---


@given(scores())
def test_divergences_are_those_of_their_definition(W):
    b = Bidivergence.of(W)
    for i in range(W.shape[-1]):
        for j in range(W.shape[-1]):
            close(b.forward[..., i, j], W[..., i, i] - W[..., i, j])
            close(b.backward[..., i, j], W[..., j, j] - W[..., j, i])
    assert torch.equal(b.symmetric, b.symmetric.mT)
    assert not b.symmetric.diagonal(dim1=-2, dim2=-1).any()


@given(scores())
def test_forward_is_metric_plus_exact_minus_flux(W):
    b = Bidivergence.of(W)
    close(b.forward, b.metric + b.exact - b.flux)
    close(b.metric, b.symmetric / 2)
    close(b.exact, -b.exact.mT)
    close(b.flux, (W - W.mT) / 2)


@given(scores())
def test_forward_is_metric_plus_potential_minus_coexact(W):
    """The same split with the exact part of the flux moved to where no gauge moves it."""
    b = Bidivergence.of(W)
    close(b.forward, b.metric + gradient(b.potential) - b.coexact)
    close(b.potential.sum(-1), torch.zeros(len(W), dtype=D))
    close(b.coexact.sum(-1), torch.zeros(W.shape[:-1], dtype=D))


def test_symmetric_part_is_the_quadratic_form_of_the_symmetric_weights():
    R, B = normal(6, 4, seed=1), normal(4, 4, seed=2)
    gaps = R[:, None] - R[None]
    form = torch.einsum("ijk,kl,ijl->ij", gaps, (B + B.mT) / 2, gaps)
    close(Bidivergence.of(R @ B @ R.mT).symmetric, form)


def test_masked_pairs_are_infinitely_far_and_carry_no_flux():
    W = packed(normal(2, 5, 5))
    b = Bidivergence.of(W)
    masked = W.isneginf()
    assert bool(b.forward[masked].isposinf().all())
    assert bool(b.symmetric[masked].isposinf().all())
    assert not b.flux[masked].any()
    assert not b.antisymmetric[masked].any()
    assert not b.coexact[masked].any()
    close(b.forward[~masked], (b.metric + gradient(b.potential) - b.coexact)[~masked])


# --- gauge ---


@given(scores(), st.floats(0.1, 10))
def test_a_row_constant_moves_nothing_that_is_read_from_the_forward_divergence(W, size):
    shift = size * normal(*W.shape[:-1], 1, seed=7)
    one, two = Bidivergence.of(W), Bidivergence.of(W + shift)
    for name in ("forward", "backward", "symmetric", "metric", "antisymmetric", "potential"):
        close(getattr(one, name), getattr(two, name), 1e-11)
    close(one.coexact, two.coexact, 1e-11)
    close(one.exact_share(), two.exact_share(), 1e-10)
    close(one.flux_ratio(), two.flux_ratio(), 1e-10)
    assert torch.equal(one.signature().negative, two.signature().negative)


@given(scores())
def test_a_row_constant_moves_exact_and_flux_by_the_same(W):
    shift = normal(*W.shape[:-1], seed=7)
    one, two = Bidivergence.of(W), Bidivergence.of(W + shift[..., None])
    close(two.exact - one.exact, gradient(shift) / 2)
    close(two.flux - one.flux, gradient(shift) / 2)


# --- Hodge projection ---


@given(scores())
def test_the_share_is_a_projection(W):
    b = Bidivergence.of(W)
    parts = (gradient(b.potential) ** 2).sum((-2, -1)), (b.coexact**2).sum((-2, -1))
    close(parts[0] + parts[1], (b.antisymmetric**2).sum((-2, -1)), 1e-11)
    close(b.exact_share(), parts[0] / (parts[0] + parts[1]), 1e-11)


@given(scores())
def test_symmetric_scores_are_exact(W):
    b = Bidivergence.of(W + W.mT)
    close(b.exact_share(), torch.ones(len(W), dtype=D))
    close(b.coexact, torch.zeros_like(W), 1e-11)
    close(b.flux_ratio(), torch.zeros(len(W), dtype=D), 1e-11)


def test_scores_without_an_antisymmetric_part_have_share_one():
    W = torch.full((3, 3), 0.5, dtype=D) + torch.eye(3, dtype=D)
    assert Bidivergence.of(W).exact_share() == 1
    assert Bidivergence.of(torch.zeros(3, 3)).exact_share() == 1
    assert Bidivergence.of(torch.zeros(3, 3)).flux_ratio() == 0


def test_a_pure_cycle_has_no_exact_share():
    turn = torch.tensor([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]], dtype=D)
    b = Bidivergence.of(turn)
    close(b.exact_share(), torch.tensor(0.0, dtype=D))
    close(b.coexact, turn)
    assert b.flux_ratio() == inf


@given(scores())
def test_flux_ratio_is_that_of_the_double_centred_scores(W):
    n = W.shape[-1]
    C = torch.eye(n, dtype=D) - 1 / n
    M = C @ W @ C
    antisymmetric, symmetric = ((M + s * M.mT).norm(dim=(-2, -1)) for s in (-1, 1))
    found = Bidivergence.of(W).flux_ratio()
    assert_close(found * symmetric, antisymmetric, rtol=1e-10, atol=1e-10)


def test_a_field_that_is_exact_on_the_pairs_there_are_has_share_one_under_a_mask():
    """Zeros in the place of masked pairs would make a cycle of it."""
    a = normal(5, seed=3)
    W = gradient(a) + 0.3
    ring = torch.eye(5) + torch.diag(torch.ones(4), 1) + torch.diag(torch.ones(4), -1) > 0
    b = Bidivergence.of(W.masked_fill(~ring, -inf))
    close(b.exact_share(), torch.tensor(1.0, dtype=D))
    close(b.coexact, torch.zeros_like(W))
    close(gradient(b.potential)[ring], b.antisymmetric[ring])


def test_documents_apart_are_projected_apart():
    W = normal(2, 6, 6, seed=4)
    b, first, rest = (Bidivergence.of(x) for x in (packed(W), W[:, :2, :2], W[:, 2:, 2:]))
    close(b.coexact[:, :2, :2], first.coexact)
    close(b.coexact[:, 2:, 2:], rest.coexact)
    close(b.potential[:, 2:], rest.potential)


# --- signature ---


@pytest.mark.parametrize("dtype", [D, torch.float32])
@pytest.mark.parametrize(("positive", "negative"), [(3, 0), (2, 1), (1, 3), (0, 2), (0, 0)])
def test_signature_is_that_of_the_symmetric_weights(positive, negative, dtype):
    """W = RBRᵀ with more tokens in general position than dimensions: Sylvester's law."""
    signs = torch.tensor([1.0] * positive + [-1.0] * negative + [0.0], dtype=D)
    turn = normal(len(signs), len(signs), seed=5)
    B = torch.diag(signs * (1 + torch.arange(len(signs)))) + (turn - turn.mT)
    R = normal(2, 9, len(signs), seed=6)
    found = Bidivergence.of((R @ B @ R.mT).to(dtype)).signature()
    for part, wanted in zip(
        (found.positive, found.negative, found.zero),
        (positive, negative, 8 - positive - negative),
        strict=True,
    ):
        assert part.tolist() == [wanted, wanted]


def test_squared_distances_have_no_negative_direction():
    x = normal(7, 3, seed=8)
    found = Bidivergence.of(x @ x.mT).signature()
    assert (found.positive, found.negative, found.zero) == (3, 0, 3)
    close(found.least, torch.cdist(x, x).pow(2).fill_diagonal_(inf).min())
    assert found.negative_share == 0


def test_least_and_negative_share_count_pairs():
    W = torch.tensor([[0.0, 0, 0], [0, -1, 0], [0, 0, 2]], dtype=D)  # D = −1, 2, 1
    found = Bidivergence.of(W).signature()
    assert found.least == -1
    close(found.negative_share, torch.tensor(1 / 3, dtype=D))


def test_tokens_that_stand_twice_are_no_negative_pairs():
    x = normal(6, 3, seed=8).repeat(2, 1)
    found = Bidivergence.of((x @ x.mT).float() + normal(12, 1, seed=9).float()).signature()
    assert found.negative_share == 0
    assert (found.positive, found.negative) == (3, 0)


def test_scores_rounded_to_few_digits_keep_their_signature_when_the_rounding_is_told():
    x = normal(12, 3, seed=9)
    rounded = (x @ x.mT).bfloat16().float()
    assert Bidivergence.of(rounded).signature().negative > 0
    told = Bidivergence.of(rounded).signature(rounding=2**-8)
    assert (told.positive, told.negative) == (3, 0)


@pytest.mark.parametrize("method", ["signature", "flux_ratio"])
def test_what_needs_all_pairs_refuses_a_mask(method):
    with pytest.raises(InvalidInputError, match="every pair"):
        getattr(Bidivergence.of(packed(normal(5, 5))), method)()


@pytest.mark.parametrize("rounding", [0.0, -1e-3, 1.0, math.nan])
def test_a_rounding_that_is_none_is_refused(rounding):
    with pytest.raises(InvalidInputError, match="rounding must lie"):
        Bidivergence.of(normal(3, 3)).signature(rounding=rounding)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (torch.zeros(3, 4), "square"),
        (torch.zeros(1, 1), "two tokens"),
        (torch.zeros(3, 3).tril().masked_fill(torch.ones(3, 3).triu(1) > 0, -inf), "one side"),
        (torch.full((2, 2), math.nan), "NaN"),
    ],
)
def test_scores_are_checked_however_it_is_made(bad, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Bidivergence.of(bad)
    with pytest.raises(InvalidInputError, match=sentence):
        Bidivergence(scores=bad)


# --- weights ---


@given(st.integers(1, 5), st.integers(2, 12), st.integers(0, 10**6))
def test_weight_ratio_is_that_of_the_dense_product(width, model, seed):
    """Also where twice the head is wider than the model."""
    q, k = normal(2, width, model, seed=seed), normal(2, width, model, seed=seed + 1)
    B = q.mT @ k
    wanted = (B - B.mT).norm(dim=(-2, -1)) / (B + B.mT).norm(dim=(-2, -1))
    assert_close(weight_ratio(q, k), wanted, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [D, torch.float32, torch.bfloat16])
def test_equal_weights_have_ratio_zero(dtype):
    q = normal(4, 8, 64, seed=2).to(dtype)
    assert weight_ratio(q, q).tolist() == [0.0] * 4


def test_antisymmetric_weights_have_ratio_infinity():
    q = normal(2, 10, seed=3)
    k = torch.stack([q[1], -q[0]])  # B = q₀ᵀq₁ − q₁ᵀq₀
    assert weight_ratio(q, k) == inf


def test_a_small_antisymmetric_part_is_not_lost():
    """A difference of traces would leave the square root of the rounding, 1e-8."""
    q, step = normal(4, 20, seed=4), 1e-11 * normal(4, 20, seed=5)
    B, dB = q.mT @ q, q.mT @ step
    wanted = (dB - dB.mT).norm() / (2 * B).norm()
    assert_close(weight_ratio(q, q + step), wanted, rtol=1e-3, atol=0)


def test_weights_without_a_product_have_no_ratio():
    assert weight_ratio(torch.zeros(2, 5), normal(2, 5)).isnan()


@pytest.mark.parametrize(
    ("q", "k", "sentence"),
    [
        (normal(8, 4, 16), normal(2, 4, 16), "Repeat key heads"),
        (normal(4, 16), normal(4, 12), "same shape"),
        (normal(4), normal(4), "axes"),
        (normal(4, 3) * math.nan, normal(4, 3), "finite"),
    ],
)
def test_weights_that_do_not_match_are_refused(q, k, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        weight_ratio(q, k)
