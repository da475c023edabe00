"""Modes of differences from the stacked Gram matrix, against singular value decompositions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.replica import mode_energies, modes, stacked_gram


def differences(M, D, seed=0, power=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, D + 1.0, dtype=torch.float64) ** -power
    return torch.randn(2, M, D, generator=generator, dtype=torch.float64) * scale


def explicit_energies(V0, Vs):
    right = np.linalg.svd(V0, full_matrices=False)[2]
    return ((Vs @ right.T) ** 2).sum(0), ((V0 @ right.T) ** 2).sum(0)


def test_gram_is_the_product_of_the_stacked_rows():
    V0, Vs = differences(5, 70)
    rows = torch.cat([V0, Vs])
    torch.testing.assert_close(stacked_gram(V0, Vs), rows @ rows.mT)


def test_panels_do_not_change_the_gram(monkeypatch):
    V0, Vs = differences(3, 101)
    whole = stacked_gram(V0, Vs)
    monkeypatch.setattr(modes, "_WIDENED", 6 * 7)
    torch.testing.assert_close(stacked_gram(V0, Vs), whole, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float16, 3e-3), (torch.bfloat16, 3e-3), (torch.float32, 1e-13)]
)
def test_gram_of_narrow_numbers_is_exact(dtype, bound):
    """Products are exact: what is left is the order of the sum, of pieces in float32 for half."""
    V0, Vs = (V.to(dtype) for V in differences(4, 3000))
    rows = torch.cat([V0, Vs]).double().numpy()
    exact = np.array([[np.sum(np.longdouble(1) * a * b) for b in rows] for a in rows])
    assert_allclose(stacked_gram(V0, Vs).numpy(), exact.astype(float), rtol=0, atol=bound)


def test_gram_makes_no_wide_copy_of_a_matrix(monkeypatch):
    widest = []
    original = torch.Tensor.to

    def watched(tensor, *args):
        if torch.float64 in args:
            widest.append(tensor.numel())
        return original(tensor, *args)

    monkeypatch.setattr(torch.Tensor, "to", watched)
    stacked_gram(torch.zeros(32, 300_000), torch.ones(32, 300_000))
    assert len(widest) > 1
    assert max(widest) <= 2**22 < 2 * 32 * 300_000


@pytest.mark.parametrize(("M", "D"), [(6, 40), (6, 6)])
def test_energies_are_those_of_the_singular_vectors(M, D):
    V0, Vs = differences(M, D)
    now, then = explicit_energies(V0.numpy(), Vs.numpy())
    found = mode_energies(stacked_gram(V0, Vs))
    assert_allclose(found.eigenvalues, then / M, rtol=1e-10)
    assert_allclose(found.current, now / M, rtol=1e-9)
    assert_allclose(found.energies, now / then, rtol=1e-9)
    assert found.count == M


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    factors=st.lists(st.floats(0.05, 20.0), min_size=5, max_size=5),
)
def test_a_map_diagonal_in_the_modes_gives_its_squared_factors(seed, factors):
    V0 = differences(5, 30, seed)[0]
    right = torch.linalg.svd(V0, full_matrices=False).Vh
    factors = torch.tensor(factors, dtype=torch.float64)
    Vs = V0 @ (right.mT * factors) @ right
    assert_allclose(mode_energies(stacked_gram(V0, Vs)).energies, factors**2, rtol=1e-7)


def test_modes_of_one_half_and_energies_of_the_other():
    V0, Vs = differences(8, 50)
    basis, other = [0, 3, 4, 6], [1, 2, 5, 7]
    right = np.linalg.svd(V0.numpy()[basis], full_matrices=False)
    found = mode_energies(stacked_gram(V0, Vs), basis=basis, evaluated=other)
    then = ((V0.numpy()[other] @ right[2].T) ** 2).mean(0)
    now = ((Vs.numpy()[other] @ right[2].T) ** 2).mean(0)
    assert_allclose(found.eigenvalues, right[1] ** 2 / 4, rtol=1e-10)
    assert_allclose(found.initial, then, rtol=1e-9)
    assert_allclose(found.energies, now / then, rtol=1e-9)


def test_modes_that_are_rounding_are_absent():
    """Six pairs in three dimensions have three modes."""
    V0, Vs = differences(6, 3)
    found = mode_energies(stacked_gram(V0, Vs))
    assert found.present.tolist() == [True] * 3 + [False] * 3
    assert np.isnan(found.energies[3:]).all()
    assert_allclose(found.energies[:3], np.divide(*explicit_energies(V0.numpy(), Vs.numpy())))


def test_a_mode_without_initial_energy_in_the_other_half_is_absent():
    V0 = torch.eye(4, dtype=torch.float64)
    found = mode_energies(stacked_gram(V0, V0), basis=[0, 1], evaluated=[2, 3])
    assert found.count == 0


def test_scale_of_the_later_step_scales_the_energies():
    V0, Vs = differences(5, 20)
    one, three = (mode_energies(stacked_gram(V0, f * Vs)).energies for f in (1.0, 3.0))
    assert_allclose(three, 9 * one, rtol=1e-12)


@pytest.mark.parametrize(
    ("first", "later", "sentence"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), "one shape"),
        (torch.ones(2, 3, 4), torch.ones(2, 3, 4), "Flatten"),
        (torch.ones(2, 3).long(), torch.ones(2, 3).long(), "floating point"),
        (torch.ones(2, 3), torch.full((2, 3), torch.nan), "in pair 0"),
    ],
)
def test_bad_differences_get_a_sentence(first, later, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        stacked_gram(first, later)


@pytest.mark.parametrize(
    ("gram", "sentence"),
    [
        (np.eye(3), "2M, 2M"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, np.nan]), "finite"),
        (np.diag([0.0, 1.0]), "V0 is zero"),
    ],
)
def test_bad_gram_gets_a_sentence(gram, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        mode_energies(gram)


def test_pairs_that_are_not_there_get_a_sentence():
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        mode_energies(np.eye(4), basis=[2])
