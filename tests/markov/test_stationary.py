"""The stationary law: closed forms, exact rational arithmetic, laws, and what is refused."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.stationary import stationary_distribution, token_rank, wide_kernel


def softmax_kernel(*shape, scale=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(scale * torch.randn(*shape, generator=generator, dtype=dtype), -1)


def birth_death(up, down):
    """A walk on a line and its law: π_{i+1}/π_i = up_i/down_{i+1}, whatever the sizes."""
    n = len(up) + 1
    P = torch.zeros(n, n, dtype=torch.float64)
    for i, (u, d) in enumerate(zip(up, down, strict=True)):
        P[i, i + 1], P[i + 1, i] = u, d
    P += torch.diag(1 - P.sum(-1))
    law = [1.0]
    for u, d in zip(up, down, strict=True):
        law.append(law[-1] * u / d)
    law = torch.tensor(law, dtype=torch.float64)
    return P, law / law.sum()


def exact_law(P):
    """The law of a kernel of fractions, in exact arithmetic, states removed one by one."""
    n = len(P)
    P = [[Fraction(float(x)) for x in row] for row in P]
    for k in range(n - 1, 0, -1):
        out = sum(P[k][:k])
        for i in range(k):
            P[i][k] /= out
            for j in range(k):
                P[i][j] += P[i][k] * P[k][j]
    law = [Fraction(1)]
    for k in range(1, n):
        law.append(sum(law[i] * P[i][k] for i in range(k)))
    return torch.tensor([float(x / sum(law)) for x in law], dtype=torch.float64)


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_two_states_have_the_closed_form(p, q):
    found = stationary_distribution([[1 - p, p], [q, 1 - q]])
    # The rows are read as they are rounded: 1 − p and p sum to one within half a unit.
    assert_close(found, torch.tensor([q, p], dtype=torch.float64) / (p + q), rtol=1e-9, atol=0)


@pytest.mark.parametrize("n", [2, 3, 5, 31, 32, 33, 34, 65, 100])
def test_the_law_is_left_alone_at_every_block_size(n):
    P = softmax_kernel(3, n, n, scale=3.0, seed=n)
    law = stationary_distribution(P)
    assert_close((law[:, None] @ P)[:, 0], law, rtol=1e-13, atol=0)
    assert_close(law.sum(-1), torch.ones(3, dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("scale", [1.0, 8.0, 30.0])
def test_each_entry_agrees_with_exact_arithmetic(scale):
    P = softmax_kernel(9, 9, scale=scale, seed=4)
    assert_close(stationary_distribution(P), exact_law(P), rtol=1e-12, atol=0)


def test_entries_of_very_different_size_are_all_right():
    P, law = birth_death([1e-3] * 40, [0.4] * 40)
    assert law.min() < 1e-100
    assert_close(stationary_distribution(P), law, rtol=1e-12, atol=0)


@pytest.mark.parametrize("coupling", [1e-10, 1e-17, 1e-100])
def test_nearly_separate_parts_are_weighed_by_what_couples_them(coupling):
    # 1 − P_ii has lost such a coupling; the way there and back keeps it.
    P, law = birth_death([0.3, coupling, 0.2], [0.4, 3 * coupling, 0.5])
    assert_close(stationary_distribution(P), law, rtol=1e-13, atol=0)


def test_nearly_separate_halves_of_a_large_chain():
    halves = torch.block_diag(softmax_kernel(40, 40, seed=1), softmax_kernel(40, 40, seed=2))
    leak = torch.zeros(80, 80, dtype=torch.float64)
    leak[:40, 40:], leak[40:, :40] = 1e-10 / 40, 3e-10 / 40
    P = halves * (1 - leak.sum(-1, keepdim=True)) + leak
    law = stationary_distribution(P)
    assert_close(law[:40].sum().item(), 0.75, rtol=1e-10, atol=0)


def test_a_doubly_stochastic_kernel_has_the_uniform_law():
    P = softmax_kernel(6, 6)
    for _ in range(500):
        P = P / P.sum(0)
        P = P / P.sum(1, keepdim=True)
    assert_close(stationary_distribution(P), torch.full((6,), 1 / 6, dtype=torch.float64))


def test_a_periodic_chain_has_its_law():
    P = torch.eye(5, dtype=torch.float64).roll(1, -1)
    assert_close(stationary_distribution(P), torch.full((5,), 0.2, dtype=torch.float64))


@pytest.mark.parametrize("first", [0, 37, 70])
def test_transient_tokens_have_no_mass(first):
    """The closed class sits at the start, in the middle and at the end of the elimination."""
    n, size = 80, 10
    inside = slice(first, first + size)
    P = softmax_kernel(n, n)
    closed = softmax_kernel(size, size, seed=3)
    P[inside] = 0.0
    P[inside, inside] = closed
    law = stationary_distribution(P)
    assert_close(law[inside], stationary_distribution(closed), rtol=1e-13, atol=0)
    assert (law > 0).sum() == size


def test_a_closed_class_that_not_all_see_at_once_is_found():
    """0 → 1 → 2 → {3, 4} ← 5, and inside 3 → 4 → 3 or 4: no column without a zero."""
    P = torch.zeros(6, 6, dtype=torch.float64)
    P[0, 1] = P[1, 2] = P[2, 3] = P[5, 4] = P[3, 4] = 1.0
    P[4, 3], P[4, 4] = 0.25, 0.75
    law = torch.tensor([0, 0, 0, 0.2, 0.8, 0], dtype=torch.float64)
    assert_close(stationary_distribution(P), law, rtol=1e-15, atol=0)


def test_several_closed_classes_are_refused_by_name():
    P = torch.block_diag(*[softmax_kernel(2, 2, seed=s) for s in range(3)])
    with pytest.raises(InvalidInputError, match=r"3 closed classes.*\[0, 1\] and \[2, 3\]"):
        stationary_distribution(torch.stack([softmax_kernel(6, 6), P])[None])


def test_a_causal_kernel_is_refused_and_damped_it_is_not():
    P = softmax_kernel(5, 5).tril()
    P = P / P.sum(-1, keepdim=True)
    with pytest.raises(InvalidInputError, match="absorbed by token 0"):
        stationary_distribution(P)
    law = stationary_distribution(P, damping=0.1)
    damped = 0.9 * P + 0.1 / 5
    assert_close(law, exact_law(damped), rtol=1e-12, atol=0)


def test_damping_mixes_in_even_jumps():
    P = softmax_kernel(2, 7, 7, scale=2.0)
    law = stationary_distribution(P, damping=0.3)
    assert_close(0.7 * (law[:, None] @ P)[:, 0] + 0.3 / 7, law, rtol=1e-14, atol=0)
    assert_close(stationary_distribution(P, 1.0), torch.full((2, 7), 1 / 7, dtype=torch.float64))


def test_token_rank_is_the_damped_law_and_needs_damping():
    P = softmax_kernel(6, 6)
    assert_close(token_rank(P), stationary_distribution(P, 0.01))
    with pytest.raises(InvalidInputError, match="positive damping"):
        token_rank(P, 0.0)


def test_token_rank_of_a_star_is_the_closed_form():
    """All look at token 0 and token 0 at all: π₀ = δ/N + (1−δ)(1 − π₀ + π₀/N)."""
    n, d = 6, 0.2
    P = torch.zeros(n, n, dtype=torch.float64)
    P[:, 0], P[0] = 1.0, 1 / n
    top = (d / n + 1 - d) / (1 + (1 - d) * (1 - 1 / n))
    assert_close(token_rank(P, d)[0].item(), top, rtol=1e-14, atol=0)


def test_float32_kernels_are_solved_in_float64():
    P = softmax_kernel(4, 50, 50, scale=3.0, dtype=torch.float32)
    law = stationary_distribution(P)
    assert law.dtype == torch.float64
    assert_close(law, stationary_distribution(wide_kernel(P)), rtol=1e-14, atol=0)
    assert_close(wide_kernel(P).sum(-1), torch.ones(4, 50).double(), rtol=1e-15, atol=1e-15)


def test_a_batch_is_solved_chain_by_chain():
    P = softmax_kernel(2, 3, 40, 40, scale=4.0)
    found = stationary_distribution(P)
    for a in range(2):
        for b in range(3):
            assert_close(found[a, b], stationary_distribution(P[a, b]), rtol=1e-13, atol=0)


def test_the_kernel_is_not_written_to():
    P = softmax_kernel(2, 40, 40)
    before = P.clone()
    stationary_distribution(P)
    assert torch.equal(P, before)


@pytest.mark.parametrize("damping", [-0.1, 1.5, float("nan")])
def test_damping_must_be_a_share(damping):
    with pytest.raises(InvalidInputError, match="damping"):
        stationary_distribution(softmax_kernel(3, 3), damping)
