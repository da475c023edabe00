"""Paths whose drift is known."""

import torch

from flowscope.flows.drift import DriftSample, drift_sample


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def euler_paths(velocity, start, times):
    """Explicit Euler: the one-step velocities are those of the field, exactly."""
    path = [start]
    for t, dt in zip(times[:-1], times.diff(), strict=True):
        path.append(path[-1] + dt * velocity(t, path[-1]))
    return torch.stack(path, 1)


def euler_sample(velocity, *, n=400, r=3, layers=6, per_prompt=4, seed=0):
    start = torch.randn(n, r, generator=seeded(seed), dtype=torch.float64)
    times = torch.linspace(0, 1, layers, dtype=torch.float64)
    return drift_sample(euler_paths(velocity, start, times), times, torch.arange(n) // per_prompt)


def with_velocities(sample, velocities):
    return DriftSample(
        states=sample.states, times=sample.times, velocities=velocities, groups=sample.groups
    )


def waves(t, y):
    """A drift that no quadratic describes."""
    return torch.stack([torch.sin(3 * y[:, 1]), torch.cos(3 * y[:, 0])], 1)


def one_step_error(drift, sample):
    off = drift(sample.times, sample.states, sample.context) - sample.velocities
    return off.square().sum(1).mean().item()
