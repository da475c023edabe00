"""Exact identities of the row softmax and the bound on pattern modulation (004 App. B, E87)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    kernel_derivative,
    pattern_bound,
    ratio_bound,
    routing_residuals,
)


def problem(seed, tokens=7, width=4, sharpness=1.0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    z, dS = torch.randn(2, *batch, tokens, tokens, generator=generator, dtype=torch.float64)
    V, dV = torch.randn(2, *batch, tokens, width, generator=generator, dtype=torch.float64)
    return torch.softmax(sharpness * z, -1), dS, V, dV


def test_the_derivative_is_that_of_the_softmax():
    z, dS = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    _, expected = torch.func.jvp(lambda x: torch.softmax(x, -1), (z,), (dS,))
    torch.testing.assert_close(
        kernel_derivative(torch.softmax(z, -1), dS), expected, atol=1e-15, rtol=0
    )


@given(st.integers(0, 300), st.integers(2, 20), st.floats(0.1, 8))
def test_identities_hold_to_rounding(seed, tokens, sharpness):
    A, dS, V, _ = problem(seed, tokens, sharpness=sharpness)
    found = routing_residuals(A, dS, V)
    for residual in (found.row_sums, found.constants, found.values):
        assert float(residual) < 1e-13


def test_a_kernel_whose_rows_miss_one_is_seen():
    """A residual must be able to be large: rows scaled by 1.1."""
    A, dS, V, _ = problem(0)
    found = routing_residuals(1.1 * A, dS, V)
    assert float(found.constants) == pytest.approx(0.1, abs=1e-12)
    assert min(float(found.row_sums), float(found.values)) > 1e-3


@given(st.integers(0, 500), st.integers(2, 24), st.floats(0.05, 12))
def test_the_bound_always_holds(seed, tokens, sharpness):
    A, dS, V, _ = problem(seed, tokens, sharpness=sharpness)
    found = pattern_bound(A, dS, V)
    assert float(found.measured) <= float(found.rowwise) * (1 + 1e-12)
    assert float(found.rowwise) <= float(found.bound) * (1 + 1e-12)


@given(st.integers(0, 100), st.floats(-50, 50))
def test_the_rowwise_bound_does_not_see_a_shift_of_the_logits(seed, shift):
    A, dS, V, _ = problem(seed)
    first, second = pattern_bound(A, dS, V), pattern_bound(A, dS + shift, V)
    torch.testing.assert_close(first.rowwise, second.rowwise, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(first.measured, second.measured, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("tokens", [16, 256])
def test_diffuse_attention_brings_no_suppression(tokens):
    """Uniform attention, δS and V₀ aligned: measured/‖P_⊥V₀‖ = 1 and bound 2, for every N."""
    v = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(tokens // 2)
    A = torch.full((tokens, tokens), 1 / tokens, dtype=torch.float64)
    found = pattern_bound(A, v.expand(tokens, tokens), v[:, None])
    assert float(found.effective_width) == pytest.approx(tokens)
    assert float(found.measured) == pytest.approx(np.sqrt(tokens))
    assert float(found.tightness) == pytest.approx(0.5)


def test_the_constant_two_cannot_be_improved():
    """One key of mass p against N − 1 equal ones, δS = ±1: 87 % of the bound at N = 1000."""
    tokens, p = 1000, 0.1
    row = torch.full((tokens,), (1 - p) / (tokens - 1), dtype=torch.float64)
    row[0] = p
    A = row.expand(tokens, tokens)
    dS = -torch.ones(tokens, dtype=torch.float64)
    dS[0] = 1.0
    values = kernel_derivative(row, dS)[:, None]
    found = pattern_bound(A, dS.expand(tokens, tokens), values)
    assert 0.86 < float(found.tightness) <= 1
    assert 0.86 < float(found.measured / found.rowwise) <= 1


def test_batches_and_heads_are_bounded_one_by_one():
    A, dS, V, dV = problem(0, batch=(2, 3))
    found, ratio = pattern_bound(A, dS, V), ratio_bound(A, dS, V, dV)
    one, single = (
        pattern_bound(A[1, 2], dS[1, 2], V[1, 2]),
        ratio_bound(A[1, 2], dS[1, 2], V[1, 2], dV[1, 2]),
    )
    assert found.bound.shape == (2, 3)
    torch.testing.assert_close(found.bound[1, 2], one.bound)
    torch.testing.assert_close(ratio.bound[1, 2], single.bound)


@given(st.integers(0, 500), st.floats(0.05, 6), st.floats(-3, 3))
def test_the_ratio_bound_always_holds(seed, sharpness, offset):
    """With a constant part in δV, of which routing keeps everything."""
    A, dS, V, dV = problem(seed, sharpness=sharpness)
    found = ratio_bound(A, dS, V, dV + offset)
    assert float(found.measured) <= float(found.bound)


def test_the_ratio_bound_is_finite_for_smooth_values_and_empty_for_rough_ones():
    A, dS, V, dV = problem(1, sharpness=0.5)
    smooth = ratio_bound(A, dS, V, 0.01 * dV + 1)
    assert 0 < float(smooth.measured) < float(smooth.bound) < torch.inf
    rough = ratio_bound(A, dS, V, dV - dV.mean(-2, keepdim=True))
    assert float(rough.bound) == torch.inf


def test_transmission_is_the_norm_of_the_kernel_on_rough_values():
    A, dS, V, dV = problem(2)
    rough = np.eye(7) - 1 / 7
    expected = np.linalg.norm(A.numpy() @ rough, 2)
    assert float(ratio_bound(A, dS, V, dV).transmission) == pytest.approx(expected)


def test_shapes_that_do_not_fit_are_refused():
    A, dS, V, _ = problem(0)
    with pytest.raises(InvalidInputError, match="square"):
        pattern_bound(A[:3], dS[:3], V)
    with pytest.raises(InvalidInputError, match="tokens"):
        routing_residuals(A, dS, V[:3])
