from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from tests.flows.drift.worlds import euler_sample, one_step_error, seeded, waves, with_velocities
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    drift_sample,
    huber_location,
    mean_drift,
    neighbour_drift,
    ridge_drift,
)


def huber_by_search(v, delta):
    def loss(m):
        off = np.abs(v - m)
        return np.where(off <= delta, off**2 / 2, delta * (off - delta / 2)).sum()

    return minimize_scalar(loss, bounds=(v.min(), v.max()), method="bounded").x


@given(st.integers(0, 10_000), st.integers(3, 40))
def test_location_minimises_the_loss(seed, k):
    v = torch.randn(1, k, 1, generator=seeded(seed)).double() ** 3
    delta = 1.345 * (v - v.quantile(0.5, dim=1)).abs().quantile(0.5).item()
    expected = huber_by_search(v.flatten().numpy(), delta)
    np.testing.assert_allclose(huber_location(v, iterations=300).item(), expected, atol=1e-5)


@given(st.integers(0, 10_000), st.floats(-5, 5), st.floats(-5, 5))
def test_location_moves_with_shift_and_scale(seed, shift, scale):
    v = torch.randn(2, 8, 3, generator=seeded(seed)).double()
    assert_close(huber_location(scale * v + shift), scale * huber_location(v) + shift)


def test_location_between_median_and_mean():
    v = torch.randn(5, 9, 2, generator=seeded(0)).double() ** 3
    assert_close(huber_location(v, tuning=0.0), v.median(1).values)
    assert_close(huber_location(v, tuning=1e9), v.mean(1))


def test_search_is_that_of_brute_force():
    sample = euler_sample(lambda t, y: t - y, n=50)
    b = replace(neighbour_drift(sample, candidates=[7], robust=False), neighbours=7)
    y, t = torch.randn(11, 3, generator=seeded(5)).double(), torch.rand(11, generator=seeded(6))
    cov = torch.cov(sample.states.T, correction=0)
    off = y[:, None] - sample.states
    far = torch.einsum("nmi,ij,nmj->nm", off, torch.linalg.inv(cov), off) / 3
    far += (t[:, None] - sample.times) ** 2 / sample.times.var(correction=0)
    near = far.topk(7, largest=False).indices
    assert_close(b(t, y), sample.velocities[near].mean(1))


def test_nonlinear_drift_beats_ridge():
    sample, new = (euler_sample(waves, n=1500, r=2, layers=4, seed=s) for s in (0, 1))
    local = one_step_error(neighbour_drift(sample), new)
    assert local < 0.2 * one_step_error(ridge_drift(sample), new)


def test_gross_outliers_hurt_the_mean_and_not_the_huber_location():
    sample, new = (euler_sample(waves, n=1500, r=2, layers=4, seed=s) for s in (0, 1))
    noise = 0.1 * torch.randn(sample.velocities.shape, generator=seeded(2)).double()
    gross = torch.rand(len(sample), generator=seeded(3)) < 0.1
    spoilt = with_velocities(sample, sample.velocities + noise + 30.0 * gross[:, None])
    robust, mean = (
        one_step_error(neighbour_drift(spoilt, candidates=[32], robust=r), new)
        for r in (True, False)
    )
    assert robust < 0.05 * mean


def test_neighbours_of_the_same_prompt_are_left_out_when_k_is_chosen():
    """Tokens of a prompt stand at one point with one random velocity: twins would predict it."""
    prompts = torch.arange(100).repeat_interleave(10)
    y = torch.randn(100, 1, 2, generator=seeded(0))[prompts]
    v = torch.randn(100, 1, 2, generator=seeded(1))[prompts]
    sample = drift_sample(torch.cat([y, y + v], 1), torch.tensor([0.0, 1.0]), prompts)
    found = neighbour_drift(sample, candidates=[4, 8])
    energy = sample.velocities.square().sum(1).mean().item()
    assert min(found.errors.values()) > energy
    assert one_step_error(found, sample) < 1e-3  # its own twins are there once it is fitted


def test_noise_asks_for_more_neighbours():
    sample = euler_sample(waves, n=800, r=2, layers=4)
    clean = neighbour_drift(sample, candidates=[2, 64])
    shaken = sample.velocities + 5 * torch.randn(sample.velocities.shape, generator=seeded(7))
    assert clean.neighbours == 2
    assert neighbour_drift(with_velocities(sample, shaken), candidates=[2, 64]).neighbours == 64


def test_time_weight_separates_layers():
    """The drift is ±1 by layer: with a heavy clock only pairs of the same layer are near."""
    sample = euler_sample(lambda t, y: torch.where(t < 0.5, 1.0, -1.0) * torch.ones_like(y), r=6)
    heavy = neighbour_drift(sample, candidates=[8], time_weight=1e4)
    assert_close(
        heavy(sample.times, sample.states), mean_drift(sample)(sample.times, sample.states)
    )


def test_a_coordinate_without_variance_is_dropped():
    sample = euler_sample(lambda t, y: -y, r=3)
    sample.states[:, 1] = 4.0
    assert neighbour_drift(sample, candidates=[4]).dropped == 1


def test_reference_is_capped():
    sample = euler_sample(lambda t, y: -y)
    assert len(neighbour_drift(sample, candidates=[4], cap=300).points) == 300
    drawn = neighbour_drift(sample, candidates=[4], cap=300, generator=seeded(1))
    assert len(drawn.points) == 300


def test_more_neighbours_than_other_prompts_have_are_refused():
    sample = euler_sample(lambda t, y: -y, n=8)
    with pytest.raises(InvalidInputError, match="between 1 and 20"):
        neighbour_drift(sample, candidates=[64])
