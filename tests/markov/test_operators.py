"""Products by tiles are the products of the matrix, whatever holds the scores."""

import math

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov import operators
from flowscope.markov.operators import DenseScores, FactoredScores, apply_kernel, log_degrees

D = torch.float64
BETA, CHARGE = 0.3, 0.07


def head(n=70, d=4, dtype=D):
    """Queries and keys that are not in proportion: D takes both signs, the flux is not exact."""
    return torch.randn(n, d, dtype=dtype), torch.randn(n, d, dtype=dtype)


def masked(n=70):
    """Dense scores with missing pairs, and a token that sees only itself and its neighbour."""
    q, k = head(n)
    hole = torch.rand(n, n) < 0.3
    hole[3] = True
    hole = hole | hole.mT
    hole[3, 4] = hole[4, 3] = False
    hole.fill_diagonal_(False)
    return (q @ k.mT).masked_fill(hole, -torch.inf)


def kernel(W, charge=0.0, loops=True):
    """Entry by entry, as in the theory: K = exp(−βD), H = K e^{iθ}."""
    w = W.diagonal()
    forward = w[:, None] - W
    K = torch.exp(-BETA * (forward + forward.mT))
    if not loops:
        K = K - torch.diag(K.diagonal())
    if not charge:
        return K
    theta = torch.where(W.isinf(), 0.0, 2 * math.pi * charge * (W - W.mT))
    return torch.polar(K, theta)


@pytest.fixture(params=[16, 33, 512])
def side(request, monkeypatch):
    """Tiles that do and do not divide the number of tokens, and one that holds all."""
    monkeypatch.setattr(operators, "_SIDE", request.param)


def all_scores():
    q, k = head()
    W = masked()
    return [(FactoredScores(q=q, k=k), q @ k.mT), (DenseScores(W=W), W)]


@pytest.mark.usefixtures("side")
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("which", [0, 1], ids=["factored", "dense"])
class TestTiles:
    def test_a_product_is_that_of_the_matrix(self, which, loops):
        scores, W = all_scores()[which]
        x = torch.randn(70, 5, dtype=D)
        assert_close(apply_kernel(scores, x, BETA, loops=loops), kernel(W, loops=loops) @ x)

    def test_a_charged_product_is_that_of_the_hermitian_matrix(self, which, loops):
        scores, W = all_scores()[which]
        x = torch.randn(70, 5, dtype=torch.complex128)
        found = apply_kernel(scores, x, BETA, charge=CHARGE, loops=loops)
        assert_close(found, kernel(W, CHARGE, loops) @ x)

    def test_a_real_block_under_a_charge_and_a_complex_one_without(self, which, loops):
        scores, W = all_scores()[which]
        x, z = torch.randn(70, 2, dtype=D), torch.randn(70, 2, dtype=torch.complex128)
        turned = apply_kernel(scores, x, BETA, charge=CHARGE, loops=loops)
        assert_close(turned, kernel(W, CHARGE, loops) @ x.to(z.dtype))
        plain = apply_kernel(scores, z, BETA, loops=loops)
        assert_close(plain, kernel(W, loops=loops).to(z.dtype) @ z)

    def test_degrees_are_row_sums(self, which, loops):
        scores, W = all_scores()[which]
        assert_close(log_degrees(scores, BETA, loops=loops).exp(), kernel(W, loops=loops).sum(-1))

    def test_potentials_scale_rows_and_columns(self, which, loops):
        scores, W = all_scores()[which]
        c, x = torch.randn(70, dtype=D), torch.randn(70, 3, dtype=D)
        K = kernel(W, loops=loops) * torch.exp(-c[:, None] - c)
        assert_close(apply_kernel(scores, x, BETA, potentials=c, loops=loops), K @ x)
        found = log_degrees(scores, BETA, potentials=c, loops=loops)
        assert_close(found.exp(), K.sum(-1))


