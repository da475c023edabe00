"""Reverse steps of a variance-preserving diffusion, against closed forms."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import mixture_probability_flow

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.variance_preserving import (
    MergedNoise,
    Prediction,
    family_step,
    log_snr,
    nested_times,
    unit_clock,
)


def gaussian(x, level, s2):
    """Exact prediction for data N(0, s2)."""
    clean = math.sqrt(level) * s2 / (level * s2 + 1 - level) * x
    return Prediction(clean=clean, noise=(x - math.sqrt(level) * clean) / math.sqrt(1 - level))


def linear_levels(steps):
    u = torch.linspace(1, 1e-3, steps + 1, dtype=torch.float64)
    return (-(0.1 * u + 9.95 * u**2)).exp().tolist()


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_every_member_carries_a_gaussian_to_its_data(lam):
    """The variance after many steps is that of the data, whatever the noise on the way."""
    levels, s2 = linear_levels(2000), 0.25
    variance = levels[0] * s2 + 1 - levels[0]
    for now, then in pairwise(levels):
        x = torch.ones(1, 1, dtype=torch.float64)
        slope = float(family_step(x, gaussian(x, now, s2), now, then, lam, torch.zeros_like(x)))
        noise = float(family_step(0 * x, gaussian(0 * x, now, s2), now, then, lam, x))
        variance = slope**2 * variance + noise**2
    expected = levels[-1] * s2 + 1 - levels[-1]
    assert variance == pytest.approx(expected, rel=1e-2)
    assert (noise > 0) == (lam > 0)


def test_the_flow_of_a_mixture_ends_where_the_closed_form_says():
    mu, s2, T, steps = 2.0, 0.25, 3.0, 20000
    x = torch.tensor([[1.0]], dtype=torch.float64)
    clock = [T * (1 - (k / steps)) ** 2 for k in range(steps + 1)]  # smooth in the noise at 0
    for t, later in pairwise(clock):
        now, then = math.exp(-2 * t), math.exp(-2 * later)
        v = now * s2 + 1 - now
        lean = torch.tanh(math.sqrt(now) * mu * x / v)
        clean = math.sqrt(now) * s2 / v * x + (1 - now) / v * mu * lean
        noise = (x - math.sqrt(now) * clean) / math.sqrt(1 - now)
        x = family_step(x, Prediction(clean=clean, noise=noise), now, then, 0.0)
    assert float(x) == pytest.approx(mixture_probability_flow(1.0, T, mu, s2), abs=2e-4)


@given(st.floats(0.01, 0.9), st.floats(0.01, 0.99), st.floats(0.0, 1.0))
def test_a_step_keeps_the_size_of_noise(now, share, lam):
    """Of pure noise a step makes noise of the size of its level: the variances add up."""
    then = now + share * (1 - now)
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    kept = float(family_step(one, Prediction(clean=zero, noise=one), now, then, lam, zero))
    added = float(family_step(zero, Prediction(clean=zero, noise=zero), now, then, lam, one))
    assert kept**2 + added**2 == pytest.approx(1 - then, rel=1e-9)


@given(st.integers(50, 1200), st.integers(1, 25))
def test_grids_nest(last, steps):
    coarse, fine = nested_times(last, steps), nested_times(last, 2 * steps)
    assert fine[::2] == coarse
    assert (coarse[0], coarse[-1]) == (last, 0)
    assert all(a > b for a, b in pairwise(coarse))
    spacing = [a - b for a, b in pairwise(coarse)]
    assert max(spacing) - min(spacing) <= 1


def test_merged_noise_is_unit_noise_of_the_brownian_path():
    clock = [3.0, 2.0, 1.5, 1.2]
    drawn = torch.randn(3, 20000, 1, generator=torch.Generator().manual_seed(0))
    merged = MergedNoise(clock)
    for place in range(3):
        merged.add(place, drawn[place])
    found = merged.taken()
    wanted = (drawn[0] + 0.5**0.5 * drawn[1] + 0.3**0.5 * drawn[2]) / 1.8**0.5
    torch.testing.assert_close(found, wanted)
    assert float(found.var()) == pytest.approx(1, abs=0.03)
    merged.add(2, drawn[2])
    torch.testing.assert_close(merged.taken(), drawn[2])


def test_what_does_not_fit_is_refused():
    x = torch.zeros(1, 1)
    told = Prediction(clean=x, noise=x)
    with pytest.raises(InvalidInputError, match="lam must lie in"):
        family_step(x, told, 0.1, 0.2, 1.5, x)
    with pytest.raises(InvalidInputError, match="must raise the level"):
        family_step(x, told, 0.3, 0.2, 0.0)
    with pytest.raises(InvalidInputError, match="needs unit noise"):
        family_step(x, told, 0.1, 0.2, 1.0)
    with pytest.raises(InvalidInputError, match="between 1 and 10"):
        nested_times(10, 11)
    with pytest.raises(InvalidInputError, match="No noise"):
        MergedNoise([1.0, 0.0]).taken()
    with pytest.raises(InvalidInputError, match="must lie in"):
        unit_clock(0.0)
    assert log_snr(1.0) == math.inf
