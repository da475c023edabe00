"""The HJB residual tells a bridge from a law that stands still."""

import pytest
import torch
from tests.instruments.audit.synthetic_paths import WIDTH, flow_paths

from flowscope.instruments.audit.track_t.bridge_reading import (
    Layers,
    bridge_control,
    bridge_reading,
    central,
)

STEP, TIMES = 0.1, [k / 10 for k in range(8)]


@pytest.fixture(scope="module")
def still():
    """N(0, 1) at every time, velocity zero: stationary, and no bridge of √2 dB (errata E47)."""
    g = torch.Generator().manual_seed(0)
    points = [torch.randn(500, 2, generator=g).double() for _ in TIMES]
    return Layers(
        points=points,
        velocities=[torch.zeros_like(x) for x in points],
        times=TIMES,
        groups=torch.arange(500) // 10,
        diffusion=2 * torch.eye(2).double(),
    )


def test_a_bridge_is_told_from_standing_still(still):
    own = bridge_reading(still, 0).iloc[0]
    exact = bridge_reading(bridge_control(still, 1e6, 0), 0).iloc[0]
    assert own["status"] == exact["status"] == "ok"
    assert own["relative"] > 0.8
    assert exact["relative"] < 0.2
    assert own["points"] == 4000
    assert own["prompts"] == 50


def test_noise_hides_a_bridge_and_the_control_says_so(still):
    assert bridge_reading(bridge_control(still, STEP, 0), 0).iloc[0]["relative"] > 0.5


def test_the_control_has_the_ends_and_the_noise_of_the_data(still):
    made = bridge_control(still, STEP, 0)
    for k in (0, -1):
        spread = torch.cov(made.points[k].mT)
        torch.testing.assert_close(spread, torch.eye(2).double(), atol=0.2, rtol=0)
    middle = torch.cov(made.points[4].mT)
    assert (middle.diagonal() > 1.05).all(), "a bridge between equal laws is wider half-way"
    noise = torch.stack(list(made.velocities)).var()
    assert 0.7 * 2 / STEP < noise < 1.5 * 2 / STEP


def test_two_layers_are_too_few():
    assert "needs 3 layers" in central(flow_paths(-torch.eye(WIDTH)), 1, 8, 2, 3, 0).reason


def test_the_middle_of_a_segment_is_taken():
    found = central(flow_paths(-torch.eye(WIDTH), noise=0.05), 1, 8, 4, 3, 0)
    assert found.times == [2 / 8, 3 / 8, 4 / 8, 5 / 8]
    assert found.points[0].shape == (320, 3)
    assert found.diffusion.shape == (3, 3)
