"""Numbers near the ends of the range, and those that are none."""

import math

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy import (
    dimension_of_distances,
    effective_rank,
    gaussian_entropy,
    half_samples,
    intrinsic_dimension,
    kozachenko_leonenko,
    neighbour_lists,
    principal_coordinates,
    subsampled_ends,
    subsampled_interval,
)


def test_ratios_of_distances_beyond_float32():
    distances = torch.tensor([[1e-30, 1e30], [1e-30, 1e30]])
    expected = 1 / (2 * math.log(1e60))
    assert dimension_of_distances(distances) == pytest.approx(expected, rel=1e-6)


def test_a_point_without_enough_neighbours_has_no_dimension():
    assert math.isnan(dimension_of_distances(torch.tensor([[1.0, 2.0], [1.0, math.inf]])))


def test_points_of_a_lattice_have_no_finite_dimension():
    assert dimension_of_distances(torch.ones(3, 2)) == math.inf


@pytest.mark.parametrize(
    "distances",
    [
        [[0.0, 1.0], [1.0, 2.0]],
        [[2.0, 1.0], [1.0, 2.0]],
        [[math.nan, 1.0], [1.0, 2.0]],
        [[1.0, 2.0]],
    ],
    ids=["zero", "falling", "NaN", "one ratio"],
)
def test_distances_that_are_none_are_refused(distances):
    with pytest.raises(InvalidInputError, match="found"):
        dimension_of_distances(torch.tensor(distances))


@pytest.mark.parametrize("variances", [[1.0, math.inf], [1.0, math.nan], [1e308, 1e308], [-1.0, 2]])
def test_variances_without_shares_are_refused(variances):
    with pytest.raises(InvalidInputError, match="variances"):
        effective_rank(variances)


@pytest.mark.parametrize("scale", [1e-280, 1e-100, 1e100, 1e270])
@pytest.mark.parametrize(
    "function",
    [gaussian_entropy, intrinsic_dimension, kozachenko_leonenko, neighbour_lists,
     principal_coordinates],
)  # fmt: skip
def test_points_whose_squares_leave_the_range_are_refused(function, scale):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(InvalidInputError, match="Divide it by a constant"):
        function(x * scale)


def test_points_of_every_size_that_float32_holds_are_taken():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    entropy = kozachenko_leonenko(x).value
    for scale in (1e-37, 1e37):
        moved = kozachenko_leonenko(x * scale).value - 2 * math.log(scale)
        assert moved == pytest.approx(entropy, abs=1e-5)


def test_a_statistic_that_is_not_finite_has_no_interval():
    groups = torch.arange(20) // 2
    with pytest.raises(InvalidInputError, match="must be finite"):
        subsampled_interval(lambda chosen: math.nan, groups)
    with pytest.raises(InvalidInputError, match="must be finite"):
        subsampled_ends(math.inf, torch.ones(8), 10)


@pytest.mark.parametrize(
    ("halves", "groups", "level"),
    [(torch.ones(1), 8, 0.95), (torch.ones(8), 1, 0.95), (torch.ones(8), 8, 1.0)],
)
def test_an_interval_of_nothing_is_refused(halves, groups, level):
    with pytest.raises(InvalidInputError, match="two halves"):
        subsampled_ends(0.0, halves, groups, level=level)


def test_halves_hold_whole_groups():
    groups = torch.arange(40) % 10
    for half in half_samples(groups, 8, torch.Generator().manual_seed(0)):
        assert len(torch.unique(groups[half])) == 5
        assert half.sum() == 20