def test_both_kinds_of_scores_are_one_protocol():
    q, k = head(9)
    factored, dense = FactoredScores(q=q, k=k), DenseScores(W=q @ k.mT)
    rows, columns = slice(2, 5), slice(1, 9)
    for a, b in zip(factored.tile(rows, columns), dense.tile(rows, columns), strict=True):
        assert_close(a, b)
    W = q @ k.mT
    assert_close(factored.tile(rows)[1], W.mT[rows])
    o = torch.randn(9, dtype=D)
    wanted = BETA * (W + W.mT) - o[:, None] - o
    phases = 2 * math.pi * CHARGE * (W - W.mT)
    for one in (factored, dense):
        assert_close(one.exponents(BETA, o)(rows, columns), wanted[rows, columns])
        assert_close(one.turns(CHARGE)(rows, columns), phases[rows, columns])
    assert_close(factored.diagonal, W.diagonal())
    assert factored.N == dense.N == 9
    assert factored.to(torch.float32).dtype == dense.to(torch.float32).dtype == torch.float32


def test_dense_scores_are_left_as_they_were():
    W = torch.randn(6, 6, dtype=D)
    before = W.clone()
    apply_kernel(DenseScores(W=W), torch.randn(6, 2, dtype=D), BETA, charge=CHARGE, loops=False)
    log_degrees(DenseScores(W=W), BETA, loops=False)
    assert_close(W, before, rtol=0, atol=0)


def test_the_product_has_the_precision_of_the_block():
    q, k = head()
    scores = FactoredScores(q=q, k=k)
    x = torch.randn(70, 2, dtype=D)
    single = apply_kernel(scores, x.float(), BETA)
    assert single.dtype == torch.float32
    assert_close(single.double(), apply_kernel(scores, x, BETA), rtol=1e-4, atol=1e-4)


def test_narrow_queries_are_widened():
    q, k = head(dtype=torch.bfloat16)
    assert FactoredScores(q=q, k=k).dtype == torch.float32
    assert FactoredScores(q=q, k=k.double()).dtype == D


def test_degrees_survive_where_the_kernel_overflows():
    """D far below zero: K leaves float64, its logarithm and the normalised weights do not."""
    q, k = 40 * head()[0], -40 * head()[0]
    scores = FactoredScores(q=q, k=k)
    assert apply_kernel(scores, torch.ones(70, 1, dtype=D), 1.0).isinf().any()
    half = 0.5 * log_degrees(scores, 1.0)
    root = (2 * half).softmax(-1).sqrt()[:, None]
    assert_close(apply_kernel(scores, root, 1.0, potentials=half), root)


@pytest.mark.parametrize(
    ("q", "k", "words"),
    [
        (torch.zeros(3, 2), torch.zeros(3, 3), "one shape"),
        (torch.zeros(2, 3, 2), torch.zeros(2, 3, 2), "one head at a time"),
        (torch.zeros(1, 2), torch.zeros(1, 2), "two tokens"),
        (torch.full((3, 2), torch.nan), torch.zeros(3, 2), "queries must be finite"),
        (torch.zeros(3, 2), torch.full((3, 2), torch.inf), "keys must be finite"),
    ],
)
def test_what_is_no_head_is_refused(q, k, words):
    with pytest.raises(InvalidInputError, match=words):
        FactoredScores(q=q, k=k)


def test_a_batch_a_block_and_parameters_are_checked():
    with pytest.raises(InvalidInputError, match="one head"):
        DenseScores(W=torch.zeros(2, 3, 3))
    scores = FactoredScores(q=torch.zeros(3, 2), k=torch.zeros(3, 2))
    with pytest.raises(InvalidInputError, match="a row for each of 3 tokens"):
        apply_kernel(scores, torch.zeros(4, 2))
    with pytest.raises(InvalidInputError, match="beta must be positive"):
        apply_kernel(scores, torch.zeros(3, 2), 0.0)
    with pytest.raises(InvalidInputError, match="charge must be a finite number"):
        apply_kernel(scores, torch.zeros(3, 2), charge=math.inf)


def test_a_token_without_neighbours_needs_its_loop():
    W = torch.zeros(3, 3).masked_fill(
        torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]]) > 0, -math.inf
    )
    assert_close(log_degrees(DenseScores(W=W)).exp(), torch.tensor([2.0, 2.0, 1.0]))
    with pytest.raises(InvalidInputError, match=r"there is none at \(2,\)"):
        log_degrees(DenseScores(W=W), loops=False)
