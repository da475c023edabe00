"""A drift whose flow over a layer is the layer, not one whose Euler step is."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import drift_sample, ridge_drift
from flowscope.flows.drift.instant import instantaneous_sample

STEP = 0.25


def _fit(pairs):
    return ridge_drift(pairs, strengths=[1e-10])


def _paths(A, noise=0.0, n=400):
    g = torch.Generator().manual_seed(0)
    y = torch.randn(n, len(A), generator=g, dtype=torch.float64)
    ahead = y @ torch.linalg.matrix_exp(STEP * A).mT
    ahead = ahead + noise * torch.randn(n, len(A), generator=g, dtype=torch.float64)
    return drift_sample(torch.stack([y, ahead], 1), torch.tensor([0.0, STEP]), torch.arange(n) // 8)


def test_the_error_of_a_linear_drift_shrinks_by_an_order_of_the_step_each_round():
    A = torch.tensor([[-1.0, 2.0], [-2.0, -0.5]], dtype=torch.float64)
    sample = _paths(A)
    true = sample.states @ A.mT
    errors = [(sample.velocities - true).norm()]
    errors += [
        (instantaneous_sample(sample, STEP, fit=_fit, rounds=k).velocities - true).norm()
        for k in (1, 2, 3, 4)
    ]
    ratios = torch.stack(errors)[1:] / torch.stack(errors)[:-1]
    rate = torch.linalg.matrix_norm(torch.linalg.matrix_exp(STEP * A) - torch.eye(2), 2)
    assert rate < 0.6
    assert (ratios < 1.02 * rate).all()


def test_noise_stays_what_it_was():
    A = torch.tensor([[-1.0, 2.0], [-2.0, -0.5]], dtype=torch.float64)
    noisy = _paths(A, noise=0.1)
    found = instantaneous_sample(noisy, STEP, fit=_fit)
    added = found.velocities - noisy.velocities
    still = instantaneous_sample(_paths(A), STEP, fit=_fit)
    expected = still.velocities - _paths(A).velocities
    assert_close(added, expected, rtol=0.2, atol=0.15)
    assert added.std() < 0.5 * (noisy.velocities - _paths(A).velocities).std() + expected.std()


def test_a_flow_that_cannot_be_followed_leaves_the_sample_alone():
    sample = _paths(torch.zeros(2, 2, dtype=torch.float64), noise=0.1)

    def wild(pairs):
        return lambda t, y, context=None: y**3 * 1e6

    assert instantaneous_sample(sample, STEP, fit=wild) is sample


@pytest.mark.parametrize(("step", "rounds"), [(0.0, 1), (1.0, 0)])
def test_a_step_and_a_round_are_needed(step, rounds):
    with pytest.raises(InvalidInputError, match="positive duration"):
        instantaneous_sample(_paths(torch.zeros(2, 2).double()), step, rounds=rounds)
