"""Rate of entropy by two routes, and what can and cannot be read of a potential, in closed form."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy import half_samples
from flowscope.flows.potential import (
    covariance_forecast,
    crossed_curvature,
    curvature,
    entropy_change,
    equivalent_stiffness,
    lag_correlation,
    mean_flow,
    squared_step_diffusivity,
)

GROUPS = torch.arange(1500) // 50
LINEAR = torch.tensor([[0.3, 1.0], [-1.0, -0.1]], dtype=torch.float64)


def _cloud(n=1500, d=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g, dtype=torch.float64)


def _change(before, after, groups=GROUPS):
    flow = mean_flow(before, after, groups)
    halves = half_samples(groups, 8, torch.Generator().manual_seed(0))
    return entropy_change(flow, groups, halves)


def test_linear_flow_has_the_rate_of_its_trace_by_both_routes():
    """dS/dt = tr A = .2, over a step of .1 of the exact flow."""
    y, h = _cloud(), 0.1
    change = _change(y, y @ torch.linalg.matrix_exp(h * LINEAR).mT)
    for rate in (change.difference / h, change.flow / h, change.gaussian / h):
        assert rate == pytest.approx(0.2, abs=0.02)
    assert abs(change.noise) < 1e-6


def test_noise_adds_the_entropy_of_its_variance():
    """y' = y + e with variance .2: ΔS = d/2 log 1.2, all of it noise."""
    y = _cloud()
    change = _change(y, y + math.sqrt(0.2) * _cloud(seed=1))
    exact = math.log(1.2)
    assert change.noise == pytest.approx(exact, abs=0.05)
    assert abs(change.flow) < 0.05
    assert change.difference == pytest.approx(exact, abs=0.1)


def test_terms_add_up_to_the_difference():
    y = _cloud()
    change = _change(y, 1.2 * y + 0.1 * y.square() + 0.1 * _cloud(seed=1))
    assert change.difference == pytest.approx(change.flow + change.noise + change.rest, abs=1e-12)


def test_a_quadratic_flow_has_its_jacobian_at_every_point():
    y = _cloud()
    flow = mean_flow(y, y + 0.1 * y.square(), GROUPS)
    assert_allclose(flow.jacobians().diagonal(dim1=1, dim2=2), 0.2 * y, atol=1e-3)


def test_curvature_of_a_linear_flow_is_that_of_its_symmetric_part():
    y = _cloud()
    found = curvature(mean_flow(y, y + 0.1 * y @ LINEAR.mT, GROUPS, degrees=(1,)).jacobians())
    assert found.lowest == pytest.approx(-0.03, abs=1e-4)
    assert found.mean_values == pytest.approx((-0.03, 0.01), abs=1e-4)
    assert found.expanding == 1.0
    assert found.turning == pytest.approx(2 / 2.1, abs=1e-3)


def _noisy(growth, seed, noise=0.5, d=8):
    y = _cloud(d=d, seed=2 * seed)
    return mean_flow(y, (1 + growth) * y + noise * _cloud(d=d, seed=2 * seed + 1), GROUPS)


@pytest.mark.parametrize("growth", [-0.1, 0.0, 0.1])
def test_least_curvature_of_a_noisy_flow_lies_between_one_fit_and_two(growth):
    """One fit reads its own noise as curvature: without a flow at all, it expands."""
    flows = [_noisy(growth, seed) for seed in range(4)]
    plain = np.mean([curvature(flow.jacobians()).lowest for flow in flows])
    crossed = np.mean([crossed_curvature(flow.crossed_jacobians(8)).lowest for flow in flows])
    assert plain < -growth - 0.02
    assert crossed == pytest.approx(-growth, abs=0.015)


def test_a_noisy_gradient_flow_does_not_turn_and_a_planted_rotation_does():
    flows = [_noisy(0.1, seed) for seed in range(4)]
    plain = np.mean([curvature(flow.jacobians()).turning for flow in flows])
    crossed = np.mean([crossed_curvature(flow.crossed_jacobians(8)).turning for flow in flows])
    assert plain > 0.02
    assert abs(crossed) < 0.01
    y = _cloud()
    turned = mean_flow(y, y + y @ LINEAR.mT + 0.2 * _cloud(seed=1), GROUPS, degrees=(1,))
    found = crossed_curvature(turned.crossed_jacobians(8))
    assert found.turning == pytest.approx(2 / 2.1, abs=0.02)
    assert found.lowest == pytest.approx(-0.3, abs=0.05)


