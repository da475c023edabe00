"""Scaling logits to a number of effective keys, and permuted keys, against closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.markov import (
    chain_production,
    chain_quantities,
    effective_keys,
    keys_permuted,
    matching_scale,
)


def scores(seed, n=24, heads=3, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(heads, n, n, generator=generator, dtype=torch.float64)


def test_effective_keys_of_one_raised_logit_are_those_of_the_closed_form():
    n, a = 10, 2.0
    z = torch.zeros(n, n, dtype=torch.float64)
    z[:, 3] = a
    p = math.exp(a) / (math.exp(a) + n - 1)
    q = (1 - p) / (n - 1)
    entropy = -p * math.log(p) - (n - 1) * q * math.log(q)
    assert float(effective_keys(z)) == pytest.approx(math.exp(entropy), rel=1e-12)


@given(st.integers(0, 60), st.floats(0.02, 40), st.floats(0.05, 0.95))
def test_scaled_logits_have_the_keys_that_were_asked_for(seed, size, share):
    z = scores(seed, size=size)
    wanted = torch.full((3,), 1 + share * 22.9, dtype=torch.float64)
    scale = matching_scale(z, wanted)
    torch.testing.assert_close(effective_keys(z * scale[:, None, None]), wanted, rtol=2e-3, atol=0)


@given(st.integers(0, 40), st.floats(0.2, 5))
def test_the_scale_of_a_scaled_copy_is_the_inverse(seed, factor):
    z = scores(seed, size=1.5)
    scale = matching_scale(factor * z, effective_keys(z))
    torch.testing.assert_close(scale, torch.full_like(scale, 1 / factor), rtol=5e-3, atol=0)


def test_keys_that_no_scale_reaches_give_nan():
    uniform = torch.zeros(2, 6, 6, dtype=torch.float64)
    assert matching_scale(uniform, torch.tensor([3.0, 3.0])).isnan().all()
    z = scores(0, n=6, heads=3)
    wanted = torch.tensor([7.0, 0.5, float("nan")], dtype=torch.float64)
    assert matching_scale(z, wanted).isnan().all()


def test_a_masked_pair_stays_masked():
    z = scores(1, n=12)
    z[:, 0, 5:] = -torch.inf
    z[:, 5:, 0] = -torch.inf
    wanted = torch.full((3,), 3.0, dtype=torch.float64)
    scale = matching_scale(z, wanted)
    torch.testing.assert_close(effective_keys(z * scale[:, None, None]), wanted, rtol=2e-3, atol=0)


@pytest.mark.parametrize("n", [12, 64])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_production_alone_is_that_of_the_whole_table(n, damping):
    z = scores(2, n=n, size=2.0)
    whole = chain_quantities(z, damping)["entropy_production"]
    torch.testing.assert_close(chain_production(z, damping), whole, rtol=1e-3, atol=1e-9)


def test_permuted_keys_keep_the_weights_of_each_row_and_its_diagonal():
    z, order = scores(3, n=9), torch.tensor([4, 1, 0, 8, 2, 7, 3, 5, 6])
    moved = keys_permuted(z, order)
    torch.testing.assert_close(moved.sort(-1).values, z.sort(-1).values, rtol=0, atol=0)
    torch.testing.assert_close(moved.diagonal(dim1=-2, dim2=-1), z.diagonal(dim1=-2, dim2=-1))
    off = ~torch.eye(9, dtype=torch.bool)
    plain = z[..., order]
    # a column moves as a whole but for the two entries of each row that keep the diagonal
    assert int((moved != plain)[:, off].sum()) == 3 * (order != torch.arange(9)).sum()


def test_the_identity_permutes_nothing():
    z = scores(4, n=7)
    torch.testing.assert_close(keys_permuted(z, torch.arange(7)), z, rtol=0, atol=0)


def test_an_order_that_is_no_permutation_is_refused():
    with pytest.raises(InvalidInputError, match="permutation"):
        keys_permuted(scores(5, n=4), torch.tensor([0, 0, 1, 2]))
