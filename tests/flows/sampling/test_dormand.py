"""Our own Dormand–Prince: the steps of torchdiffeq's, and no silent number."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import ode_path, smooth_path

STARTS = torch.linspace(0.05, 0.9, 12).double().reshape(4, 3)


def logistic(t, x):
    return (1 + torch.sin(t)) * x * (1 - x)


def spinning(t, x):
    return 30 * torch.cos(30 * t) * x.roll(1, -1)


@pytest.mark.parametrize("field", [logistic, spinning])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("times", [[0.0, 1.0], np.linspace(-1, 2, 40)])
@pytest.mark.parametrize("recorded", [False, True])
def test_steps_and_states_are_those_of_torchdiffeq(field, dtype, times, recorded):
    x0 = STARTS.to(dtype)
    with torch.no_grad():
        expected = ode_path(field, x0, times, rtol=1e-4, atol=1e-5)
    found = smooth_path(field, x0, times, rtol=1e-4, atol=1e-5, recorded=recorded)
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {}
    assert_close(found.states, expected.states, **close)
    counts = [(path.steps, path.evaluations) for path in (found, expected)]
    assert counts[0] == counts[1] or dtype == torch.float32  # where rounding may decide a step


def test_the_exact_solution_is_met():
    times = np.linspace(0, 3, 13)
    path = smooth_path(lambda t, x: -x, STARTS, times, rtol=1e-8, atol=1e-12)
    exact = STARTS * torch.from_numpy(np.exp(-times))[:, None, None]
    assert_close(path.states, exact, rtol=1e-6, atol=0)
    assert (path.status, path.because, path.reached) == ("ok", None, 3.0)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_state_that_blows_up_is_diverged_and_keeps_what_was_passed(recorded):
    start = torch.ones(1).double()
    path = smooth_path(lambda t, x: x * x, start, [0.0, 0.5, 2.0], recorded=recorded)
    assert start == 1
    assert path.status == "diverged"
    assert "grown" in path.because
    assert path.reached == pytest.approx(1.0, abs=1e-3)
    assert_close(path.states[1], torch.tensor([2.0]).double(), rtol=1e-4, atol=0)
    assert path.states[2].isnan().all()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_velocity_that_is_never_finite_is_diverged(recorded):
    path = smooth_path(lambda t, x: x * torch.nan, torch.ones(2), [0.0, 1.0], recorded=recorded)
    assert (path.status, path.reached) == ("diverged", 0.0)
    assert "not finite" in path.because


@pytest.mark.parametrize("recorded", [False, True])
def test_a_trial_step_into_the_undefined_is_made_smaller(recorded):
    """√(1 − x) has no value beyond 1, which the path comes near and does not reach."""
    start = torch.zeros(1).double()
    path = smooth_path(lambda t, x: (1 - x).sqrt(), start, [0.0, 1.9], recorded=recorded)
    assert path.status == "ok"
    assert_close(path.states[-1], torch.tensor([1 - 0.05**2]).double(), rtol=1e-4, atol=0)


def test_steps_that_run_out_are_stiff():
    path = smooth_path(lambda t, x: -1e4 * x, torch.ones(1).double(), [0.0, 1.0], max_steps=20)
    assert path.status == "stiff"
    assert "20 trial steps" in path.because


@pytest.mark.parametrize("times", [[1.0, 0.0], [0.0], [0.0, float("nan")]])
def test_a_clock_must_go_forward(times):
    with pytest.raises(InvalidInputError, match="times"):
        smooth_path(logistic, STARTS, times)
