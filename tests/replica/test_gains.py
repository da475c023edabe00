"""Modal gains and the leading eigenvalue, against matrices."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.replica.blocks import (
    SIZE,
    WIDTH,
    dense,
    of_matrix,
    orthonormal,
    prenorm_block,
    random_matrix,
    state,
)

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    Propagator,
    leading_eigenvalue,
    modal_gains,
)


@given(st.integers(0, 50))
def test_gains_of_a_matrix_are_its_quadratic_form(seed):
    M, modes = random_matrix(seed), orthonormal()
    flat = modes.flatten(1)
    gains = modal_gains(of_matrix(M), modes, 0.3)
    torch.testing.assert_close(gains.total, (flat @ M * flat).sum(1), atol=1e-13, rtol=0)
    assert not bool((gains.routing.any() | gains.query.any()) | gains.key.any())


@pytest.mark.parametrize("g", [0.0, 0.3, 1.0])
def test_gains_are_the_diagonal_of_the_propagator(g):
    propagator, modes = Propagator(prenorm_block(), state()), orthonormal()
    flat, K = modes.flatten(1), dense(propagator, g)
    gains = modal_gains(propagator, modes, g)
    torch.testing.assert_close(gains.total, torch.diagonal(flat @ K @ flat.T), atol=1e-12, rtol=0)
    parts = gains.direct + gains.routing + gains.query + gains.key
    torch.testing.assert_close(gains.total, parts, atol=1e-13, rtol=0)


def test_gains_of_a_batch_are_those_of_its_states():
    block, states, modes = prenorm_block(), state(batch=(3,)), orthonormal()
    gains = modal_gains(Propagator(block, states), modes, 0.3)
    assert gains.total.shape == (4, 3)
    for j in range(3):
        one = modal_gains(Propagator(block, states[j]), modes, 0.3)
        torch.testing.assert_close(gains.query[:, j], one.query, atol=1e-13, rtol=0)


def test_modes_must_be_unit_vectors_of_the_state():
    propagator = Propagator(prenorm_block(), state())
    with pytest.raises(InvalidInputError, match="length one"):
        modal_gains(propagator, 2 * orthonormal(), 0.3)
    with pytest.raises(InvalidInputError, match="shape"):
        modal_gains(propagator, orthonormal()[..., :-1], 0.3)


@pytest.mark.parametrize("tokens", [1, 5, 30])
def test_the_leading_eigenvalue_of_a_matrix(tokens):
    size = tokens * WIDTH
    M = random_matrix(2, size)
    found = leading_eigenvalue(of_matrix(M, tokens), 0.3, tolerance=1e-9)
    values = np.linalg.eigvals(M.numpy())
    expected = values[values.real.argmax()]
    assert found.converged
    assert found.value.real == pytest.approx(expected.real, abs=1e-8)
    assert abs(found.value.imag) == pytest.approx(abs(expected.imag), abs=1e-8)
    assert found.value.imag >= 0


def test_largest_real_part_not_largest_modulus():
    values = torch.linspace(-3.0, 0.9, 30 * WIDTH, dtype=torch.float64)
    found = leading_eigenvalue(of_matrix(torch.diag(values), 30), 0.0)
    assert found.value == pytest.approx(0.9, abs=1e-8)
    assert found.value.imag == 0


def test_of_a_conjugate_pair_the_upper_one_is_told():
    turn = torch.tensor([[0.9, -0.5], [0.5, 0.9]], dtype=torch.float64)
    M = torch.block_diag(turn, torch.zeros(4, 4, dtype=torch.float64))
    found = leading_eigenvalue(of_matrix(M, 1), 0.0)
    assert found.value == pytest.approx(0.9 + 0.5j, abs=1e-10)


def test_a_multiple_of_the_identity_is_known_at_once():
    """The Krylov space is whole after one product."""
    found = leading_eigenvalue(of_matrix(1.5 * torch.eye(SIZE).double()), 0.0)
    assert found.value == pytest.approx(1.5)
    assert found.products == 2
    assert found.converged


def test_it_is_the_same_twice():
    M = random_matrix(4, 30 * WIDTH)
    first, second = (leading_eigenvalue(of_matrix(M, 30), 0.3, products=40) for _ in range(2))
    assert first.value == second.value
    assert first.products == second.products


def test_it_stops_when_it_may_and_says_when_it_could_not():
    """An outlier over a disk of radius one is found in a few products, the edge of the disk not."""
    M = random_matrix(2, 60 * WIDTH)
    edge = leading_eigenvalue(of_matrix(M, 60), 0.3, products=30)
    assert not edge.converged
    assert edge.residual > 1e-3
    M[0, 0] += 4.0
    outlier = leading_eigenvalue(of_matrix(M, 60), 0.3, products=200)
    expected = np.linalg.eigvals(M.numpy()).real.max()
    assert outlier.converged
    assert outlier.products < 30
    assert outlier.value.real == pytest.approx(expected, abs=1e-5)


def test_the_leading_eigenvalue_of_the_coupled_block():
    propagator = Propagator(prenorm_block(), state())
    for g in (0.0, 1.0):
        expected = np.linalg.eigvals(dense(propagator, g).numpy()).real.max()
        assert leading_eigenvalue(propagator, g).value.real == pytest.approx(expected, abs=1e-5)


def test_a_search_needs_a_tolerance_and_products():
    propagator = Propagator(prenorm_block(), state())
    for bad in ({"tolerance": 0.0}, {"products": 0}):
        with pytest.raises(InvalidInputError, match="positive"):
            leading_eigenvalue(propagator, 0.3, **bad)
