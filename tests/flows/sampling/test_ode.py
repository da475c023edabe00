"""Paths of ODEs: order, tolerance, and no silent number where there is no solution."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import ode_path

ONE = torch.ones(1, dtype=torch.float64)


def logistic(t, x):
    """x' = (1 + sin t) x (1 − x)."""
    return (1 + torch.sin(t)) * x * (1 - x)


def logistic_solution(x0, t):
    odds = x0 / (1 - x0) * np.exp(t + 1 - np.cos(t))
    return odds / (1 + odds)


@pytest.mark.parametrize(
    ("method", "order"), [("euler", 1), ("heun", 2), ("midpoint", 2), ("rk4", 4)]
)
def test_fixed_step_methods_have_their_order(method, order):
    steps, exact = [16, 32, 64, 128], logistic_solution(0.1, 2.0)
    errors = [
        abs(ode_path(logistic, 0.1 * ONE, [0.0, 2.0], method=method, substeps=k).states[-1] - exact)
        for k in steps
    ]
    slope = np.polyfit(np.log(steps), np.log([float(e) for e in errors]), 1)[0]
    assert abs(slope + order) < 0.12


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7, 1e-9])
def test_dopri5_meets_its_tolerance_at_every_time(rtol):
    times = np.linspace(0, 3, 13)
    path = ode_path(logistic, 0.1 * ONE, times, rtol=rtol, atol=1e-12)
    # A tolerance bounds the error of a step; over a contracting path the sum stays within 20 of it.
    assert_close(path.states[:, 0].numpy(), logistic_solution(0.1, times), rtol=20 * rtol, atol=0)
    assert (path.status, path.because, path.reached) == ("ok", None, 3.0)


def test_a_smaller_tolerance_costs_more_and_errs_less():
    def run(rtol):
        path = ode_path(logistic, 0.1 * ONE, [0.0, 3.0], rtol=rtol, atol=1e-13)
        return path.evaluations, abs(float(path.states[-1]) - logistic_solution(0.1, 3.0))

    (cheap, coarse), (dear, fine) = run(1e-3), run(1e-9)
    assert cheap < dear
    assert fine < coarse / 1e3


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 0.98), st.floats(0.1, 3.0))
def test_running_back_returns_to_the_start(start, end):
    there = ode_path(logistic, start * ONE, [0.0, end], rtol=1e-9, atol=1e-12).states[-1]
    back = ode_path(logistic, there, [end, 0.0], rtol=1e-9, atol=1e-12).states[-1]
    assert_close(back, start * ONE, rtol=1e-6, atol=0)


def test_fixed_steps_run_back_on_the_same_grid():
    path = ode_path(lambda t, x: 3 * t**2 + 0 * x, ONE, [2.0, 1.0, 0.0], method="rk4", substeps=4)
    assert_close(path.states[:, 0], torch.tensor([1.0, -6.0, -7.0], dtype=torch.float64))


def test_a_hard_row_among_easy_ones_is_as_accurate_as_alone():
    """Under a mean-square norm 10,000 easy rows would hide its error: 40 times larger."""
    rate = torch.cat([torch.zeros(10_000), torch.tensor([30.0])]).double()[:, None]
    x0 = torch.ones(10_001, 1, dtype=torch.float64)

    def spin(t, x):
        return rate * torch.cos(rate * t) * x

    together = ode_path(spin, x0, [0.0, 1.0]).states[-1, -1]
    alone = ode_path(lambda t, x: 30 * torch.cos(30 * t) * x, x0[:1], [0.0, 1.0]).states[-1, 0]
    exact = torch.tensor([np.exp(np.sin(30.0))])
    assert abs(together - exact) < 2 * abs(alone - exact) + 1e-12


def test_a_stiff_problem_says_so_and_keeps_what_it_reached():
    """x' = −1e8 (x − cos t): an explicit step must stay below 3.3e-8."""
    path = ode_path(lambda t, x: -1e8 * (x - torch.cos(t)), ONE, [0.0, 1e-7, 1.0], max_steps=200)
    assert path.status == "stiff"
    assert "200 trial steps" in path.because
    assert 1e-7 < path.reached < 1e-2
    assert_close(path.states[1], torch.cos(torch.tensor([1e-7])).double(), rtol=1e-5, atol=0)
    assert path.states[2].isnan().all()


