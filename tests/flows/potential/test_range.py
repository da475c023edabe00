"""Clouds without spread or motion, numbers near the ends of the range, and those that are none."""

import math
import re

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.potential import (
    covariance_forecast,
    crossed_curvature,
    curvature,
    lag_correlation,
    mean_flow,
    squared_step_diffusivity,
)

GROUPS = torch.arange(40) % 10


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("place", [0.0, 0.1])
def test_a_flow_of_one_point_is_refused(place):
    with pytest.raises(InvalidInputError, match="equal before"):
        mean_flow(torch.full((40, 2), place), normal(40, 2), GROUPS)


@pytest.mark.parametrize("scale", [1e-280, 1e-160, 1e160, 1e270])
def test_points_whose_squares_leave_the_range_are_refused(scale):
    with pytest.raises(InvalidInputError, match="Divide it by a constant"):
        mean_flow(scale * normal(40, 2), scale * normal(40, 2, seed=1), GROUPS)
    with pytest.raises(InvalidInputError, match="Divide it by a constant"):
        squared_step_diffusivity(scale * normal(40, 2), scale * normal(40, 2, seed=1), 1.0)


def test_a_motion_whose_square_vanishes_is_none():
    before = normal(40, 2)
    before[:, 1] = 0
    after = before.clone()
    after[:, 1] = 1e-200
    with pytest.raises(InvalidInputError, match="Nothing moves"):
        mean_flow(before, after, GROUPS)


def test_a_forecast_of_a_cloud_that_ends_in_a_point_is_refused():
    before = normal(40, 2)
    with pytest.raises(InvalidInputError, match="all points are equal"):
        covariance_forecast([mean_flow(before, torch.zeros(40, 2), GROUPS)])


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e200])
def test_jacobians_that_are_none_are_refused(entry):
    jacobians = torch.eye(2).double()[None]
    jacobians[0, 0, 1] = entry
    with pytest.raises(InvalidInputError, match="Jacobians must be"):
        curvature(jacobians)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lag_correlation_does_not_depend_on_the_unit_in_float32(scale):
    first, second = normal(20, 2), normal(20, 2, seed=1)
    expected = lag_correlation(first, second)
    assert lag_correlation(first.float() * scale, second.float() * scale) == pytest.approx(
        expected, abs=1e-6
    )


def test_lag_correlation_of_residuals_that_do_not_vary_or_are_none():
    assert math.isnan(lag_correlation(torch.ones(4, 2), normal(4, 2)))
    with pytest.raises(InvalidInputError, match="must be finite"):
        lag_correlation(torch.full((4, 2), math.inf), normal(4, 2))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (torch.full((3, 2, 2), math.nan), "Jacobians must be finite"),
        (torch.ones(4, 2, 2), "found shapes (3, 2, 2) and (4, 2, 2)"),
        (torch.ones(3, 2), "square matrices"),
    ],
)
def test_fits_that_do_not_pair_have_no_crossed_curvature(other, words):
    with pytest.raises(InvalidInputError, match=re.escape(words)):
        crossed_curvature([(torch.ones(3, 2, 2), other)])
