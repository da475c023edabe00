"""Coarse and fine distances of images."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.replica import CoarseFine, agreement, coarse_fine, independent_baseline


def images(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def pooling(n, size):
    """Matrix of adaptive average pooling along one axis."""
    P = np.zeros((size, n))
    for i in range(size):
        start, end = i * n // size, -(-(i + 1) * n // size)
        P[i, start:end] = 1 / (end - start)
    return P


def upsampling(n, size):
    """Matrix of linear interpolation along one axis, pixel centres in register."""
    U = np.zeros((n, size))
    for i in range(n):
        at = np.clip((i + 0.5) * size / n - 0.5, 0, size - 1)
        left = int(np.floor(at))
        right = min(left + 1, size - 1)
        U[i, left] += 1 - (at - left)
        U[i, right] += at - left
    return U


@pytest.mark.parametrize(("H", "W", "size"), [(8, 8, 2), (12, 10, 5), (9, 7, 4)])
def test_distances_are_those_of_the_two_matrices(H, W, size):
    a, b = images(2, 3, 2, H, W).double()
    e = (a - b).numpy()
    low = np.einsum("ih,pchw,jw->pcij", pooling(H, size), e, pooling(W, size))
    back = np.einsum("hi,pcij,wj->pchw", upsampling(H, size), low, upsampling(W, size))
    found = coarse_fine(a, b, size)
    assert_allclose(found.low, (low**2).sum((1, 2, 3)), rtol=1e-10)
    assert_allclose(found.high, ((e - back) ** 2).sum((1, 2, 3)), rtol=1e-10)


def test_identical_images_do_not_differ():
    a = images(3, 3, 16, 16)
    found = coarse_fine(a, a.clone(), 4)
    assert not found.low.any()
    assert not found.high.any()


@settings(max_examples=20, deadline=None)
@given(shift=st.floats(-3, 3), size=st.integers(1, 7))
def test_a_constant_shift_is_coarse_only(shift, size):
    a = images(2, 3, 8, 8).double()
    found = coarse_fine(a, a + shift, size)
    assert_allclose(found.low, 3 * size**2 * shift**2, atol=1e-12, rtol=1e-9)
    assert_allclose(found.high, 0, atol=1e-24)


def test_a_checkerboard_is_fine_only():
    a = images(2, 1, 8, 8).double()
    board = 1.0 - 2.0 * (torch.arange(8)[:, None] + torch.arange(8)).remainder(2)
    found = coarse_fine(a, a + 0.5 * board, 4)
    assert_allclose(found.low, 0, atol=1e-24)
    assert_allclose(found.high, 64 * 0.25, rtol=1e-12)


def test_distances_are_symmetric_and_quadratic():
    a, b = images(2, 2, 3, 8, 8).double()
    one, other, twice = coarse_fine(a, b, 2), coarse_fine(b, a, 2), coarse_fine(2 * a, 2 * b, 2)
    for k in range(2):
        torch.testing.assert_close(one[k], other[k])
        torch.testing.assert_close(twice[k], 4 * one[k])


def test_half_precision_is_widened():
    a, b = images(2, 2, 3, 64, 64).half() * 200
    exact = coarse_fine(a.double(), b.double(), 8)
    found = coarse_fine(a, b, 8)
    assert found.low.dtype == torch.float32
    assert_allclose(found.low, exact.low, rtol=1e-5)
    assert_allclose(found.high, exact.high, rtol=1e-5)


def test_baseline_is_the_mean_over_different_pairs():
    a, b = 100 + images(2, 5, 2, 8, 8).double()
    each = [coarse_fine(a, b.roll(k, 0), 3) for k in range(1, 5)]
    found = independent_baseline(a, b, 3)
    assert_allclose(found.low, torch.stack([d.low for d in each]).mean(), rtol=1e-9)
    assert_allclose(found.high, torch.stack([d.high for d in each]).mean(), rtol=1e-9)


def test_agreement_is_zero_for_independent_and_one_for_identical_images():
    a, b = images(2, 400, 1, 8, 8)
    baseline = independent_baseline(a, b, 2)
    for part in agreement(coarse_fine(a, b, 2), baseline):
        assert abs(float(part.mean())) < 0.1
    for part in agreement(coarse_fine(a, a, 2), baseline):
        assert (part == 1).all()


def test_agreement_averages_a_baseline_of_pairs():
    pairs = CoarseFine(torch.ones(2), torch.ones(2))
    each = CoarseFine(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 5.0]))
    found = agreement(pairs, each)
    assert_allclose(found.low, 0.5)
    assert_allclose(found.high, 0.75)


@pytest.mark.parametrize(
    ("a", "b", "size", "sentence"),
    [
        (torch.ones(2, 3, 8, 8), torch.ones(3, 3, 8, 8), 2, "one shape"),
        (torch.ones(3, 8, 8), torch.ones(3, 8, 8), 2, "one shape"),
        (torch.ones(2, 3, 8, 8).byte(), torch.ones(2, 3, 8, 8).byte(), 2, "floating point"),
        (torch.ones(2, 3, 8, 8), torch.ones(2, 3, 8, 8), 8, "smaller than the images"),
        (torch.ones(2, 3, 8, 8), torch.full((2, 3, 8, 8), torch.nan), 2, "images_b must be finite"),
    ],
)
def test_bad_images_get_a_sentence(a, b, size, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        coarse_fine(a, b, size)


def test_a_baseline_that_is_no_baseline_gets_a_sentence():
    one = torch.ones(1, 1, 8, 8)
    with pytest.raises(InvalidInputError, match="two pairs"):
        independent_baseline(one, one, 2)
    pairs = coarse_fine(one, one, 2)
    with pytest.raises(InvalidInputError, match="low baseline must be positive"):
        agreement(pairs, pairs)
