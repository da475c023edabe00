"""Particles on the sphere against the closed forms, and the sphere kept."""

import math

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere import (
    ParticleAttention,
    equiangular,
    growth_rate,
    particle_flow,
    particle_velocity,
)


def random_particles(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(("n", "beta"), [(6, 2.0), (32, 1.0)])
def test_orthonormal_particles_follow_equiangular(n, beta):
    path = particle_flow(torch.eye(n), ParticleAttention(beta), duration=2.0, steps=80)
    for k in (20, 40, 80):
        cosines = (path[k] @ path[k].mT)[~torch.eye(n, dtype=torch.bool)]
        assert float((cosines - equiangular(n, beta, k / 40)).abs().max()) < 1e-7


@pytest.mark.parametrize("degree", [1, 3, 4, 6])
def test_perturbed_ring_grows_at_the_growth_rate(degree):
    beta, n, amplitude, duration = 9.0, 240, 1e-5, 2.0
    angles = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    wave = (degree * angles).sin()
    start = angles + amplitude * wave
    ring = torch.stack([start.cos(), start.sin()], -1)
    end = particle_flow(ring, ParticleAttention(beta), duration, steps=40)[-1]
    shift = end[:, 1] * angles.cos() - end[:, 0] * angles.sin()
    grown = 2 / n * float((shift * wave).sum())
    rate = math.log(grown / amplitude) / duration
    assert rate == pytest.approx(growth_rate(beta, degree, 2), rel=0.01)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_perturbed_sphere_grows_at_the_growth_rate(degree):
    """Nearly uniform points of S², moved along the gradient of a zonal harmonic, both ways."""
    beta, n, duration = 4.0, 1500, 0.4
    k = torch.arange(n, dtype=torch.float64) + 0.5
    z, longitude = 1 - 2 * k / n, math.pi * (1 + math.sqrt(5)) * k
    ring = (1 - z * z).sqrt()
    x = torch.stack([ring * longitude.cos(), ring * longitude.sin(), z], 1)
    harmonic = {1: lambda z: z, 2: lambda z: 1.5 * z**2, 3: lambda z: 2.5 * z**3 - 1.5 * z}[degree]
    slope = {1: torch.ones_like(z), 2: 3 * z, 3: 7.5 * z**2 - 1.5}[degree]
    tangent = slope[:, None] * (torch.tensor([0.0, 0.0, 1.0]) - z[:, None] * x)
    ends = []
    for sign in (1e-4, -1e-4):
        start = x + sign * tangent
        start = start / start.norm(dim=1, keepdim=True)
        path = particle_flow(start, ParticleAttention(beta), duration, steps=4)
        ends.append([float(harmonic(one[:, 2]).mean()) for one in (path[0], path[-1])])
    grown = (ends[0][1] - ends[1][1]) / (ends[0][0] - ends[1][0])
    assert math.log(grown) / duration == pytest.approx(growth_rate(beta, degree, 3), rel=0.01)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_flow_keeps_the_sphere_and_velocity_is_tangent(normalised, causal):
    x = random_particles(20, 5)
    matrices = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(1))
    attention = ParticleAttention(1.5, *matrices, normalised=normalised, causal=causal)
    velocity = particle_velocity(x, attention)
    assert float((velocity * x).sum(-1).abs().max()) < 1e-12 * float(velocity.norm())
    path = particle_flow(x, attention, duration=3.0, steps=60)
    assert float((path.norm(dim=-1) - 1).abs().max()) < 1e-12


def test_flow_has_order_four():
    x, attention = random_particles(8, 3), ParticleAttention(2.0)
    ends = [particle_flow(x, attention, 1.0, steps)[-1] for steps in (4, 8, 512)]
    coarse, fine = (float((end - ends[2]).norm()) for end in ends[:2])
    assert 10 < coarse / fine < 30


def test_causal_particle_sees_only_earlier_ones():
    x = random_particles(6, 3)
    for normalised in (True, False):
        attention = ParticleAttention(2.0, normalised=normalised, causal=True)
        velocity = particle_velocity(x, attention)
        torch.testing.assert_close(velocity[:4], particle_velocity(x[:4], attention))
        assert float(velocity[0].norm()) < 1e-12


def test_identity_matrices_are_the_default_and_unnormalised_is_the_mean():
    x, identity = random_particles(6, 3), torch.eye(3)
    given = ParticleAttention(2.0, identity, identity, identity)
    default = particle_velocity(x, ParticleAttention(2.0))
    torch.testing.assert_close(particle_velocity(x, given), default)
    mean = (2 * x @ x.mT).exp() @ x / 6
    tangent = mean - (mean * x).sum(-1, keepdim=True) * x
    plain = particle_velocity(x, ParticleAttention(2.0, normalised=False))
    torch.testing.assert_close(plain, tangent)


def test_bad_particles_and_matrices_are_refused():
    attention = ParticleAttention(1.0)
    for x in (torch.ones(3, 1), torch.ones(3), 2 * torch.eye(3), torch.full((2, 2), torch.nan)):
        with pytest.raises(InvalidInputError):
            particle_velocity(x, attention)
    for beta in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidInputError, match="beta"):
            ParticleAttention(beta)
    for bad in (
        ParticleAttention(1.0, value=torch.eye(2)),
        ParticleAttention(1.0, query=torch.ones(2, 3)),
        ParticleAttention(1.0, key=torch.full((3, 3), torch.nan)),
        ParticleAttention(1000.0, normalised=False),
    ):
        with pytest.raises(InvalidInputError):
            particle_velocity(torch.eye(3), bad)
    for duration, steps in ((math.inf, 4), (1.0, 0)):
        with pytest.raises(InvalidInputError, match="duration"):
            particle_flow(torch.eye(3), attention, duration, steps)
