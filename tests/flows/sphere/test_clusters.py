"""How many clusters particles form, and where noise keeps them apart."""

import math

import numpy as np
import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere import (
    ParticleAttention,
    cluster_count,
    fastest_degree,
    particle_flow,
    phase_diagram,
)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def around(centres, each=20, spread=0.05, seed=0):
    x = centres.repeat_interleave(each, 0)
    x = x + spread * torch.randn(x.shape, generator=drawn(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_planted_clusters_are_counted(count):
    centres = torch.eye(5, dtype=torch.float64)[:count]
    assert cluster_count(around(centres), generator=drawn()).count == count


def test_opposite_clusters_are_two():
    axis = torch.eye(3, dtype=torch.float64)[:1]
    assert cluster_count(around(torch.cat([axis, -axis])), generator=drawn()).count == 2


@pytest.mark.parametrize("seed", range(4))
def test_uniform_points_are_one_cluster(seed):
    x = torch.randn(80, 3, generator=drawn(seed), dtype=torch.float64)
    assert cluster_count(x / x.norm(dim=1, keepdim=True), generator=drawn(seed)).count == 1


@pytest.mark.parametrize("beta", [4.0, 9.0, 16.0])
def test_fastest_degree_says_how_many_clusters_form(beta):
    """A ring of particles, evenly spread but for a small jitter, when it has just come apart."""
    counts = []
    for seed in range(6):
        jitter = 1e-3 * torch.randn(200, generator=drawn(seed), dtype=torch.float64)
        angle = 2 * math.pi * torch.arange(200, dtype=torch.float64) / 200 + jitter
        ring = torch.stack([angle.cos(), angle.sin()], 1)
        end = particle_flow(ring, ParticleAttention(beta), 12.0, 48)[-1]
        counts.append(cluster_count(end, generator=drawn(seed)).count)
    assert np.mean(counts) == pytest.approx(fastest_degree(beta, 2), abs=0.7)


def test_noise_forgets_the_start_at_its_damping_rate():
    """Without a write, degree 1 decays as exp(-½σ²(d-1)t)."""
    start = torch.tensor([[1.0, 0.0, 0.0]]).repeat(900, 1)
    still = ParticleAttention(1.0, value=torch.zeros(3, 3))
    path = particle_flow(start, still, 0.5, 25, noise=1.0, generator=drawn())
    assert float(path[-1][:, 0].mean()) == pytest.approx(math.exp(-0.5), abs=0.05)
    assert float((path.norm(dim=-1) - 1).abs().max()) < 1e-12


def test_particles_gather_below_the_critical_noise_and_stay_spread_above():
    phases = phase_diagram([1.0], [0.0, 0.2, 1.2], duration=30, steps=150, generator=drawn())
    growth = phases[0].growth
    assert 0.2 < growth < 1.2
    assert phases[0].order > 0.95
    assert phases[0].clusters == 1
    assert phases[1].order > 0.6
    assert phases[2].order < 0.35


@pytest.mark.parametrize(
    ("betas", "noises"),
    [([], [0.1]), ([1.0], []), ([1.0], [-0.1]), ([0.0], [0.1]), ([1], [math.nan])],
)
def test_phases_of_nothing_and_of_no_temperature_are_refused(betas, noises):
    with pytest.raises(InvalidInputError, match=r"beta|inverse temperature"):
        phase_diagram(betas, noises)


def test_clusters_need_unit_vectors_and_more_points_than_clusters():
    for x, words in ((2 * torch.eye(3), "unit vectors"), (torch.eye(3), "number of points")):
        with pytest.raises(InvalidInputError, match=words):
            cluster_count(x)
