"""The mean step of each layer, layers in another order, half of the prompts."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    drift_sample,
    half_of_prompts,
    mean_drift,
    mean_paths,
    scaled_mean,
    scaled_paths,
    shuffled_layers,
)

TIMES = torch.tensor([0.0, 0.2, 0.5, 1.0], dtype=torch.float64)


def constant_paths(n=12, r=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    steps = torch.randn(3, r, generator=g, dtype=torch.float64)
    start = torch.randn(n, 1, r, generator=g, dtype=torch.float64)
    return torch.cat([start, start + steps.cumsum(0)], 1), torch.arange(n) // 3


def test_mean_drift_forecasts_constant_steps_exactly_on_other_tokens():
    y, groups = constant_paths()
    drift = mean_drift(drift_sample(y[:6], TIMES, groups[:6]))
    near, far = mean_paths(drift, y[6:], TIMES)
    assert_close(near, y[6:, 1:])
    assert_close(far, y[6:, 1:])


def test_mean_paths_equal_the_integrated_mean_drift():
    y, groups = constant_paths()
    y = y + 0.3 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).double()
    drift = mean_drift(drift_sample(y, TIMES, groups))
    state, euler = y[:, 0], []
    for k, step in enumerate(TIMES.diff()):
        state = state + step * drift(TIMES[k], state)
        euler.append(state)
    assert_close(mean_paths(drift, y, TIMES)[1], torch.stack(euler, 1))


def test_mean_paths_refuse_other_times():
    y, groups = constant_paths()
    drift = mean_drift(drift_sample(y, TIMES, groups))
    with pytest.raises(InvalidInputError, match="one entry per state"):
        mean_paths(drift, y, TIMES[:-1])


def test_shuffled_layers_move_whole_layers_and_leave_states_and_velocities():
    y, groups = constant_paths()
    sample = drift_sample(y, TIMES, groups)
    other = shuffled_layers(sample, torch.Generator().manual_seed(0))
    assert_close(other.states, sample.states)
    assert_close(other.velocities, sample.velocities)
    assert not torch.equal(other.times, sample.times)
    assert_close(other.times.reshape(-1, 3).sort(1).values, sample.times.reshape(-1, 3))
    assert (other.times.reshape(-1, 3) == other.times[:3]).all()


def test_half_of_prompts_is_made_of_whole_prompts():
    groups = torch.tensor([4, 4, 9, 9, 9, 2, 2, 7, 7, 5])
    chosen = half_of_prompts(groups, torch.Generator().manual_seed(3))
    names = set(groups[chosen].tolist())
    assert len(names) == 2
    assert names.isdisjoint(groups[~chosen].tolist())
    with pytest.raises(InvalidInputError, match="at least 2"):
        half_of_prompts(torch.zeros(4, dtype=torch.int64), torch.Generator())


def fading_paths(n=12, r=3, seed=0, noise=0.0):
    """y − c shrinks by .8, .5 and 1.5; the centre moves by a step of each layer."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(4, r, generator=g, dtype=torch.float64)
    off = torch.randn(n, r, generator=g, dtype=torch.float64)
    off = off - off.mean(0)
    factors = torch.tensor([1.0, 0.8, 0.4, 0.6], dtype=torch.float64)
    y = centre + off[:, None] * factors[:, None]
    return y + noise * torch.randn(y.shape, generator=g, dtype=torch.float64), torch.arange(n) // 3


def test_rates_are_those_of_the_layers():
    y, groups = fading_paths()
    drift = scaled_mean(drift_sample(y, TIMES, groups))
    expected = torch.tensor([-0.2, -0.5, 0.5], dtype=torch.float64) / TIMES.diff()
    assert_close(drift.rates, expected)


def test_a_shift_and_a_scale_forecast_fading_exactly_on_other_tokens():
    y, groups = fading_paths()
    drift = scaled_mean(drift_sample(y, TIMES, groups))
    other = y[:, :1] + torch.ones(3, dtype=torch.float64)
    centre = y.mean(0)
    factors = torch.tensor([0.8, 0.4, 0.6], dtype=torch.float64)[:, None]
    expected = centre[1:] + factors * (other - centre[0])
    path = torch.cat([other, expected], 1)
    near, far = scaled_paths(drift, path, TIMES)
    assert_close(near, expected)
    assert_close(far, expected)


def test_without_a_rate_it_is_the_mean_step():
    y, groups = constant_paths()
    sample = drift_sample(y, TIMES, groups)
    drift = scaled_mean(sample)
    assert float(drift.rates.abs().max()) < 1e-12
    for scaled, mean in zip(
        scaled_paths(drift, y, TIMES), mean_paths(mean_drift(sample), y, TIMES), strict=True
    ):
        assert_close(scaled, mean)


def test_a_rate_that_does_not_help_on_spare_pairs_is_dropped():
    y, groups = fading_paths()
    mirrored = y.clone()
    spare = groups == 0
    # in the spare prompts the first layer goes the other way, the rest as in the others
    centre = y.mean(0)
    step = y[spare, 1] - y[spare, 0] - (centre[1] - centre[0])
    mirrored[spare, 1:] -= 2 * step[:, None]
    sample = drift_sample(mirrored, TIMES, groups)
    rates = scaled_mean(sample, sample.groups == 0).rates
    assert rates[0] == 0
    assert rates[1] != 0


def test_scaled_paths_refuse_other_layers():
    y, groups = fading_paths()
    drift = scaled_mean(drift_sample(y, TIMES, groups))
    with pytest.raises(InvalidInputError, match="one layer per step"):
        scaled_paths(drift, y[:, :3], TIMES[:3])
