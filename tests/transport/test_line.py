"""Transport on the line against scipy, POT, closed forms and linear programming."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.transport.line import wasserstein_1d


def weighted_pair(seed, n=7, m=4):
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))
    return rng.normal(size=n), rng.normal(size=m) + 0.5, a, b


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9))
def test_order_one_is_scipys_integral_of_cdf_differences(seed, n, m):
    x, y, a, b = weighted_pair(seed, n, m)
    assert float(wasserstein_1d(x, y, a, b)) == pytest.approx(wasserstein_distance(x, y, a, b))


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 5.0])
def test_every_order_is_the_linear_programme(order):
    x, y, a, b = weighted_pair(3, 12, 9)
    cost = np.abs(x[:, None] - y[None]) ** order
    expected = ot.emd2(a, b, cost) ** (1 / order)
    assert float(wasserstein_1d(x, y, a, b, order=order)) == pytest.approx(expected, rel=1e-12)
    one_dimensional = ot.emd2_1d(x, y, a, b, metric="minkowski", p=order) ** (1 / order)
    assert float(wasserstein_1d(x, y, a, b, order=order)) == pytest.approx(one_dimensional)


def test_centred_gaussians_have_their_closed_form():
    q = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    z = torch.special.ndtri(q)
    expected = oracles.centred_gaussian_wasserstein1(1.0, 2.0)
    assert float(wasserstein_1d(z, 2 * z)) == pytest.approx(expected, abs=1e-4)
    assert float(wasserstein_1d(z, 2 * z, order=2)) == pytest.approx(1.0, abs=1e-4)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 2.0, 3.0]))
def test_translation_scale_and_triangle(seed, order):
    x, y, a, b = weighted_pair(seed)
    z = np.random.default_rng(seed + 1).normal(size=5)
    distance = wasserstein_1d(x, y, a, b, order=order)
    assert_close(wasserstein_1d(-3 * x + 1, -3 * y + 1, a, b, order=order), 3 * distance)
    assert float(wasserstein_1d(x, x + 2.5, a, a, order=order)) == pytest.approx(2.5)
    around = wasserstein_1d(x, z, a, order=order) + wasserstein_1d(z, y, None, b, order=order)
    assert distance <= around + 1e-12


def test_merged_repeated_and_massless_atoms_change_nothing():
    x, y, a, b = weighted_pair(0)
    expected = wasserstein_1d(x, y, a, b, order=2)
    split = np.concatenate([x, x, [50.0, -50.0]])
    masses = np.concatenate([0.3 * a, 0.7 * a, [0.0, 0.0]])
    assert_close(wasserstein_1d(split, y, masses, b, order=2), expected)


def test_levels_that_differ_by_rounding_are_one_level():
    # Thirds and sixths: cumulative sums tie up to rounding. With order 60 an interval of width
    # 1e-17 would still count for half of its gap.
    x = torch.tensor([0.0, 10.0, 20.0], dtype=torch.float64)
    assert float(wasserstein_1d(x, x.repeat_interleave(7), order=60)) == 0.0


def test_large_orders_approach_the_widest_gap_without_overflow():
    x = torch.tensor([0.0, 1e10], dtype=torch.float64)
    y = torch.tensor([0.0, 3e10], dtype=torch.float64)
    assert float(wasserstein_1d(x, y, order=400)) == pytest.approx(2e10 * 0.5 ** (1 / 400))


def test_batches_broadcast():
    x = torch.randn(5, 1, 6, dtype=torch.float64)
    y = torch.randn(3, 8, dtype=torch.float64)
    found = wasserstein_1d(x, y, order=2)
    assert found.shape == (5, 3)
    assert_close(found[4, 1], wasserstein_1d(x[4, 0], y[1], order=2))


def test_total_mass_multiplies_the_power():
    x, y, a, b = weighted_pair(1)
    expected = math.sqrt(7.0) * float(wasserstein_1d(x, y, a, b, order=2))
    assert float(wasserstein_1d(x, y, 7 * a, 7 * b, order=2)) == pytest.approx(expected)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_slopes_are_those_of_finite_differences(order):
    x, y, a, b = (torch.from_numpy(v).requires_grad_() for v in weighted_pair(5))

    def distance(x, y, a, b):
        return wasserstein_1d(x, y, a / a.sum(), b / b.sum(), order=order)

    assert torch.autograd.gradcheck(distance, (x, y, a, b), atol=1e-6)


def test_slope_at_distance_zero_is_zero_not_nan():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    wasserstein_1d(x, x.detach(), order=2).backward()
    assert_close(x.grad, torch.zeros(2, dtype=torch.float64))


def test_half_precision_is_widened_and_float32_kept():
    x = torch.randn(9)
    assert wasserstein_1d(x, x + 1).dtype == torch.float32
    assert wasserstein_1d(x.bfloat16(), x.bfloat16() + 1).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "order", "message"),
    [
        (([0.0], [1.0]), 0.5, "order must be finite and >= 1; found 0.5"),
        (([0.0], [math.inf]), 1, "y must be finite; found inf"),
        (([0.0, 1.0], [1.0], [0.5, -0.5], [1.0]), 1, "a must have no negative mass; found -0.5"),
        (([0.0, 1.0], [1.0], [0.5, 0.6], [1.0]), 1, "equal totals; found 1.1 and 1"),
        (([0.0, 1.0], [1.0], [1.0], [1.0]), 1, r"each of 2 points .* found shape \(1,\)"),
        ((0.0, [1.0]), 1, r"x must have at least one atom.*shape \(\)"),
        ((np.zeros((2, 3)), np.zeros((4, 3))), 1, "broadcast; found"),
        (([0.0], [1.0], [0.0], [0.0]), 1, "hold some mass in every problem; found 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, order, message):
    with pytest.raises(InvalidInputError, match=message):
        wasserstein_1d(*arguments, order=order)
