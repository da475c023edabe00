"""Rotation on a grid: closed forms, order of convergence, and supports that are no domain."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.oracles import gaussian_rotational_energy

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import grid_rotation, rotation

A = np.array([[1, 2], [-1, 0.5]])
SIGMA = np.array([[1, 0.3], [0.3, 2]])
DIFFUSION = np.array([[1, 0.2], [0.2, 0.5]])


def axes(n, reach):
    lines = [np.linspace(-r, r, n) for r in reach]
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1), tuple(x[1] - x[0] for x in lines)


def gaussian(x, Sigma):
    return np.exp(-0.5 * np.einsum("...i,ij,...j", x, np.linalg.inv(Sigma), x))


def linear(n, **options):
    x, h = axes(n, 6 * np.sqrt(np.diag(SIGMA)))
    return grid_rotation(gaussian(x, SIGMA), x @ A.T, h, diffusion=DIFFUSION, **options)


def test_linear_field_with_off_diagonal_diffusion_has_the_closed_form_energy():
    """§9.14: 7.693734, within 1 %."""
    found = linear(81)
    assert_allclose(found.energy, 7.693734, rtol=1e-3)
    assert found.condition <= 1e8
    assert found.gamma >= 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_random_linear_fields(seed):
    rng = np.random.default_rng(seed)
    B, M, N = (rng.standard_normal((2, k)) for k in (2, 4, 4))
    Sigma, a = M @ M.T, N @ N.T
    x, h = axes(151, 6 * np.sqrt(np.diag(Sigma)))
    found = grid_rotation(gaussian(x, Sigma), x @ B.T, h, diffusion=a)
    assert_allclose(found.energy, gaussian_rotational_energy(B, Sigma, a), rtol=0.01)


def test_error_falls_with_the_square_of_the_spacing():
    truth = gaussian_rotational_energy(A, SIGMA, DIFFUSION)
    errors = [linear(n).energy - truth for n in (41, 81, 161)]
    slope = np.polyfit(np.log([41, 81, 161]), np.log(np.abs(errors)), 1)[0]
    assert_allclose(slope, -2, atol=0.15)


def test_weighted_not_unweighted_energy():
    """E44: 3.2, where the unweighted problem gives 5."""
    x, h = axes(121, (6, 12))
    u = np.stack([-x[..., 1], x[..., 0]], -1)
    found = grid_rotation(gaussian(x, np.diag([1.0, 4.0])), u, h, diffusion=1.0)
    assert_allclose(found.energy, 3.2, rtol=1e-3)


def test_three_axes():
    """A rotation in one plane of N(0, I): R = E|x₁|² + E|x₂|² = 2."""
    x, h = axes(33, (5, 5, 5))
    u = np.stack([-x[..., 1], x[..., 0], -x[..., 2]], -1)
    found = grid_rotation(gaussian(x, np.eye(3)), u, h, diffusion=1.0)
    assert_allclose(found.energy, 2, rtol=0.01)
    assert_allclose(found.normalised, 2 / 3, rtol=0.01)


def test_gradient_through_the_boundary_is_still_a_gradient():
    """No-flux boundary: a field that leaves a disc is the gradient it is."""
    x, h = axes(61, (1, 1))
    disc = (x**2).sum(-1) < 0.8
    found = grid_rotation(np.ones(disc.shape), 2 * x, h, diffusion=1.0, mask=disc)
    assert abs(found.normalised) < 1e-3
    turned = grid_rotation(
        np.ones(disc.shape), np.stack([-x[..., 1], x[..., 0]], -1), h, diffusion=1.0, mask=disc
    )
    # A staircase for a circle: what a rotation carries through the steps counts as gradient.
    assert turned.normalised > 0.95


def test_refinement_takes_the_tikhonov_term_out():
    """A slow mode: two lumps that hardly touch, where γ alone would bias θ."""
    x, h = axes(81, (6, 4))
    mu = sum(gaussian(x - np.array(c), 0.5 * np.eye(2)) for c in ([2.6, 0], [-2.6, 0]))
    u = np.stack([np.tanh(x[..., 0]), 0 * x[..., 1]], -1)
    found = grid_rotation(mu, u, h, diffusion=1.0)
    assert abs(found.normalised) < 1e-3


def test_a_reference_is_subtracted():
    x, h = axes(41, (5, 5))
    turning = np.stack([-x[..., 1], x[..., 0]], -1)
    found = grid_rotation(gaussian(x, np.eye(2)), turning - x, h, diffusion=1.0, reference=turning)
    assert abs(found.normalised) < 0.01


def test_supports_that_are_no_domain_are_refused():
    x, h = axes(21, (2, 2))
    mu, one = np.ones((21, 21)), np.zeros((21, 21), bool)
    one[10, 10] = True
    pieces = np.abs(x[..., 0]) > 0.5
    for mask, match in ((one, "no such box"), (~(mu > 0), "no such box"), (pieces, "one piece")):
        with pytest.raises(InvalidInputError, match=match):
            grid_rotation(mu, x, h, diffusion=1.0, mask=mask)
    for bad, match in (
        ({"density": 0 * mu}, "somewhere positive"),
        ({"density": mu - 2}, "nowhere negative"),
        ({"velocity": x[..., :1]}, "coordinates last"),
        ({"velocity": np.where(x > 1, np.nan, x)}, "finite"),
        ({"density": np.ones((3, 3, 3, 3))}, "one to 3 axes"),
        ({"spacing": (0.1, 0.0)}, "spacing"),
        ({"diffusion": 0.0}, "invertible"),
    ):
        arguments = {"density": mu, "velocity": x, "spacing": h, "diffusion": 1.0, **bad}
        with pytest.raises(InvalidInputError, match=match):
            grid_rotation(**arguments)


def test_no_motion_abstains():
    x, h = axes(11, (2, 2))
    assert grid_rotation(gaussian(x, np.eye(2)), 0 * x, h, diffusion=1.0).status == "abstained"


def cubic(x):
    return np.stack([-x[..., 1] + x[..., 0] * (1 - x[..., 0] ** 2), x[..., 0] - x[..., 1] ** 3], -1)


def test_samples_and_grid_agree_on_a_cubic_field_under_a_mixture():
    """Two independent routes, within 3 %; the grid by Richardson from two spacings."""
    centres, widths = np.array([[-1, 0], [1, 0.5]]), np.array([0.6, 0.9])
    energies = []
    for n in (101, 201):
        x, h = axes(n, (5, 6))
        mu = sum(np.exp(-0.5 * (((x - c) / widths) ** 2).sum(-1)) for c in centres)
        energies.append(grid_rotation(mu, cubic(x), h, diffusion=1.0).energy)
    truth = energies[1] + (energies[1] - energies[0]) / 3
    rng = np.random.default_rng(0)
    x = centres[rng.integers(2, size=40_000)] + widths * rng.standard_normal((40_000, 2))
    found = rotation(
        torch.from_numpy(x), torch.from_numpy(cubic(x)), diffusion=1.0,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert_allclose(found.energy, truth, rtol=0.03)


def test_binned_samples_agree_with_the_samples_method_on_a_square():
    """Uniform points: no tails for the cells to lose. Noise twice the signal."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (20_000, 2))
    u = np.stack([-x[:, 1] + x[:, 0], x[:, 0]], -1) + rng.standard_normal((20_000, 2))
    options = {"diffusion": 1.0, "generator": torch.Generator().manual_seed(0)}
    one = rotation(torch.from_numpy(x), torch.from_numpy(u), **options)
    two = rotation(torch.from_numpy(x), torch.from_numpy(u), method="grid", **options)
    assert_allclose(two.normalised, one.normalised, atol=0.03)
    assert one.normalised in two.interval
    assert two.p_value < 0.01


def test_noise_in_cells_is_not_read_as_rotation():
    """Ten noisy gradient fields, noise = signal."""
    shares = []
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        x = torch.rand(5000, 2, generator=g, dtype=torch.float64) - 0.5
        u = x + 0.4 * torch.randn(5000, 2, generator=g, dtype=torch.float64)
        shares.append(rotation(x, u, diffusion=1.0, generator=g, method="grid").normalised)
    assert abs(np.mean(shares)) < 4 * np.std(shares) / np.sqrt(10)
