"""Laws that every function of the simplex obeys: gauge, symmetry, batching, dtype, slopes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope import simplex

V = 6


def vector(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.softmax(2 * vector(seed, *shape), -1)


TO_NUMBERS = {
    "entropy": simplex.entropy,
    "mobility_trace": simplex.mobility_trace,
    "mobility_frobenius": simplex.mobility_frobenius,
    "mobility_norm": simplex.mobility_norm,
    "mobility_spectrum": lambda p: simplex.mobility_spectrum(p, 2),
    "locking_bound": lambda p: simplex.locking_bound(p, 1.3),
}
WITH_VECTOR = {
    "total_variation": lambda p, v: simplex.total_variation(p, torch.softmax(v, -1)),
    "kl_divergence": lambda p, v: simplex.kl_divergence(p, torch.softmax(v, -1)),
    "apply_mobility": simplex.apply_mobility,
    "effective_mobility": lambda p, v: simplex.effective_mobility(
        p, torch.eye(p.shape[-1], dtype=p.dtype), 0.5
    )(v),
    "mirror_step": lambda p, v: simplex.mirror_step(p, v, 0.7),
    "replicator_flow": lambda p, v: simplex.replicator_flow(p, v, 0.7),
    "project_to_simplex": lambda p, v: simplex.project_to_simplex(0.3 * v) + 0 * p.to(v.dtype),
}
TO_VECTORS = {"apply_mobility", "effective_mobility", "mirror_step", "replicator_flow"}
TO_VECTORS |= {"project_to_simplex"}


def without_vector(function):
    return lambda p, v: function(p)


EVERY = {name: without_vector(f) for name, f in TO_NUMBERS.items()} | WITH_VECTOR
numbers = pytest.mark.parametrize("name", TO_NUMBERS)
every = pytest.mark.parametrize("name", EVERY)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(-50, 50))
def test_a_shift_of_the_vector_changes_nothing(seed, shift):
    p, v = rows(seed, V), vector(seed + 1, V)
    for function in WITH_VECTOR.values():
        assert_close(function(p, v + shift), function(p, v), rtol=1e-9, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(-50, 50))
def test_a_shift_of_the_logits_changes_nothing(seed, shift):
    z = 2 * vector(seed, V)
    for function in TO_NUMBERS.values():
        p, q = torch.softmax(z, -1), torch.softmax(z + shift, -1)
        assert_close(function(q), function(p), rtol=1e-9, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_the_mobility_kills_constants(seed):
    p = rows(seed, 3, V)
    assert_close(simplex.apply_mobility(p, torch.ones(V).double()), torch.zeros(3, V).double())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.permutations(range(V)))
def test_names_of_outcomes_do_not_matter(seed, order):
    p, v = rows(seed, 2, V), vector(seed + 1, 2, V)
    for name, function in EVERY.items():
        plain, permuted = function(p, v), function(p[:, order], v[:, order])
        plain = plain[:, order] if name in TO_VECTORS else plain
        assert_close(permuted, plain, rtol=1e-10, atol=1e-14)


@every
def test_a_batch_is_its_rows(name):
    p, v = rows(0, 2, 3, V), vector(1, 2, 3, V)
    batch = EVERY[name](p, v)
    loop = torch.stack([EVERY[name](p[i, j], v[i, j]) for i in range(2) for j in range(3)])
    assert_close(batch.flatten(0, 1), loop, rtol=1e-14, atol=1e-16)


@every
def test_an_empty_batch_gives_an_empty_answer(name):
    p, v = torch.empty(4, 0, V), torch.empty(4, 0, V)
    single = EVERY[name](rows(0, V), vector(1, V))
    assert EVERY[name](p, v).shape == (4, 0, *single.shape)


@every
def test_strides_do_not_show(name):
    p, v = rows(0, V, 4), vector(1, V, 4)
    p = p / p.sum(0, keepdim=True)
    assert not p.T.is_contiguous()
    strided = EVERY[name](p.T, v.T)
    assert_close(strided, EVERY[name](p.T.contiguous(), v.T.contiguous()), rtol=1e-14, atol=1e-16)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    p, v = rows(0, 3, V).to(dtype), vector(1, 3, V).to(dtype)
    answer = EVERY[name](p, v.float())
    p, v = p.double(), v.double()
    exact = EVERY[name](p / p.sum(-1, keepdim=True), v)
    assert answer.dtype == torch.float32
    assert_close(answer.double(), exact, rtol=2e-6, atol=1e-7)


@every
def test_float64_stays_float64(name):
    assert EVERY[name](rows(0, V), vector(1, V)).dtype == torch.float64


@every
def test_slopes_match_finite_differences(name):
    z, v = 2 * vector(2, 2, V), vector(3, 2, V)
    z, v = z.requires_grad_(), v.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, v: EVERY[name](torch.softmax(z, -1), v), (z, v))


@every
def test_slopes_are_blind_to_the_length_of_p(name):
    p = rows(5, 3, V).requires_grad_()
    value = EVERY[name](p, vector(6, 3, V))
    (slope,) = torch.autograd.grad((value * vector(7, *value.shape)).sum(), p)
    assert_close((slope * p).sum(-1), torch.zeros(3).double(), rtol=0, atol=1e-14)


@numbers
def test_an_outcome_without_mass_changes_nothing(name):
    p = rows(4, 5, V)
    padded = torch.cat([p[:, :2], torch.zeros(5, 3).double(), p[:, 2:]], -1)
    assert_close(TO_NUMBERS[name](padded), TO_NUMBERS[name](p))


@every
def test_slopes_hold_where_an_outcome_is_masked(name):
    slopes = []
    for last in (-torch.inf, -80.0):
        z = torch.tensor([0.4, 0.1, -0.8, last], dtype=torch.float64, requires_grad=True)
        v = vector(6, 4)
        value = EVERY[name](torch.softmax(z, -1), v)
        weight = vector(7, *value.shape)
        slopes.append(torch.autograd.grad((weight * value).sum(), z)[0])
    assert_close(*slopes, rtol=1e-10, atol=1e-10)
