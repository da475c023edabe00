"""Controls: the null is none, the planted is found."""

import pytest
import torch
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import Settings, gradient_null, planted_rotation

SETTINGS = Settings(draws=199)


def data(seed=0, N=3000, d=4):
    g = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.5, 2, d, dtype=torch.float64)
    x = torch.randn(N, d, generator=g, dtype=torch.float64) * scale
    return x, -x + torch.randn(N, d, generator=g, dtype=torch.float64), g


def test_planted_share_comes_back():
    x, u, g = data()
    a = torch.tensor([1.0, 2.0, 0.5, 1.0])
    found = planted_rotation(x, u, 0.15, diffusion=a, generator=g, settings=SETTINGS)
    assert_allclose(found.measured.normalised, 0.15, atol=0.02)
    assert found.measured.p_value < 0.01


def test_gradient_null_keeps_energy_and_noise_and_has_no_rotation():
    x, u, g = data()
    spin = torch.zeros(4, 4, dtype=torch.float64)
    spin[0, 1], spin[1, 0] = -1.0, 1.0
    turned = u + x @ spin.mT
    found = gradient_null(x, turned, diffusion=1.0, generator=g, settings=SETTINGS)
    assert abs(found.measured.normalised) < 5e-3
    assert_allclose(found.velocities.square().mean(), turned.square().mean(), rtol=0.05)
    assert found.planted == 0


def test_groups_keep_their_signs_together():
    x, u, g = data()
    groups = torch.arange(3000) % 30
    found = gradient_null(x, u, diffusion=1.0, generator=g, groups=groups, settings=SETTINGS)
    assert found.measured.groups == 30


def test_bad_shares_are_refused():
    x, u, g = data()
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            planted_rotation(x, u, share, diffusion=1.0, generator=g)
    with pytest.raises(InvalidInputError, match="one coordinate"):
        planted_rotation(x[:, :1], u[:, :1], 0.1, diffusion=1.0, generator=g, settings=SETTINGS)
