"""Euclidean projection onto the simplex against its optimality conditions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError

reals = st.floats(-20, 20, allow_nan=False, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(reals, min_size=2, max_size=12))
def test_the_optimality_conditions_hold(values):
    x = torch.tensor(values, dtype=torch.float64)
    p = simplex.project_to_simplex(x)
    assert_close(p.sum().item(), 1.0)
    assert p.min() >= 0
    multiplier = (x - p)[p > 0]  # x − p = θ on the support, ≤ θ off it
    assert_close(multiplier, multiplier.mean().expand_as(multiplier), rtol=0, atol=1e-12)
    assert ((x - p)[p == 0] <= multiplier.mean() + 1e-12).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(reals, min_size=2, max_size=12), st.floats(-100, 100))
def test_projection_is_idempotent_and_knows_no_gauge(values, shift):
    x = torch.tensor(values, dtype=torch.float64)
    p = simplex.project_to_simplex(x)
    assert_close(simplex.project_to_simplex(p), p, rtol=0, atol=1e-15)
    assert_close(simplex.project_to_simplex(x + shift), p, rtol=0, atol=1e-12)


def test_an_offset_of_many_digits_costs_none():
    x = torch.arange(1000, dtype=torch.float64) / 2**20  # exact after the shift, unlike its sum
    far = simplex.project_to_simplex(x + 2.0**30)
    assert_close(far, simplex.project_to_simplex(x), rtol=0, atol=1e-15)


def test_known_projections():
    assert_close(simplex.project_to_simplex([3.0, 1.0]), torch.tensor([1.0, 0.0]).double())
    assert_close(simplex.project_to_simplex([0.7, 0.5]), torch.tensor([0.6, 0.4]).double())
    assert_close(simplex.project_to_simplex([-5.0] * 4), torch.full((4,), 0.25).double())


def test_a_far_vector_of_many_outcomes_still_sums_to_one_in_float32():
    x = torch.full((4, 50_000), -0.99998)
    x[:, 0] = 0.0
    x = x + torch.tensor([0.0, 1.0, -3.0, 100.0])[:, None]
    total = simplex.project_to_simplex(x).sum(-1, dtype=torch.float64)
    assert_close(total, torch.ones(4).double(), rtol=0, atol=2e-7)
    simplex.entropy(simplex.project_to_simplex(x))


def test_the_slope_projects_onto_the_face():
    x = torch.tensor([0.9, 0.4, -3.0, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(simplex.project_to_simplex, x)
    slope = torch.func.jacrev(simplex.project_to_simplex)(x.detach())
    on = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    assert_close(slope, torch.diag(on) - torch.outer(on, on) / 3)


def test_one_outcome_is_refused():
    with pytest.raises(InvalidInputError, match="at least two outcomes"):
        simplex.project_to_simplex([2.0])
