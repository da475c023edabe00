"""Blocks in shorter steps: closed form, order of convergence, and the network itself at n = 1."""

import math

import numpy as np
import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.pde import AblatedTransformer, MasterEquation, refined_path


class Turn:
    """Steps that turn the plane by the vector field of an oscillator, one unit of time each."""

    depth = 2

    def step(self, u, index):
        return u + torch.stack([-u[..., 1], u[..., 0]], -1)


def test_leak_tends_to_the_exponential():
    model = MasterEquation(width=4, heads=1, steps=6, leak=2).double()
    for name, weight in model.named_parameters():
        if "output" in name:
            weight.data.zero_()
    u = torch.ones(1, 3, 4).double()
    for n in (1, 2, 16):
        end = refined_path(model, u, n)[-1]
        torch.testing.assert_close(end, (1 - 2 / (6 * n)) ** (6 * n) * u)


def test_error_against_the_exact_flow_is_of_first_order():
    u = torch.tensor([[[1.0, 0.0]]]).double()
    exact = torch.tensor([math.cos(2), math.sin(2)]).double()
    steps = [2**k for k in range(5, 10)]
    errors = [(refined_path(Turn(), u, n)[-1, 0, 0] - exact).norm().item() for n in steps]
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize("residual", [True, False])
def test_one_step_a_block_is_the_network(residual):
    torch.manual_seed(0)
    model = AblatedTransformer(width=8, heads=2, blocks=3, residual=residual).double()
    u = torch.randn(2, 5, 8).double()
    torch.testing.assert_close(refined_path(model, u, 1), model.path(u))


@pytest.mark.parametrize("n", [0, 1.5, True])
def test_number_of_steps_must_be_positive_and_whole(n):
    with pytest.raises(InvalidInputError, match="n must be a positive whole number"):
        refined_path(Turn(), torch.zeros(1, 1, 2), n)
