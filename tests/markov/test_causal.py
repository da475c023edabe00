"""Causal chains: what is refused, and the two laws that are left."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.causal import (
    is_causal,
    occupation,
    quasi_stationary,
    refuse_causal,
)
from flowscope.markov.irreversibility import entropy_production


def causal_kernel(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    W = scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
    future = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(W.masked_fill(future, -torch.inf), -1)


def alive(P, steps):
    """Law of the walks not yet at token 0, from a uniform start; and the last survival."""
    law = torch.ones(P.shape[-1], dtype=torch.float64)
    law[0], share = 0.0, 0.0
    law = law / law.sum()
    for _ in range(steps):
        law = law @ P
        law[0] = 0.0
        share = law.sum().item()
        law = law / law.sum()
    return law, share


def test_only_zeros_above_the_diagonal_are_causal():
    P = torch.stack([causal_kernel(4, 4), torch.softmax(torch.randn(4, 4).double(), -1)])
    sneaky = causal_kernel(4, 4)
    sneaky[1] = torch.tensor([0.5, 0.4, 0.0, 0.1], dtype=torch.float64)
    P = torch.cat([P, sneaky[None]])
    assert is_causal(P).tolist() == [True, False, False]
    refuse_causal(P[1:], "This")
    with pytest.raises(InvalidInputError, match=r"^This of a causal kernel \(at \(0,\)\)"):
        refuse_causal(P, "This")


@pytest.mark.parametrize("seed", range(4))
def test_walks_that_are_still_alive_have_the_quasi_stationary_law(seed):
    P = causal_kernel(9, 9, seed=seed)
    found = quasi_stationary(P)
    law, survival = alive(P, 3000)
    assert_close(found.law, law, rtol=1e-10, atol=1e-12)
    assert_close(found.survival.item(), survival, rtol=1e-12, atol=0)
    assert_close(found.survival, P.diagonal()[1:].max())
    assert found.token == P.diagonal()[1:].argmax() + 1
    assert (found.law[found.token + 1 :] == 0).all()
    assert found.law[0] == 0


def test_the_law_is_approached_at_the_stated_pace():
    P = causal_kernel(9, 9, seed=1)
    found = quasi_stationary(P)
    gaps = [(alive(P, n)[0] - found.law).abs().sum().item() for n in (60, 61)]
    assert gaps[1] > 1e-12
    assert_close(gaps[1] / gaps[0], found.contraction.item(), rtol=2e-2, atol=0)


@given(st.integers(0, 500), st.integers(2, 40))
def test_the_law_is_a_left_eigenvector_of_the_transient_block(seed, n):
    P = causal_kernel(n, n, seed=seed)
    found = quasi_stationary(P)
    T = P[1:, 1:]
    assert_close(found.law[1:] @ T, found.survival * found.law[1:], rtol=1e-9, atol=1e-300)
    assert_close(found.law.sum().item(), 1.0)


def test_the_chain_conditioned_never_to_end_stays_at_one_token():
    """Right eigenvector on tokens from m on, left up to m: their product is a point mass."""
    P = causal_kernel(7, 7, seed=3)
    found = quasi_stationary(P)
    T, m = P[1:, 1:], int(found.token) - 1
    values, vectors = torch.linalg.eig(T)
    right = vectors[:, values.real.argmax()].abs()
    product = found.law[1:] * right
    assert_close(product / product.sum(), torch.eye(6, dtype=torch.float64)[m], rtol=0, atol=1e-12)


def test_no_step_can_be_taken_back():
    P = causal_kernel(5, 5)
    for law in (quasi_stationary(P).law, occupation(P)):
        assert entropy_production(P, law).item() == float("inf")


def test_without_diagonal_every_walk_ends_and_there_is_no_such_law():
    n = 7
    P = causal_kernel(n, n).tril(-1)
    P[0, 0] = 1.0
    P = P / P.sum(-1, keepdim=True)
    T = P[1:, 1:]
    assert torch.linalg.matrix_power(T, n - 2).abs().sum() > 0
    assert (torch.linalg.matrix_power(T, n - 1) == 0).all(), "nilpotent"
    with pytest.raises(InvalidInputError, match="nilpotent"):
        quasi_stationary(P)
    assert_close(occupation(P).sum().item(), 1.0)


def test_a_tie_is_refused_and_a_near_tie_is_not():
    P = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    with pytest.raises(InvalidInputError, match=r"tokens 1 and 2 keep"):
        quasi_stationary(P)
    P[2] = torch.tensor([0.25, 0.25 - 2.0**-30, 0.5 + 2.0**-30], dtype=torch.float64)
    ratio = P[2, 1].item() / 2.0**-30
    law = quasi_stationary(P).law
    assert_close((law[1] / law[2]).item(), ratio, rtol=1e-6, atol=0)


def test_a_second_absorbing_token_is_refused():
    P = causal_kernel(5, 5)
    P[3] = torch.eye(5, dtype=torch.float64)[3]
    for routine in (quasi_stationary, occupation):
        with pytest.raises(InvalidInputError, match="token 3 attends to itself alone"):
            routine(P)


@pytest.mark.parametrize("routine", [quasi_stationary, occupation])
def test_a_kernel_that_looks_ahead_is_refused(routine):
    with pytest.raises(InvalidInputError, match="expects a causal kernel"):
        routine(torch.softmax(torch.randn(4, 4), -1))


def test_occupation_is_the_sum_over_all_times():
    P = causal_kernel(8, 8, seed=2)
    T = P[1:, 1:]
    law, total = torch.full((7,), 1 / 7, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)
    for _ in range(2000):
        total, law = total + law, law @ T
    assert_close(occupation(P)[1:], total / total.sum(), rtol=1e-12, atol=0)
    assert occupation(P)[0] == 0


def test_occupation_of_uniform_causal_attention_is_the_closed_form():
    """P_ij = 1/(i+1): visits to j are v_j = (1 + Σ_{i>j} v_i/(i+1))(j+1)/j, so v_j = n/j."""
    n = 6
    P = torch.ones(n, n, dtype=torch.float64).tril()
    P = P / P.sum(-1, keepdim=True)
    v = n / torch.arange(1, n, dtype=torch.float64)
    assert_close(occupation(P)[1:], v / v.sum(), rtol=1e-14, atol=0)


def test_batches_and_narrow_dtypes():
    P = causal_kernel(2, 3, 10, 10).float()
    found, visits = quasi_stationary(P), occupation(P)
    assert found.law.shape == visits.shape == (2, 3, 10)
    assert found.law.dtype == visits.dtype == torch.float64
    for a in range(2):
        for b in range(3):
            alone = quasi_stationary(P[a, b])
            assert_close(found.law[a, b], alone.law)
            assert_close(found.contraction[a, b], alone.contraction)
            assert_close(visits[a, b], occupation(P[a, b]))
