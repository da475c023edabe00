"""Reading of rotation beside its controls: closed forms, laws, gradients outside the dictionary."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.oracles import gaussian_rotational_energy

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import (
    REPRESENTED,
    Settings,
    rotation_amount,
    rotation_presence,
    rotation_reading,
)
from flowscope.flows.hodge.clusters import clusters
from flowscope.flows.hodge.potentials import functions

SPIN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
QUICK = Settings(splits=2, draws=199)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, g):
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def read(x, u, seed=0, groups=None, **options):
    return rotation_reading(x, u, groups=groups, seed=seed, settings=QUICK, **options)


def mixture(n, share, noise, seed=0, d=4):
    """−x under N(0, I) with a share of rotation, energy d; noise of so much energy."""
    g = seeded(seed)
    x = normal(n, d, g=g)
    spin = torch.block_diag(*([SPIN] * (d // 2)))
    u = math.sqrt(share) * x @ spin.mT - math.sqrt(1 - share) * x
    return x, u + math.sqrt(noise / d) * normal(n, d, g=g)


def test_linear_field_has_the_closed_form_energies():
    """§9.14: R, and G = E − R when there is no noise, in the metric of a diffusion."""
    A, Sigma = np.array([[1, 2], [-1, 0.5]]), np.array([[1, 0.3], [0.3, 2]])
    a = np.array([[1, 0.2], [0.2, 0.5]])
    truth = gaussian_rotational_energy(A, Sigma, a)
    assert_allclose(truth, 7.693734, rtol=1e-6)
    x = torch.from_numpy(np.random.default_rng(0).multivariate_normal(np.zeros(2), Sigma, 20_000))
    found = read(x, x @ torch.from_numpy(A).mT, diffusion=torch.from_numpy(a))
    E = np.trace(np.linalg.inv(a) @ A @ Sigma @ A.T)
    assert_allclose(found.rotation.value * found.energy, truth, rtol=0.03)
    assert_allclose(found.gradient.value * found.energy, E - truth, rtol=0.03)
    assert_allclose(found.represented.value, 1, atol=1e-4)


def test_pure_gradient_does_not_turn():
    x, u = mixture(2000, 0.0, 0.0)
    found = read(x, u)
    assert abs(found.rotation.value) < 1e-6
    assert_allclose(found.gradient.value, 1, atol=1e-4)
    assert rotation_amount([found]).outcome == "holds"
    assert rotation_presence([found]).p > 0.5


def test_cubic_gradient_leaves_a_thousandth():
    """The floor of .03 on cubic potentials leaves at most its square, 9e-4, of their gradient."""
    x = normal(3000, 3, g=seeded(0))
    a, b, c = x.mT
    found = read(x, torch.stack([b * c, a * c, a * b], 1))  # of abc
    assert -1e-4 < found.normalised.value < 1.2e-3
    assert found.gradient.value > 0.9


def test_far_points_do_not_make_intervals_wild():
    """Student's t with three degrees of freedom, in eight coordinates; 32 groups of 32."""
    g = seeded(0)
    x = normal(1024, 8, g=g) / normal(1024, 3, g=g).square().mean(1, keepdim=True).sqrt()
    u = -x / (1 + x.norm(dim=1, keepdim=True))
    u = u * math.sqrt(8 / float(u.square().sum(1).mean()))
    found = read(x, u + normal(1024, 8, g=g), groups=torch.arange(1024) // 32)
    assert found.gradient.high - found.gradient.low < 0.4
    assert_allclose(found.gradient.value, 0.5, atol=0.08)


def test_pure_rotation_is_no_gradient():
    """4,000 points: what potentials take up by chance, some 4 %, is added back on average."""
    x, u = mixture(4000, 1.0, 0.0)
    found = read(x, u)
    assert_allclose(found.normalised.value, 1, atol=0.03)
    assert abs(found.gradient.value) < 0.01
    assert rotation_amount([found]).outcome == "fails"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_neither_rotation_nor_gradient(seed):
    """Share .3 of a signal of energy 4 in noise of energy 8: R/E = .1, G/E = .7/3."""
    found = read(*mixture(3000, 0.3, 8.0, seed), seed=seed)
    assert_allclose(found.normalised.value, 0.3, atol=0.04)
    assert_allclose(found.rotation.value, 0.1, atol=0.015)
    assert_allclose(found.gradient.value, 0.7 / 3, atol=0.025)
    assert_allclose(found.represented.value, 1 / 3, atol=0.03)
    assert rotation_presence([found]).p < 0.01


def test_motion_outside_the_coordinates_counts_as_motion():
    x, u = mixture(2000, 0.2, 0.0)
    whole = u.square().sum(1) + 12.0
    inside, outside = read(x, u), read(x, u, total_energy=whole)
    assert_allclose(outside.energy, inside.energy + 12, rtol=1e-12)
    assert_allclose(
        outside.gradient.value * outside.energy, inside.gradient.value * inside.energy, rtol=1e-9
    )
    assert_allclose(outside.normalised.value, inside.normalised.value, rtol=1e-9)
    assert rotation_amount([inside]).outcome == "holds"
    assert rotation_amount([outside]).outcome == "abstains"


def test_turning_the_axes_changes_nothing():
    x, u = mixture(1500, 0.3, 4.0)
    Q = torch.linalg.qr(normal(4, 4, g=seeded(9)))[0]
    plain, turned = read(x, u), read(x @ Q.mT, u @ Q.mT)
    for name in ("normalised", "rotation", "gradient", "represented"):
        # potentials near the cut of 1e-8 come and go with rounding
        assert_allclose(getattr(turned, name).value, getattr(plain, name).value, atol=2e-4)
    assert_allclose(turned.controls, plain.controls, atol=2e-4)


def test_units_change_nothing():
    x, u = mixture(1500, 0.3, 4.0)
    plain, scaled = read(x, u), read(100 * x, 0.01 * u)
    for name in ("normalised", "rotation", "gradient", "represented"):
        a, b = getattr(plain, name), getattr(scaled, name)
        assert_allclose([a.value, a.low, a.high], [b.value, b.low, b.high], atol=1e-7)
    assert_allclose(scaled.null, plain.null, atol=1e-7)
    assert_allclose(scaled.energy, 1e-4 * plain.energy, rtol=1e-9)


def log_sum_exp(seed, n=2000, d=6, count=10):
    """Gradient of log Σ exp⟨c, x⟩/.3 on clusters around the c; noise of its energy."""
    g = seeded(seed)
    c = normal(count, d, g=g)
    x = c[torch.randint(count, (n,), generator=g)] + 0.5 * normal(n, d, g=g)
    u = (x @ c.mT / 0.3).softmax(1) @ c
    u = u * math.sqrt(d / float(u.square().sum(1).mean()))
    return x, u + normal(n, d, g=g)


@pytest.mark.parametrize("seed", range(3))
def test_log_sum_exp_gradients_are_not_called_rotation(seed):
    """The potential is outside the dictionary; level 5 %, fixed seeds."""
    found = read(*log_sum_exp(seed), seed=seed)
    assert found.normalised.value < 0.008
    assert rotation_presence([found]).p > 0.05


def test_tight_clusters_have_no_wild_gradient():
    """Ten clusters of width .3, 1,200 points: a half that lacks a direction does not guess it."""
    g = seeded(0)
    c = normal(10, 6, g=g)
    x = c[torch.randint(10, (1200,), generator=g)] + 0.3 * normal(1200, 6, g=g)
    u = (x @ c.mT / 0.1).softmax(1) @ c
    u = u * math.sqrt(6 / float(u.square().sum(1).mean()))
    found = read(x, u + normal(1200, 6, g=g)).gradient
    assert found.high - found.low < 0.1
    assert 0.35 < found.value < 0.52


def test_rotation_on_top_of_a_log_sum_exp_gradient_is_seen():
    x, u = log_sum_exp(0)
    spin = torch.block_diag(SPIN, SPIN, SPIN)
    turning = (x - x.mean(0)) @ spin.mT
    share = 0.3 * 6 / float(turning.square().sum(1).mean())
    assert rotation_presence([read(x, u + math.sqrt(share) * turning)]).p < 0.01


def test_controls_have_the_energy_of_the_signal_and_do_not_turn():
    found = read(*mixture(3000, 0.3, 4.0))
    assert len(found.controls) == 9
    assert max(abs(c) for c in found.controls) < 0.02
    assert found.margin == max(found.control, 0.01)


def test_layers_share_their_signs_and_the_largest_decides():
    groups = torch.arange(960) // 30
    still = [read(*mixture(960, 0.0, 4.0, s), groups=groups) for s in range(3)]
    turning = read(*mixture(960, 0.4, 4.0, 7), groups=groups)
    quiet, loud = rotation_presence(still), rotation_presence([*still, turning])
    assert quiet.p > 0.05 > 0.01 > loud.p
    assert loud.layer_p[3] == loud.p
    assert min(loud.layer_p[:3]) > 0.05
    assert_allclose(loud.effect.value, np.mean([r.normalised.value - r.control
                    for r in (*still, turning)]))  # fmt: skip


def test_the_least_p_is_one_over_one_more_than_the_draws():
    """The observed value counts as one of its own draws: p is never 0."""
    reading = read(*mixture(960, 0.8, 0.1, 3))
    assert rotation_presence([reading]).p == 1 / (1 + len(reading.null)) == 1 / (1 + QUICK.draws)


def test_the_maximum_costs_a_layer_its_single_p():
    """p of a layer among others is at least its p alone."""
    groups = torch.arange(960) // 30
    layers = [read(*mixture(960, 0.03, 4.0, s), groups=groups) for s in range(4)]
    together = rotation_presence(layers).layer_p
    for alone, adjusted in zip(layers, together, strict=True):
        assert adjusted >= rotation_presence([alone]).p - 1e-12


def test_little_represented_is_uninformative():
    g = seeded(3)
    x, u = mixture(2000, 0.5, 0.0)
    found = read(x, 0.1 * u + normal(2000, 4, g=g))
    assert found.represented.value < REPRESENTED
    there = rotation_presence([found])
    assert not there.informative
    assert math.isnan(there.p)
    assert there.used == ()
    assert rotation_amount([found]).outcome == "abstains"


def test_interval_covers_the_share():
    """Share .3, 32 groups of 30: at least 15 of 20 seeds at nominal 95 % (binomial: 1 in 3,000)."""
    groups = torch.arange(960) // 30
    reads = [read(*mixture(960, 0.3, 4.0, s), groups=groups, seed=s) for s in range(20)]
    assert sum(r.normalised.low < 0.3 < r.normalised.high for r in reads) >= 15
    assert sum(r.gradient.low < 0.35 < r.gradient.high for r in reads) >= 15
    widths = [r.normalised.high - r.normalised.low for r in reads]
    spread = np.std([r.normalised.value for r in reads])
    assert 2 < np.mean(widths) / spread < 8


def test_rough_rotation_is_never_called_transport():
    """Stream functions sin kx · sin ly of k ≥ 5 beside a smooth gradient; share .6, no noise."""
    g = seeded(0)
    x = math.pi * torch.rand(3000, 2, generator=g, dtype=torch.float64)
    s, c = (5 * x).sin(), (5 * x).cos()
    turning = torch.stack([s[:, 0] * c[:, 1], -c[:, 0] * s[:, 1]], 1)
    rising = x - x.mean(0)
    for part, energy in ((turning, 0.6), (rising, 0.4)):
        part.mul_(math.sqrt(energy / float(part.square().sum(1).mean())))
    found = read(x, turning + rising)
    assert_allclose(found.gradient.value, 0.4, atol=0.03)
    assert rotation_amount([found]).outcome != "holds"


def test_gradients_of_the_potentials_are_right():
    """Against autograd, of each membership times an affine function."""
    z = normal(300, 3, g=seeded(1))
    found = functions(z, generator=seeded(2))
    y = z[:5].clone().requires_grad_()
    pi = found.lumps.memberships(y)
    values = torch.cat([pi, (pi[:, :, None] * y[:, None]).flatten(1)], 1)
    rows = [torch.autograd.grad(values[:, k].sum(), y, retain_graph=True)[0]
            for k in range(values.shape[1])]  # fmt: skip
    mine = found.gradients(z[:5])[:, found.smooth.potential_size :]
    torch.testing.assert_close(mine, torch.stack(rows, 1))


def test_waves_are_fields_in_few_coordinates_only():
    g = seeded(0)
    assert len(functions(normal(3000, 3, g=g), generator=g).columns) > 20
    assert len(functions(normal(3000, 4, g=g), generator=g).columns) == 15


def test_clusters_turn_with_the_axes():
    z = normal(400, 3, g=seeded(0))
    Q = torch.linalg.qr(normal(3, 3, g=seeded(1)))[0]
    plain = clusters(z, 5, generator=seeded(2))
    turned = clusters(z @ Q.mT, 5, generator=seeded(2))
    torch.testing.assert_close(turned.centres, plain.centres @ Q.mT)
    assert_allclose(turned.width, plain.width)


def test_few_points_take_smaller_dictionaries_or_are_refused():
    g = seeded(0)
    small = read(normal(256, 8, g=g), normal(256, 8, g=g), groups=torch.arange(256) // 32)
    assert small.degree == 1
    assert small.blocks == 8
    with pytest.raises(InvalidInputError, match="linear fields need 9"):
        read(normal(64, 8, g=g), normal(64, 8, g=g))
    with pytest.raises(InvalidInputError, match="At least 5 groups"):
        read(normal(256, 8, g=g), normal(256, 8, g=g), groups=torch.arange(256) // 64)


def test_bad_energies_are_refused():
    x, u = mixture(500, 0.2, 1.0)
    with pytest.raises(InvalidInputError, match="must hold the energy"):
        read(x, u, total_energy=0.5 * u.square().sum(1))
    with pytest.raises(InvalidInputError, match="one per point"):
        read(x, u, total_energy=torch.ones(3))
    with pytest.raises(InvalidInputError, match="nothing moves"):
        read(x, 0 * u)
    with pytest.raises(InvalidInputError, match="found none"):
        rotation_presence([])