def test_a_crossed_curvature_needs_a_pair():
    with pytest.raises(InvalidInputError, match="at least one pair"):
        crossed_curvature([])


# (ν, U) is not identifiable


def _variance(t, start=0.2):
    return 0.5 + (start - 0.5) * np.exp(-2 * t)


@pytest.mark.parametrize("nu", [0.0, 0.25, 1.0, 3.0])
def test_one_path_of_laws_has_a_potential_for_every_diffusion(nu):
    """ds²/dt = 2ν − 2ks² is the same for (½, 1) and for every (ν, k_ν)."""
    for t in np.linspace(0, 3, 13):
        s2 = _variance(t)
        stiffness = equivalent_stiffness(nu, (0.5, 1.0), s2)
        assert_allclose(2 * nu - 2 * stiffness * s2, 1.0 - 2 * s2, atol=1e-12)


def test_diffusion_one_has_the_stiffness_one_and_half_the_inverse_variance():
    for t in np.linspace(0, 3, 13):
        s2 = _variance(t)
        assert_allclose(equivalent_stiffness(1.0, (0.5, 1.0), s2), 1 + 0.5 / s2, atol=1e-12)


# 003's ν


@pytest.mark.parametrize(("n", "exact"), [(1, 0.0166651), (2, 0.0083331)])
def test_a_rotation_has_a_diffusion_that_halves_with_its_steps(n, exact):
    """A rotation of N(0, I₂) by 1/30 in a step of 1/30 diffuses nothing; E‖x‖² = 2."""
    angle = 1 / 30 / n
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    ).double()
    x = _cloud()
    x = x / (x.square().sum(1).mean() / 2).sqrt()
    measured = squared_step_diffusivity(x, x @ turn.mT, duration=1 / 30 / n)
    assert measured == pytest.approx(exact, abs=5e-7)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50))
def test_smooth_steps_have_a_diffusion_proportional_to_the_step(n):
    x = _cloud(100)
    whole = squared_step_diffusivity(x, x + 0.1 * torch.ones(2, dtype=x.dtype), 1.0)
    cut = squared_step_diffusivity(x, x + 0.1 / n * torch.ones(2, dtype=x.dtype), 1.0 / n)
    assert cut == pytest.approx(whole / n, rel=1e-9)


# memory


def test_new_noise_has_no_memory_and_repeated_noise_has():
    y = _cloud()
    e, new = 0.3 * _cloud(seed=1), 0.3 * _cloud(seed=2)
    first = mean_flow(y, y + e, GROUPS)
    again = mean_flow(y + e, y + 2 * e, GROUPS)
    other = mean_flow(y + e, y + e + new, GROUPS)
    assert lag_correlation(first.residuals, again.residuals) > 0.8
    assert abs(lag_correlation(first.residuals, other.residuals)) < 0.06


def test_forecast_of_the_covariance_beats_persistence_where_steps_are_markov():
    y, flows = _cloud(), []
    for seed in range(3):
        after = 0.8 * y + 0.3 * _cloud(seed=10 + seed)
        flows.append(mean_flow(y, after, GROUPS))
        y = after
    forecast, persistence = covariance_forecast(flows)
    assert forecast < 0.05
    assert persistence > 0.5


# refusals


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (_cloud(), _cloud()[:-1], "same points"),
        (_cloud(), _cloud(), "Nothing moves"),
        (_cloud() * math.nan, _cloud(), "finite"),
    ],
)
def test_steps_that_cannot_be_read_get_a_sentence(before, after, words):
    with pytest.raises(InvalidInputError, match=words):
        mean_flow(before, after, GROUPS)


def test_fewer_points_than_ten_for_each_coordinate_are_refused():
    y = _cloud(60, 8)
    with pytest.raises(InvalidInputError, match="10 points for each dimension"):
        _change(y, 1.1 * y, torch.arange(60) // 5)
