from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.flows.drift.worlds import euler_paths, seeded
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import neighbour_drift, ridge_drift, settling

TIMES = torch.tensor([0.0, 0.2, 0.5, 1.0]).double()
PROMPTS = torch.arange(200) // 4


def logistic(t, y):
    """Within the features: quadratic in y and linear in t."""
    return y - y.square() + t


def refined_times(n):
    inside = [a + (b - a) * torch.arange(n) / n for a, b in pairwise(TIMES)]
    return torch.cat([*inside, TIMES[-1:]])


def refinements(field, sizes=(1, 2, 4, 8), step=euler_paths):
    start = torch.rand(200, 2, generator=seeded(0)).double()
    return {n: step(field, start, refined_times(n)) for n in sizes}


def heun_paths(velocity, start, times):
    path = [start]
    for t, dt in zip(times[:-1], times.diff(), strict=True):
        first = velocity(t, path[-1])
        path.append(path[-1] + dt / 2 * (first + velocity(t + dt, path[-1] + dt * first)))
    return torch.stack(path, 1)


def exact(sample):
    return ridge_drift(sample, strengths=[1e-12])


def test_euler_substeps_have_order_minus_one():
    found = settling(refinements(logistic), TIMES, PROMPTS, exact)
    assert abs(found.state_order + 1) < 0.15
    fine = settling(refinements(logistic, sizes=(16, 32, 64)), TIMES, PROMPTS, exact)
    assert abs(fine.state_order + 1) < 0.02


def test_substeps_of_second_order_have_order_minus_two():
    found = settling(refinements(logistic, (16, 32, 64), heun_paths), TIMES, PROMPTS, exact)
    assert abs(found.state_order + 2) < 0.05


def test_drift_settles_to_the_true_one():
    found = settling(refinements(logistic), TIMES, PROMPTS, exact)
    y = torch.rand(50, 2, generator=seeded(1)).double()
    for row in found.refinements:
        assert_close(row.drift(0.3, y), logistic(0.3, y), atol=1e-3, rtol=1e-3)
        assert row.drift_distance < 1e-3


def test_drift_of_coarse_exact_flow_settles_at_first_order():
    """States of the exact flow: the quotient over a step is off by half a step of acceleration."""
    start = torch.rand(200, 2, generator=seeded(0)).double()
    paths = {n: start[:, None] * torch.exp(-2 * refined_times(n))[:, None] for n in (4, 8, 16, 32)}
    found = settling(paths, TIMES, PROMPTS, exact)
    assert abs(found.drift_order + 1) < 0.1
    assert max(found.state_differences) < 1e-12
    distances = [row.drift_distance for row in found.refinements]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] == 0.0


def test_branches_that_are_not_scaled_do_not_settle():
    """The network repeated without dividing its branches: n times as far for n times the steps."""
    start = torch.rand(200, 2, generator=seeded(0)).double()
    paths = {n: start[:, None] + torch.arange(3 * n + 1.0).double()[:, None] for n in (1, 2, 4, 8)}
    assert settling(paths, TIMES, PROMPTS, exact).state_order > 0.5


def test_any_estimator_can_be_given():
    def near(sample):
        return neighbour_drift(sample, candidates=[4])

    found = settling(refinements(logistic), TIMES, PROMPTS, near)
    assert found.refinements[0].drift.name == "neighbours"
    np.testing.assert_allclose(
        found.state_differences,
        settling(refinements(logistic), TIMES, PROMPTS, exact).state_differences,
    )


def test_impossible_refinements_are_refused():
    paths = refinements(logistic)
    with pytest.raises(InvalidInputError, match="at least three"):
        settling({n: paths[n] for n in (1, 2)}, TIMES, PROMPTS, exact)
    with pytest.raises(InvalidInputError, match="constant ratio"):
        settling({n: paths[n] for n in (1, 2, 8)}, TIMES, PROMPTS, exact)
    with pytest.raises(InvalidInputError, match="2 substeps must have shape"):
        settling(paths | {2: paths[4]}, TIMES, PROMPTS, exact)
