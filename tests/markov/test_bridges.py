"""Bridges of a kernel between two laws: marginals, factors, other routes, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov import bridges
from flowscope.markov.bridges import kernel_bridge
from flowscope.markov.kernels import attention_kernel, doob_transform

D = torch.float64
inf = math.inf


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def kernel(*shape, seed=0):
    return torch.softmax(normal(*shape, seed=seed), -1)


def close(found, wanted, tolerance=1e-12):
    assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@st.composite
def problems(draw):
    """A kernel of two heads, square or not, and two laws."""
    rows, columns = draw(st.integers(2, 8)), draw(st.integers(2, 8))
    seed = draw(st.integers(0, 10**6))
    P = kernel(2, rows, columns, seed=seed)
    start = torch.softmax(normal(2, rows, seed=seed + 1), -1)
    return P, start, kernel(2, columns, seed=seed + 2)


@given(problems())
def test_a_bridge_has_its_marginals_and_factors(problem):
    P, start, end = problem
    b = kernel_bridge(P, start, end, tolerance=1e-13)
    assert bool(b.converged.all())
    close(b.coupling.sum(-1), start)
    close(b.coupling.sum(-2), end)
    u, v = b.start_potential.exp(), b.end_potential.exp()
    close(b.coupling, u[..., :, None] * P * v[..., None, :])
    close(b.forward, doob_transform(P, v))
    close((start[..., None, :] @ b.forward)[..., 0, :], end)
    close(b.forward, b.coupling / start[..., None])


def test_two_points():
    """P of cost c at ε = 1 between uniform laws is the closed coupling of the same cost."""
    P = torch.softmax(-torch.tensor([[0.0, 1.3], [1.3, 0.0]], dtype=D), -1)
    half = torch.tensor([0.5, 0.5], dtype=D)
    found = kernel_bridge(P, half, half, tolerance=1e-13).coupling
    close(found, torch.from_numpy(oracles.two_point_coupling(1.3, 1.0)))


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_the_law_that_the_kernel_itself_reaches_needs_no_tilt(tokens, seed):
    P = kernel(2, tokens, tokens, seed=seed)
    start = kernel(2, tokens, seed=seed + 1)
    b = kernel_bridge(P, start, (start[:, None, :] @ P)[:, 0], tolerance=1e-13)
    close(b.forward, P, 1e-10)
    close(b.end_potential - b.end_potential[:, :1], torch.zeros(2, tokens, dtype=D), 1e-10)


def test_a_bridge_depends_on_the_kernel_up_to_its_scalings():
    """Row and column factors of the reference are absorbed by the potentials."""
    W = normal(5, 5)
    start, end = kernel(5, seed=1), kernel(5, seed=2)
    one = kernel_bridge(attention_kernel(W), start, end)
    two = kernel_bridge(attention_kernel(W + normal(5, seed=3)), start, end)
    close(one.coupling, two.coupling, 1e-9)


def test_plain_scaling_agrees():
    P, start, end = kernel(6, 4), kernel(6, seed=1), kernel(4, seed=2)
    v = torch.ones(4, dtype=D)
    for _ in range(3000):
        u = start / (P @ v)
        v = end / (u @ P)
    close(kernel_bridge(P, start, end).coupling, u[:, None] * P * v, 1e-9)


def test_laws_default_to_uniform_and_one_law_serves_every_head():
    P = kernel(3, 4, 4)
    uniform = torch.full((4,), 0.25, dtype=D)
    close(
        kernel_bridge(P, None, None).coupling,
        kernel_bridge(P, uniform, uniform.expand(3, 4)).coupling,
    )


def test_single_precision_is_bridged_in_double():
    b = kernel_bridge(kernel(4, 4).float(), None, None)
    assert b.coupling.dtype == D
    assert float(b.marginal_error) <= 1e-10


# --- zeros ---


def causal_kernel(tokens, seed=0):
    W = normal(tokens, tokens, seed=seed)
    return attention_kernel(W.masked_fill(torch.ones(tokens, tokens).triu(1) > 0, -inf))


def test_a_causal_kernel_reaches_laws_that_lie_earlier():
    P = causal_kernel(5)
    start = torch.full((5,), 0.2, dtype=D)
    end = start @ causal_kernel(5, seed=9)
    b = kernel_bridge(P, start, end, tolerance=1e-12)
    close(start @ b.forward, end, 1e-11)
    assert not b.forward.triu(1).any()


def test_a_window_is_bridged_too():
    """Triangular, with rows that are not nested."""
    near = torch.ones(6, 6).tril() * torch.ones(6, 6).triu(-2) > 0
    P, Q = (attention_kernel(normal(6, 6, seed=s).masked_fill(~near, -inf)) for s in (1, 2))
    start = torch.full((6,), 1 / 6, dtype=D)
    b = kernel_bridge(P, start, start @ Q, tolerance=1e-12)
    close(start @ b.forward, start @ Q, 1e-11)


def test_laws_that_fit_only_just():
    """A causal kernel from a law to itself is the identity, out of reach of any potential."""
    b = kernel_bridge(causal_kernel(4), None, None)
    close(b.coupling, torch.eye(4, dtype=D) / 4, 1e-9)
    assert float(b.end_potential.max() - b.end_potential.min()) > 20


def test_sweeps_go_on_where_a_problem_with_zeros_was_not_done_at_first(monkeypatch):
    P, end = causal_kernel(6), torch.full((6,), 1 / 6, dtype=D) @ causal_kernel(6, seed=9)
    whole = kernel_bridge(P, None, end, tolerance=1e-12)
    monkeypatch.setattr(bridges, "_FIRST_SWEEPS", 3)
    staged = kernel_bridge(P, None, end, tolerance=1e-12)
    assert int(staged.iterations) > 3
    assert bool(staged.converged)
    close(staged.coupling, whole.coupling, 1e-10)
    short = kernel_bridge(P, None, end, tolerance=1e-12, max_iterations=4)
    assert int(short.iterations) == 4
    assert not bool(short.converged)


@pytest.mark.parametrize(
    ("P", "end"),
    [
        (causal_kernel(4), [0.1, 0.2, 0.3, 0.4]),  # later than the start
        (torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], dtype=D), [0.5, 0.25, 0.25]),
        (torch.eye(3, dtype=D), [0.2, 0.3, 0.5]),
    ],
)
def test_a_law_that_the_support_cannot_reach_is_refused(P, end):
    with pytest.raises(InvalidInputError, match="cannot be reached"):
        kernel_bridge(P, None, end)


def test_a_law_that_nobody_sees_is_refused():
    P = torch.tensor([[0.5, 0.5, 0.0]] * 3, dtype=D)
    with pytest.raises(InvalidInputError, match="cannot be reached"):
        kernel_bridge(P, None, None)


def test_tokens_without_mass():
    """No start mass: the tilt still says where one would go. No end mass: nobody goes there."""
    start, end = torch.tensor([0.0, 0.4, 0.6], dtype=D), torch.tensor([0.7, 0.3, 0.0], dtype=D)
    P = kernel(3, 3)
    b = kernel_bridge(P, start, end, tolerance=1e-12)
    close(start @ b.forward, end, 1e-11)
    assert not b.forward[:, 2].any()
    assert not b.coupling[0].any()
    close(b.forward[0], doob_transform(P, b.end_potential.exp())[0])


def test_a_token_off_every_path_keeps_its_row():
    P = torch.tensor([[0, 0, 0.1, 0.9], [0.5, 0.5, 0, 0], [0.3, 0.7, 0, 0]])
    start, end = torch.tensor([0.0, 0.4, 0.6]), torch.tensor([0.7, 0.3, 0.0, 0.0])
    b = kernel_bridge(P, start, end)
    close(b.forward[0].float(), P[0], 1e-7)
    close(b.forward.sum(-1), torch.ones(3, dtype=D), 1e-15)
    assert b.start_potential[0] == -inf


def test_a_bridge_that_stopped_early_says_so():
    P = torch.softmax(20 * normal(8, 8, seed=4), -1)
    b = kernel_bridge(P, None, None, tolerance=1e-14, max_iterations=2)
    assert not bool(b.converged)
    assert float(b.marginal_error) > 1e-14
    assert int(b.iterations) <= 2


@pytest.mark.parametrize(
    ("P", "start", "end", "sentence"),
    [
        (torch.ones(2, 2), None, None, "sum to one"),
        (kernel(2, 2), [0.5, 0.6], None, "start must sum to one"),
        (kernel(2, 2), None, [0.5, 0.25, 0.25], "end must give one probability to each of 2"),
        (kernel(2, 2), [1.0, math.nan], None, "finite"),
        (kernel(3), None, None, "a row for each token"),
    ],
)
def test_what_is_no_bridge_is_refused(P, start, end, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        kernel_bridge(P, start, end)
