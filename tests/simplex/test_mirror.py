"""Mirror steps and the replicator flow against a convex solver and an ODE integrator."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError

U = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
C = torch.tensor([0.5, -1.0, 2.0, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_mirror_step_minimises_cost_plus_divergence(temperature):
    u, c = U.numpy(), C.numpy()
    solved = minimize(
        lambda p: c @ p + temperature * (p * np.log(p / u)).sum(),
        u,
        jac=lambda p: c + temperature * (np.log(p / u) + 1),
        bounds=[(1e-12, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    step = simplex.mirror_step(U, C, temperature)
    assert_close(step, torch.from_numpy(solved.x), rtol=0, atol=1e-6)


def test_the_value_of_the_step_is_the_free_energy():
    tau = 0.7
    p = simplex.mirror_step(U, C, tau)
    value = (C * p).sum() + tau * simplex.kl_divergence(p, U)
    assert_close(value, -tau * (U * (-C / tau).exp()).sum().log())


def test_a_uniform_prior_gives_attention():
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    uniform = torch.full((9,), 1 / 9, dtype=torch.float64)
    assert_close(simplex.mirror_step(uniform, -logits, 1.0), torch.softmax(logits, -1))


def test_another_prior_gives_something_else():
    assert simplex.total_variation(simplex.mirror_step(U, C, 1.0), torch.softmax(-C, -1)) > 0.05


def test_an_infinite_cost_masks_and_a_zero_prior_stays_zero():
    prior = torch.tensor([0.5, 0.0, 0.25, 0.25], dtype=torch.float64)
    cost = torch.tensor([0.0, -50.0, math.inf, 0.0], dtype=torch.float64)
    expected = torch.tensor([2 / 3, 0.0, 0.0, 1 / 3], dtype=torch.float64)
    assert_close(simplex.mirror_step(prior, cost, 1.0), expected)


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1e30])
def test_extreme_temperatures_have_their_limits(temperature):
    step = simplex.mirror_step(U.float(), 1e20 * C.float(), temperature)
    hot = temperature == 1e30
    assert_close(step, U.float() if hot else torch.tensor([0.0, 1.0, 0.0, 0.0]))


def test_one_temperature_per_row():
    cost = torch.stack([C, C])
    both = simplex.mirror_step(U, cost, torch.tensor([0.5, 2.0], dtype=torch.float64))
    assert_close(both[0], simplex.mirror_step(U, C, 0.5))
    assert_close(both[1], simplex.mirror_step(U, C, 2.0))


def test_mirror_step_is_differentiable_in_all_it_is_given():
    def step(z, c, tau):
        return simplex.mirror_step(torch.softmax(z, -1), c, tau)

    inputs = (U.log(), C.clone(), torch.tensor(0.8, dtype=torch.float64))
    assert torch.autograd.gradcheck(step, [x.requires_grad_() for x in inputs])


def test_gradients_survive_masks_and_empty_outcomes():
    prior = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    cost = torch.tensor([0.2, -1.0, math.inf], dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    step = simplex.mirror_step(prior, cost, tau)
    slopes = torch.autograd.grad(step[1], (prior, cost, tau))
    # ∂p₂/∂u₂ at u₂ = 0, u₁ the only other outcome left: e^{(c₁−c₂)/τ}/u₁.
    assert_close(slopes[0][1], torch.tensor(math.exp(1.2 / 0.5) / 0.5).double())
    assert_close(slopes[1], torch.zeros(3).double())
    assert_close(slopes[2], torch.tensor(0.0).double())


@pytest.mark.parametrize(
    ("prior", "cost", "temperature", "sentence"),
    [
        ([0.5, 0.5], [0.0, 1.0], 0.0, "temperature must be > 0.*0"),
        ([0.5, 0.5], [0.0, 1.0], -1.0, "temperature must be > 0.*-1"),
        ([0.5, 0.5], [0.0, 1.0], math.nan, "temperature must be finite.*nan"),
        ([0.5, 0.5], [0.0, 1.0], torch.tensor([1.0, -3.0]), r"-3 at \(1,\)"),
        ([0.5, 0.5], [0.0, -math.inf], 1.0, r"cost.*\+inf.*-inf at \(1,\)"),
        ([0.5, 0.5], [0.0, math.nan], 1.0, r"cost.*nan at \(1,\)"),
        ([0.5, 0.5], [math.inf, math.inf], 1.0, "at least one outcome"),
        ([[0.5, 0.5], [0.0, 1.0]], [0.0, math.inf], 1.0, r"at least one outcome.*row \(1,\)"),
        ([0.5, 0.5], [0.0, 1.0, 2.0], 1.0, "prior has 2 outcomes and cost has 3"),
    ],
)
def test_mirror_step_refuses(prior, cost, temperature, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        simplex.mirror_step(prior, cost, temperature)


def test_replicator_flow_solves_its_equation():
    drift = torch.tensor([0.2, -0.7, 1.1, 0.0], dtype=torch.float64)

    def velocity(_, p):
        p = torch.from_numpy(p)
        return simplex.apply_mobility(p / p.sum(), drift).numpy()

    times = [0.5, 2.0, 6.0]
    path = solve_ivp(velocity, (0, 6), U.numpy(), t_eval=times, rtol=1e-10, atol=1e-12)
    flow = simplex.replicator_flow(U, drift, torch.tensor(times, dtype=torch.float64))
    assert_close(flow, torch.from_numpy(path.y.T), rtol=1e-8, atol=1e-10)


def test_replicator_flow_is_a_group_in_time():
    drift = -C
    there = simplex.replicator_flow(U, drift, 1.3)
    assert_close(simplex.replicator_flow(there, drift, -1.3), U)
    assert_close(simplex.replicator_flow(there, drift, 0.4), simplex.replicator_flow(U, drift, 1.7))
    assert_close(simplex.replicator_flow(U, drift, 0.0), U)


def test_a_mirror_step_is_a_replicator_flow_of_time_one_over_temperature():
    assert_close(simplex.mirror_step(U, C, 0.4), simplex.replicator_flow(U, -C, 2.5))


def test_long_times_reach_the_best_outcome_without_overflow():
    p0 = torch.tensor([0.5, 0.5, 0.0])
    flow = simplex.replicator_flow(p0, torch.tensor([1.0, 2.0, 9.0]), 1e6)
    assert_close(flow, torch.tensor([0.0, 1.0, 0.0]))
    steep, times = torch.tensor([0.0, 3e38]), torch.tensor([2.0, -2.0])
    flow = simplex.replicator_flow(torch.tensor([0.5, 0.5]), steep, times)
    assert_close(flow, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_replicator_flow_is_differentiable_in_all_it_is_given():
    def flow(z, b, t):
        return simplex.replicator_flow(torch.softmax(z, -1), b, t)

    inputs = (U.log(), C.clone(), torch.tensor(0.8, dtype=torch.float64))
    assert torch.autograd.gradcheck(flow, [x.requires_grad_() for x in inputs])


def test_an_empty_outcome_has_the_slope_of_its_limit():
    p0 = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    drift = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    (slope,) = torch.autograd.grad(simplex.replicator_flow(p0, drift, 1.0)[2], p0)
    assert_close(slope[2], torch.tensor(math.exp(2.0)).double())


@pytest.mark.parametrize("t", [math.nan, math.inf])
def test_a_time_that_is_not_finite_is_refused(t):
    with pytest.raises(InvalidInputError, match="t must be finite"):
        simplex.replicator_flow(U, C, t)
