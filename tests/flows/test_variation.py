"""Variation of a path, its linear control, and squared steps through the Gram matrix."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from flowscope import flows
from flowscope.errors import InvalidInputError
from flowscope.flows import gram


def path(seed: int, *shape: int) -> np.ndarray:
    """Centred states z⁰ … z^n of each row: [rows, n + 1, V]."""
    z = np.random.default_rng(seed).standard_normal(shape).cumsum(1)
    return z - z.mean(-1, keepdims=True)


def squares(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (np.diff(z, axis=1) ** 2).sum(-1), (z[:, 1:] ** 2).sum(-1)


def test_variation_of_an_explicit_path():
    z = path(0, 3, 8, 20)
    step_sq, state_sq = squares(z)
    lengths = np.linalg.norm(np.diff(z, axis=1), axis=-1)
    chord = np.linalg.norm(z[:, -1] - z[:, 0], axis=-1)
    assert_allclose(flows.path_length(step_sq), lengths.sum(1))
    assert_allclose(flows.quadratic_variation(step_sq), (lengths**2).sum(1))
    assert_allclose(flows.relative_variation(step_sq, state_sq), step_sq.sum(1) / state_sq.sum(1))
    assert_allclose(flows.concentration(step_sq), 7 * (lengths**2).sum(1) / lengths.sum(1) ** 2)
    assert_allclose(flows.tortuosity(step_sq, chord), lengths.sum(1) / chord)


def test_relative_variation_divides_by_the_states_after_each_step():
    """Two steps of a known path: z = 0, 1, 3 (a number in place of a vector)."""
    assert_allclose(flows.relative_variation([1.0, 4.0], [1.0, 9.0]), 0.5)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_even_steps_and_one_jump_bound_the_concentration(n):
    assert_allclose(flows.concentration(np.full(n, 0.49)), 1.0)
    assert_allclose(flows.concentration([0.0] * (n - 1) + [2.5]), n)


@pytest.mark.parametrize("unit", [1e-300, 1e300])
def test_concentration_has_no_units(unit):
    assert_allclose(flows.concentration([unit, 4 * unit]), 10 / 9)


def test_a_straight_path_has_tortuosity_one_and_a_square_has_no_end():
    assert_allclose(flows.tortuosity([4.0, 1.0, 9.0], 6.0), 1.0)
    assert flows.tortuosity([1.0, 1.0, 1.0, 1.0], 0.0) == math.inf


def test_a_path_that_stands_still():
    still = np.zeros((2, 4))
    assert_allclose(flows.path_length(still), 0)
    assert_allclose(flows.relative_variation(still, np.ones((2, 4))), 0)
    assert_allclose(flows.relative_variation(still, still), 0)
    assert_allclose(flows.concentration(still), 1)
    assert_allclose(flows.tortuosity(still, np.zeros(2)), 1)


def test_a_path_that_collapses_to_zero_has_infinite_relative_variation():
    assert flows.relative_variation([1.0], [0.0]) == math.inf


def test_no_rows_give_no_numbers():
    none = np.zeros((0, 4))
    assert flows.relative_variation(none, none).shape == (0,)
    assert flows.concentration(none).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_linear_control_is_that_of_an_explicit_interpolation(n):
    ends = path(1, 5, 2, 30)
    a, b = ends[:, 0], ends[:, 1]
    t = np.linspace(0, 1, n + 1)[:, None]
    z = (1 - t) * a[:, None] + t * b[:, None]
    norms = (torch.from_numpy((x * y).sum(-1)) for x, y in [(a, a), (b, b), (a, b)])
    found = flows.line_relative_variation(*norms, steps=n)
    assert_allclose(found.numpy(), flows.relative_variation(*squares(z)))


def test_linear_control_of_ends_at_right_angles():
    one = torch.tensor(1.0)
    found = flows.line_relative_variation(one, one, 0 * one, steps=22)
    assert_close(found.item(), 12 / (21 * 43 + 23 * 45))


def test_linear_control_of_ends_that_coincide_or_vanish():
    one, zero = torch.tensor(1.0), torch.tensor(0.0)
    assert flows.line_relative_variation(one, one, one, steps=4) == 0
    assert flows.line_relative_variation(zero, zero, zero, steps=4) == 0
    assert flows.line_relative_variation(one, zero, zero, steps=1) == math.inf


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gram_gives_the_centred_squared_step_of_the_logits(dtype):
    generator = torch.Generator().manual_seed(3)
    U = torch.randn(1000, 24, generator=generator, dtype=dtype)
    U += 5 * torch.randn(24, generator=generator, dtype=dtype)  # a mean that is not zero
    x, y = torch.randn(2, 6, 24, generator=generator, dtype=dtype)
    found = flows.quadratic_variation_gram(y - x, flows.centred_gram(U))
    exact = flows.step_statistics(x.double() @ U.double().T, y.double() @ U.double().T).step_sq
    assert found.dtype == torch.float64
    assert_close(found, exact, rtol=1e-5 if dtype == torch.float32 else 1e-11, atol=0)


def test_gram_keeps_steps_along_weak_directions():
    """Condition number 1e8: in float32 the quadratic form of a weak direction would be noise."""
    scale = torch.logspace(0, -4, 16)
    U = torch.randn(500, 16, generator=torch.Generator().manual_seed(5)) * scale
    step = torch.eye(16)[-1]
    centred = U.double()[:, -1] - U.double()[:, -1].mean()
    found = flows.quadratic_variation_gram(step, flows.centred_gram(U))
    assert_close(found, centred.square().sum(), rtol=1e-9, atol=0)


def test_gram_of_pieces_is_that_of_the_whole(monkeypatch):
    U = torch.randn(103, 7, generator=torch.Generator().manual_seed(4))
    whole = flows.centred_gram(U)
    monkeypatch.setattr(gram, "_WIDENED", 7 * 10)
    assert_close(flows.centred_gram(U), whole, rtol=1e-12, atol=1e-12)
    centred = U.double() - U.double().mean(0)
    assert_close(whole, centred.T @ centred, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: flows.path_length([]), "at least one step"),
        (lambda: flows.path_length(1.0), "at least one step"),
        (lambda: flows.path_length(np.zeros((3, 0))), "at least one step"),
        (lambda: flows.path_length([1.0, -1.0]), "not negative"),
        (lambda: flows.concentration([1.0, math.nan]), "finite"),
        (lambda: flows.quadratic_variation([math.inf]), "finite"),
        (lambda: flows.relative_variation([1.0, 2.0], [1.0]), r"\(2,\) and \(1,\)"),
        (lambda: flows.relative_variation([1.0], [-1.0]), "state_sq must be"),
        (lambda: flows.tortuosity([1.0, 1.0], [1.0, 1.0]), r"shape \(\)"),
        (lambda: flows.tortuosity([1.0, 1.0], 4.0), "no longer than the path"),
        (lambda: flows.tortuosity([1.0, 1.0], math.nan), "chord must be finite"),
        (
            lambda: flows.line_relative_variation(*torch.tensor([1.0, 1.0, 2.0]), steps=3),
            "Cauchy",
        ),
        (lambda: flows.line_relative_variation(*torch.ones(3), steps=0), "at least one step"),
        (lambda: flows.centred_gram(torch.zeros(3)), r"shape \[V, d\]"),
        (lambda: flows.centred_gram(torch.full((3, 2), math.nan)), "finite"),
        (
            lambda: flows.quadratic_variation_gram(torch.zeros(2, 3), torch.eye(4)),
            "gram acts on 4",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        call()
