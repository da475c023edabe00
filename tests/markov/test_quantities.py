"""Quantities of heads against the routines they shorten."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.markov import (
    Bidivergence,
    chain_quantities,
    entropy_production,
    quasi_quantities,
    quasi_stationary,
    sector_quantities,
    spectral_gap,
    stationary_distribution,
)


def scores(seed, n=9, heads=3, size=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (size * torch.randn(heads, n, n, generator=generator)).to(dtype)


@given(st.integers(0, 200), st.integers(2, 12), st.floats(0.01, 20))
def test_sectors_are_those_of_the_bidivergence(seed, n, size):
    W = scores(seed, n, size=size)
    found, parts = sector_quantities(W), Bidivergence.of(W)
    torch.testing.assert_close(found["exact_share"], parts.exact_share(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        found["negative_share"], parts.signature().negative_share.double(), rtol=1e-12, atol=0
    )
    if n > 2:  # two tokens have no cycle: the flux is zero up to rounding
        torch.testing.assert_close(found["flux_ratio"], parts.flux_ratio(), rtol=1e-7, atol=1e-9)


@given(st.integers(0, 50))
def test_constants_of_rows_change_no_sector(seed):
    W = scores(seed)
    gauge = 5 * torch.randn(3, 9, 1, dtype=W.dtype, generator=torch.Generator().manual_seed(seed))
    for name, value in sector_quantities(W).items():
        torch.testing.assert_close(sector_quantities(W + gauge)[name], value, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_short_form_of_entropy_production_is_the_long_one(dtype):
    z = scores(3, dtype=dtype)
    P = torch.softmax(z.double(), -1)
    law = stationary_distribution(P)
    found = chain_quantities(z)
    close = {"rtol": 1e-11 if dtype == torch.float64 else 2e-5, "atol": 1e-12}
    expected = entropy_production(P, law)
    torch.testing.assert_close(found["entropy_production"].double(), expected, **close)
    gap = {"rtol": 1e-6 if dtype == torch.float64 else 1e-5, "atol": 1e-7}
    torch.testing.assert_close(found["gap"].double(), spectral_gap(P, law), **gap)
    keys = torch.exp(-(P * P.log()).sum(-1)).mean(-1)
    torch.testing.assert_close(found["effective_keys"].double(), keys, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [9, 70])
def test_a_damped_chain_uses_the_long_form(n, dtype):
    z = scores(4, n, dtype=dtype).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    P = 0.9 * torch.softmax(z.double(), -1) + 0.1 / n
    law = stationary_distribution(P)
    found = chain_quantities(z, 0.1)
    expected = entropy_production(P, law)
    torch.testing.assert_close(found["entropy_production"], expected, rtol=1e-5, atol=0)
    assert (found["entropy_production"] > 0.1).all()


def test_a_causal_chain_without_damping_is_refused():
    z = scores(5).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    with pytest.raises(InvalidInputError, match="causal"):
        chain_quantities(z)
    found = quasi_quantities(z)
    expected = quasi_stationary(torch.softmax(z, -1))
    torch.testing.assert_close(found["survival"], expected.survival)
    assert "entropy_production" not in found


def test_symmetric_scores_are_in_equilibrium():
    W = scores(6)
    found = chain_quantities((W + W.mT) / 2)
    assert float(found["entropy_production"].abs().max()) < 1e-13
    assert float(sector_quantities((W + W.mT) / 2)["exact_share"].min()) == pytest.approx(1.0)
