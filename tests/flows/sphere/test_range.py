"""Times, noises and steps near the ends of the range."""

import math

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere import (
    ParticleAttention,
    equiangular,
    particle_flow,
    phase_diagram,
    time_to_cosine,
)


@pytest.mark.parametrize(("beta", "t"), [(700.0, 1e300), (500.0, 1e214), (2.0, 10.0)])
def test_a_late_cosine_is_reached_at_its_time(beta, t):
    cosine = equiangular(2, beta, t)
    assert 0 < cosine < 1
    assert time_to_cosine(2, beta, cosine) == pytest.approx(t, rel=1e-6)


@pytest.mark.parametrize("n", [2, 6, 10**12])
def test_particles_have_met_after_an_endless_time(n):
    assert equiangular(n, 2.0, 1e300) == 1


@pytest.mark.parametrize("t", [1e-10, 1e-20, 1e-30])
def test_an_early_cosine_grows_with_the_first_velocity(t):
    assert equiangular(6, 2.0, t) == pytest.approx(2 * t / (math.exp(2.0) + 5), rel=1e-6)


@pytest.mark.parametrize(
    ("duration", "noise", "value"),
    [(1e300, 0.0, 1e30), (1e30, 1e300, 1.0), (1e200, 0.0, 1.0)],
    ids=["velocity", "noise", "duration"],
)
def test_a_step_beyond_the_range_is_refused(duration, noise, value):
    attention = ParticleAttention(beta=1.0, value=value * torch.eye(2))
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8]]).double()
    with pytest.raises(InvalidInputError, match="more steps"):
        particle_flow(x, attention, duration, 1, noise=noise)


@pytest.mark.parametrize(
    "settings",
    [{"steps": 0}, {"particles": 3}, {"duration": math.nan}, {"duration": 1e300, "steps": 1}],
)
def test_a_phase_diagram_of_nothing_is_refused(settings):
    with pytest.raises(InvalidInputError, match=r"found|range"):
        phase_diagram([1.0], [1e30], **{"particles": 4, "steps": 2, "duration": 1.0} | settings)
