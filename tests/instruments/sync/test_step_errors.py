"""Variance that a sampler of few steps ends with, in closed form, and the law behind samples."""

import itertools
import math

import pytest
import torch
from tests.instruments.sync.test_gaussian_control import law_of, surroundings

from flowscope.instruments.sync.commitment.control import control_arrays, curve_arrays
from flowscope.instruments.sync.commitment.gaussian import (
    GaussianDenoiser,
    GaussianImages,
    cosine_transform,
)
from flowscope.instruments.sync.commitment.order_rule import Order
from flowscope.instruments.sync.commitment.outcomes import Outcomes
from flowscope.instruments.sync.commitment.step_errors import law_of_samples, sampled_variances
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.records import Unavailable

LAW = law_of(-2.0)


def clock_of(steps):
    return GaussianDenoiser(LAW, surroundings()).clock(steps)


@pytest.mark.parametrize("steps", [8, 16, 50])
def test_variance_of_samples_follows_by_hand(steps):
    """DDPM on one coefficient: mean and variance of each step written out."""
    v = torch.tensor([0.01, 0.1, 1.0, 3.0], dtype=torch.float64)
    levels = [*clock_of(steps).levels, 1.0]
    expected = torch.ones_like(v)
    for now, then in itertools.pairwise(levels):
        jump = (1 - then) / (1 - now) * (1 - now / then)
        clean = math.sqrt(now) * v / (now * v + 1 - now)
        noise = (1 - math.sqrt(now) * clean) / math.sqrt(1 - now)
        kept = math.sqrt(then) * clean + math.sqrt(max(1 - then - jump, 0.0)) * noise
        expected = kept**2 * expected + jump
    found = sampled_variances(v, clock_of(steps), eta=1.0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_many_steps_give_the_law_back():
    v = torch.tensor([0.05, 0.5, 2.0], dtype=torch.float64)
    errors = [
        float((sampled_variances(v, clock_of(steps), eta=0.0) / v - 1).abs().max())
        for steps in (16, 64, 256)
    ]
    assert errors[0] > 0.1
    assert errors[2] < 0.05
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_variance_of_samples_is_that_of_the_sampler(eta):
    config = SyncConfig(pairs=1000, steps=16, eta=eta)
    exact = GaussianDenoiser(LAW, surroundings())
    sampler, noise = pair_sampler(exact, config, 0, eta=eta)
    ended = sampler.finished({0: noise.initial(1.0)}, noise)[0]
    measured = cosine_transform(ended.double()).var(0).flatten()
    expected = sampled_variances(LAW.spectrum.flatten(), clock_of(16), eta=eta)
    ratio = measured / expected
    assert ratio.mean() == pytest.approx(1, abs=4 * math.sqrt(2 / 2000 / 64))
    assert ratio.std() == pytest.approx(math.sqrt(2 / 2000), rel=0.4)


def test_the_law_behind_samples_has_samples_of_that_covariance():
    """The law, sent through the sampler, is the covariance again: spectrum and directions."""
    waves = torch.eye(64, dtype=torch.float64)[:2]
    images = GaussianImages(
        mean=LAW.mean, spectrum=LAW.spectrum, directions=waves,
        strengths=torch.tensor([2.0, 0.0], dtype=torch.float64),
    )  # fmt: skip
    behind = law_of_samples(images, clock_of(16), eta=1.0)
    spectrum = sampled_variances(behind.spectrum.flatten(), clock_of(16), eta=1.0)
    torch.testing.assert_close(spectrum, LAW.spectrum.flatten(), rtol=1e-3, atol=0)
    along = behind.strengths[0] + behind.spectrum.flatten()[0]
    found = sampled_variances(along[None], clock_of(16), eta=1.0)
    expected = images.strengths[0] + LAW.spectrum.flatten()[0]
    torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=0)
    assert behind.strengths[1] == 0
    assert (behind.spectrum > 1.2 * LAW.spectrum).all(), "16 steps lose variance"


def test_no_variance_stays_none():
    still = GaussianImages(
        mean=LAW.mean, spectrum=torch.zeros_like(LAW.spectrum), directions=LAW.directions,
        strengths=LAW.strengths,
    )  # fmt: skip
    assert not law_of_samples(still, clock_of(16), eta=1.0).spectrum.any()


class Memory(dict):
    """Shards that are not written."""

    crew = None
    find = dict.get

    def task_name(self, name):
        return name

    def write(self, name, arrays, metadata):
        self[name] = type("Shard", (), {"arrays": dict(arrays)})

    def read(self, name):
        return self[name]

    def arrays(self, name, make, metadata):
        if name not in self:
            self.write(name, make(), metadata)
        return self[name].arrays


def test_the_order_of_gaussian_images_is_that_of_their_control():
    """Blue images, whose order hardly varies from run to run: a bias of the rule would show.

    With the covariance of the samples as its law, the control was .12 of 16 steps off.
    """
    law = law_of(2.0)
    config = SyncConfig(pairs=16, steps=16, couplings=(1.0,), finals=96)
    exact = GaussianDenoiser(law, surroundings())
    nothing = Unavailable("no features are compared")
    outcomes = Outcomes(exact, nothing, config, Memory(), lambda steps: None)
    curves = outcomes.curves()
    arrays = curve_arrays(curves)
    arrays |= control_arrays(exact, {0: outcomes.finals(0)}, curves, config)
    order = Order(arrays=arrays, seed=0)
    assert order.mean_gap(order.coupled) == pytest.approx(
        order.control_gap(order.coupled), abs=0.05
    )