def test_stiff_van_der_pol_says_so():
    def oscillator(t, x):
        return torch.stack([x[1], 1e6 * (1 - x[0] ** 2) * x[1] - x[0]])

    path = ode_path(oscillator, torch.tensor([2.0, 0.0]).double(), [0.0, 1e6], max_steps=300)
    assert path.status == "stiff"
    assert path.states[-1].isnan().all()


@pytest.mark.parametrize("method", ["dopri5", "euler", "heun", "rk4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_path_past_its_pole_is_never_a_number(method, dtype):
    """x' = x², x(0) = 1 is 1/(1 − t)."""
    substeps = 1 if method == "dopri5" else 1000
    path = ode_path(
        lambda t, x: x * x,
        torch.ones(1, dtype=dtype),
        [0.0, 0.5, 3.0],
        method=method,
        substeps=substeps,
    )
    assert path.status in ("diverged", "stiff")
    assert path.because
    assert_close(path.states[1], torch.full((1,), 2.0, dtype=dtype), rtol=5e-3, atol=0)
    assert path.states[2].isnan().all()
    assert path.reached < 1.1


def test_an_overflow_in_the_very_last_step_is_seen():
    path = ode_path(lambda t, x: 1e308 * x * x, 10 * ONE, [0.0, 1.0], method="euler")
    assert path.status == "diverged"
    assert path.reached == 0.0
    assert path.states[1].isnan().all()


def test_blow_up_is_told_from_stiffness():
    assert ode_path(lambda t, x: x * x, ONE, [0.0, 3.0]).status == "diverged"


def test_a_velocity_that_is_not_finite_is_a_divergence():
    path = ode_path(lambda t, x: torch.log(1 - t) * x, ONE, [0.0, 0.5, 2.0])
    assert path.status == "diverged"
    assert "not finite near t = 1" in path.because
    assert_close(path.states[1], torch.exp(0.5 * torch.tensor([2.0]).log() - 0.5).double())
    assert path.states[2].isnan().all()


def test_states_before_a_stop_do_not_depend_on_what_was_asked_after_it():
    whole = ode_path(logistic, 0.1 * ONE, [0.0, 1.0, 1.5, 1e9], max_steps=50)
    part = ode_path(logistic, 0.1 * ONE, [0.0, 1.0, 1.5])
    assert whole.status == "stiff"
    assert_close(whole.states[:3], part.states, rtol=0, atol=0)


def test_half_precision_is_widened():
    path = ode_path(lambda t, x: -x, torch.ones(2, dtype=torch.bfloat16), [0.0, 1.0])
    assert path.states.dtype == torch.float32


def test_the_path_has_slopes():
    x0 = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    ode_path(lambda t, x: -2 * x, x0, [0.0, 1.0]).states[-1].sum().backward()
    assert_close(x0.grad, torch.exp(torch.tensor([-2.0])).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"times": [0.0, 2.0, 1.0]}, "2 followed by 1"),
        ({"times": [0.0, 0.0]}, "strictly"),
        ({"times": [0.0]}, "at least two"),
        ({"times": [0.0, float("inf")]}, "finite"),
        ({"x0": torch.tensor([torch.nan])}, "found nan"),
        ({"x0": torch.tensor([1])}, "floating-point"),
        ({"x0": torch.empty(0)}, "at least one state"),
        ({"method": "rk45"}, "'dopri5'"),
        ({"rtol": 0.0}, "rtol"),
        ({"max_steps": 0}, "max_steps"),
        ({"substeps": 3}, "fixed-step"),
        ({"velocity": lambda t, x: x[..., None]}, "shape of x"),
        ({"velocity": lambda t, x: 1.0}, "a float"),
    ],
)
def test_bad_input_gets_a_sentence(change, words):
    arguments = {"velocity": lambda t, x: -x, "x0": torch.ones(2), "times": [0.0, 1.0], **change}
    with pytest.raises(InvalidInputError, match=words):
        ode_path(
            arguments.pop("velocity"), arguments.pop("x0"), arguments.pop("times"), **arguments
        )
