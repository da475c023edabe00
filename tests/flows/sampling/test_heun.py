"""Our own Heun: the states of torchdiffeq's, and no silent number."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import heun_path, ode_path

STARTS = torch.linspace(0.05, 0.9, 12).double().reshape(4, 3)


def logistic(t, x):
    return (1 + torch.sin(t)) * x * (1 - x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("times", [[0.0, 1.0], np.linspace(-1, 2, 7).tolist()])
@pytest.mark.parametrize("substeps", [1, 3])
def test_states_are_those_of_the_plain_method(dtype, times, substeps):
    x0 = STARTS.to(dtype)
    before = x0.clone()
    with torch.no_grad():
        expected = ode_path(logistic, x0, times, method="heun", substeps=substeps)
    found = heun_path(logistic, x0, times, substeps=substeps)
    assert torch.equal(x0, before)
    close = {"rtol": 1e-13, "atol": 1e-15} if dtype == torch.float64 else {}
    assert_close(found.states, expected.states, **close)
    assert (found.status, found.steps, found.reached) == ("ok", expected.steps, times[-1])
    assert torch.equal(found.times, expected.times)


def test_error_falls_with_the_square_of_the_step():
    exact = torch.exp(torch.tensor(-1.0).double())
    errors = [
        float(heun_path(lambda t, x: -x, torch.ones(1).double(), [0.0, 1.0], substeps=n).states[-1])
        - float(exact)
        for n in (20, 40)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_a_path_that_leaves_the_numbers_says_where():
    path = heun_path(lambda t, x: x**3, torch.full((1,), 3.0), [0.0, 1.0, 9.0], substeps=4)
    assert path.status == "diverged"
    assert "not finite" in path.because
    assert path.states[0] == 3
    assert path.states[-1].isnan().all()


@pytest.mark.parametrize("times", [[1.0, 0.0], [0.0], [0.0, float("nan")]])
def test_a_clock_must_go_forward(times):
    with pytest.raises(InvalidInputError, match="times"):
        heun_path(logistic, STARTS, times)


def test_steps_are_counted_from_one():
    with pytest.raises(InvalidInputError, match="substeps"):
        heun_path(logistic, STARTS, [0.0, 1.0], substeps=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_steps_are_the_plain_ones_on_the_gpu():
    x0 = STARTS.cuda()
    expected = ode_path(logistic, x0, [0.0, 1.0, 3.0], method="heun", substeps=5)
    found = heun_path(logistic, x0, [0.0, 1.0, 3.0], substeps=5)
    assert_close(found.states, expected.states, rtol=1e-12, atol=1e-14)
