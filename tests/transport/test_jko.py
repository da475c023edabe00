"""JKO steps against Gaussian oracles, the Gibbs law, a generic solver and the stated bias."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport.jko import jko_step, jko_step_grid, jko_step_particles
from flowscope.transport.line import ProximalLine, wasserstein_1d

NU, TAU = 0.7, 0.5


def cells(n, width=16.0):
    h = width / n
    return (torch.arange(n, dtype=torch.float64) + 0.5) * h - width / 2, h


def gaussian_density(x, s=1.0, mean=0.0):
    return torch.exp(-((x - mean) ** 2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))


def deviation(density, x):
    mean = (density * x).sum() / density.sum()
    return float(((density * (x - mean) ** 2).sum() / density.sum()).sqrt())


def free_energy(density, U, h, nu):
    return float(h * (density * U + nu * torch.special.xlogy(density, density)).sum())


# --- on a grid ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0.0, 0.8])
@pytest.mark.parametrize(("s", "nu", "tau"), [(1.0, 0.7, 0.5), (0.6, 0.2, 2.0), (1.2, 0.3, 0.01)])
def test_gaussian_step_is_the_oracle(k, s, nu, tau):
    x, h = cells(800)
    step = jko_step_grid(gaussian_density(x, s), k * x**2 / 2, spacing=h, step=tau, diffusivity=nu)
    expected = oracles.jko_confined_step(s, nu, tau, k)
    assert deviation(step.state, x) == pytest.approx(expected, abs=2e-5)
    assert_close(step.state, gaussian_density(x, expected), rtol=0, atol=5e-5)
    assert step.iterations <= 5  # Newton's rate: an approximate slope takes more


def test_order_in_the_spacing_is_two():
    expected = oracles.jko_confined_step(1.0, NU, TAU, 0.0)
    errors, sizes = [], [100, 200, 400, 800]
    for n in sizes:
        x, h = cells(n)
        step = jko_step_grid(gaussian_density(x), 0 * x, spacing=h, step=TAU, diffusivity=NU)
        errors.append(abs(deviation(step.state, x) - expected))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-2, abs=0.05)


def test_a_moving_mean_contracts_by_the_implicit_rule():
    # U = ½kx²: the mean of a JKO step is m/(1 + τk).
    x, h = cells(800)
    step = jko_step_grid(gaussian_density(x, 1, 1.5), x**2, spacing=h, step=TAU, diffusivity=NU)
    mean = float((step.state * x).sum() / step.state.sum())
    assert mean == pytest.approx(1.5 / (1 + TAU * 2), abs=2e-4)


def test_step_is_the_minimiser_a_generic_solver_finds():
    # Of the objective, whose transport part the next test checks by itself.
    x, h = cells(12, 6.0)
    U, rho0 = 0.3 * x**4 / 4 - 0.5 * x, gaussian_density(x, 1.0, 0.4)
    m0 = (rho0 / rho0.sum()).numpy()
    line = ProximalLine(m0, U.numpy(), h, TAU, NU)

    def objective(logits):
        return line.objective(logits - np.log(np.exp(logits).sum()))

    best = min(
        (minimize(objective, start, method="BFGS", options={"gtol": 1e-9}) for start in
         (np.log(m0), np.zeros(12))), key=lambda r: r.fun,
    )  # fmt: skip
    expected = np.exp(best.x) / np.exp(best.x).sum()
    step = jko_step_grid(rho0 / (rho0.sum() * h), U, spacing=h, step=TAU, diffusivity=NU)
    assert_close(step.state.numpy() * h, expected, rtol=0, atol=1e-6)
    assert step.objective == pytest.approx(best.fun, abs=1e-10)


def test_transport_part_of_the_objective_is_the_wasserstein_cost():
    x, h = cells(400, 10.0)
    step = jko_step_grid(gaussian_density(x, 0.7), x**2, spacing=h, step=TAU, diffusivity=NU)
    old, new = gaussian_density(x, 0.7), step.state
    distance = wasserstein_1d(x, x, old / old.sum(), new / new.sum(), order=2)
    transport = 2 * TAU * (step.objective - step.free_energy)
    assert transport == pytest.approx(float(distance) ** 2, abs=2 * h**2)
    assert step.free_energy == pytest.approx(free_energy(new, x**2, h, NU), rel=1e-12)


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 5.0]))
def test_mass_is_kept_and_the_free_energy_pays_for_the_way(seed, tau):
    rng = np.random.default_rng(seed)
    x, h = cells(150, 8.0)
    shapes = zip(0.5 + rng.random(3), rng.normal(size=3), strict=True)
    rho = 2.5 * sum(gaussian_density(x, s, m) for s, m in shapes)
    U = float(rng.normal()) * torch.sin(x) + 0.3 * x**2
    step = jko_step_grid(rho, U, spacing=h, step=tau, diffusivity=NU)
    assert float(step.state.sum() * h) == pytest.approx(float(rho.sum() * h), rel=1e-13)
    assert step.state.min() > 0
    assert step.free_energy == pytest.approx(free_energy(step.state, U, h, NU), rel=1e-12)
    assert step.free_energy <= step.objective <= free_energy(rho, U, h, NU) + 1e-12
    assert step.residual <= 1e-9


@pytest.mark.parametrize("start", ["gaussian", "box", "one cell"])
def test_iterating_reaches_the_gibbs_law(start):
    x, h = cells(120, 8.0)
    U = (x**2 - 2) ** 2 / 8 + 0.3 * x
    rho = {
        "gaussian": gaussian_density(x, 0.4, -1.0),
        "box": ((x > 0) & (x < 1)).double(),
        "one cell": (torch.arange(120) == 30).double(),
    }[start]
    rho = rho / (rho.sum() * h)
    energies = []
    for _ in range(30):
        step = jko_step_grid(rho, U, spacing=h, step=2.0, diffusivity=NU)
        rho = step.state
        energies.append(step.free_energy)
    gibbs = torch.exp(-U / NU)
    assert_close(rho, gibbs / (gibbs.sum() * h), rtol=1e-6, atol=1e-9)
    assert all(b <= a + 1e-12 for a, b in pairwise(energies))


def test_the_gibbs_law_is_a_fixed_point_of_every_step():
    x, h = cells(120, 8.0)
    U = torch.cos(3 * x) + x**2 / 4
    gibbs = torch.exp(-U / NU)
    step = jko_step_grid(gibbs, U, spacing=h, step=0.37, diffusivity=NU)
    assert_close(step.state, gibbs, rtol=1e-10, atol=0)


def test_tails_far_below_rounding_keep_their_shape():
    # log ρ of a Gaussian step is quadratic down to e^{−60}; a cumulative mass alone ends at 1e-16.
    x, h = cells(1600, 32.0)
    step = jko_step_grid(gaussian_density(x), 0 * x, spacing=h, step=TAU, diffusivity=NU)
    s = oracles.jko_entropy_step(1.0, NU, TAU)
    inside = x.abs() < 14
    log_ratio = (step.state[inside] / gaussian_density(x[inside], s)).log()
    assert step.state[inside].min() < 1e-25
    assert log_ratio.abs().max() < 0.01


def test_small_steps_follow_the_heat_equation():
    # Variance grows by 2νt; the splitting error of one implicit step is O(τ²).
    x, h = cells(400)
    rho = gaussian_density(x)
    for _ in range(20):
        rho = jko_step_grid(rho, 0 * x, spacing=h, step=0.01, diffusivity=NU).state
    assert deviation(rho, x) ** 2 == pytest.approx(1 + 2 * NU * 0.2, abs=5e-3)


def test_mirrored_input_gives_the_mirrored_step():
    x, h = cells(150, 8.0)
    rho, U = gaussian_density(x, 0.6, 0.9), torch.sin(x)
    there = jko_step_grid(rho, U, spacing=h, step=TAU, diffusivity=NU).state
    back = jko_step_grid(rho.flip(0), U.flip(0), spacing=h, step=TAU, diffusivity=NU).state
    assert_close(there, back.flip(0), rtol=1e-8, atol=1e-14)


def test_an_unfinished_step_raises_with_what_it_had():
    x, h = cells(100)
    options = {"spacing": h, "step": TAU, "diffusivity": NU, "max_iterations": 1}
    with pytest.raises(ConvergenceError, match=r"at most 1e-09; found .* after 1 iter") as info:
        jko_step_grid(gaussian_density(x), 0 * x, **options)
    assert info.value.partial.status == "not converged"
    assert float(info.value.partial.state.sum() * h) == pytest.approx(1.0)


# --- on particles ------------------------------------------------------------------------------


def normal_quantiles(n):
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)[:, None]


@pytest.mark.parametrize("k", [0.0, 0.8])
def test_quantile_particles_converge_to_the_oracle_at_first_order(k):
    expected, errors, sizes = oracles.jko_confined_step(1.0, NU, TAU, k), [], [50, 200, 800]
    for n in sizes:
        y = normal_quantiles(n)
        step = jko_step_particles(y, lambda x: k * x[:, 0] ** 2 / 2, step=TAU, diffusivity=NU)
        errors.append(abs(float(step.state.square().mean().sqrt()) - expected))
    assert errors[-1] < 1e-3
    assert np.polyfit(np.log(sizes), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.05)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_the_virial_holds_exactly_in_any_order_of_particles(seed):
    y = torch.from_numpy(np.random.default_rng(seed).normal(size=(40, 1)))
    options = {"step": TAU, "diffusivity": NU, "tolerance": 1e-11}
    x = jko_step_particles(y, lambda x: (x[:, 0] ** 4) / 4, **options).state
    virial = (x * (x - y)).mean() / TAU + (x**4).mean()
    assert float(virial) == pytest.approx(NU, rel=1e-8)
    assert torch.equal(x[:, 0].argsort(), y[:, 0].argsort())


def test_coinciding_particles_spread():
    step = jko_step_particles(torch.zeros(9, 1), lambda x: 0 * x[:, 0], step=TAU, diffusivity=NU)
    assert torch.all(step.state[:, 0].diff() > 0)
    assert_close(step.state, -step.state.flip(0), rtol=0, atol=1e-5)
    # From a point, σ'² = ντ: the virial again.
    assert float(step.state.square().mean()) == pytest.approx(NU * TAU, rel=1e-5)


def test_particles_and_grid_agree_on_a_double_well():
    def potential(z):
        return (z**2 - 2) ** 2 / 8 + 0.3 * z

    x, h = cells(600, 10.0)
    rho = gaussian_density(x)
    grid = jko_step_grid(rho, potential(x), spacing=h, step=0.4, diffusivity=NU).state
    moved = jko_step_particles(
        normal_quantiles(2000), lambda z: potential(z[:, 0]), step=0.4, diffusivity=NU
    )
    assert float(wasserstein_1d(x, moved.state[:, 0], grid / grid.sum())) < 5e-3


def test_particle_energy_falls_to_that_of_the_gibbs_law():
    y, energies = normal_quantiles(200) - 1, []
    for _ in range(25):
        step = jko_step_particles(y, lambda x: x[:, 0] ** 2, step=1.0, diffusivity=NU)
        y = step.state
        energies.append(step.free_energy)
    assert all(b <= a + 1e-9 for a, b in pairwise(energies))
    assert float(y.square().mean()) == pytest.approx(NU / 2, rel=1e-6)  # virial of the limit
    assert float(y.mean()) == pytest.approx(0, abs=1e-6)


def whitened_cloud(n, d):
    y = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = y - y.mean(0)
    return y @ torch.linalg.inv(torch.linalg.cholesky(y.mT @ y / n)).mT


def test_kernel_cloud_has_the_stated_bias():
    # Deviation σ' of (σ'−1)/τ + kσ' = ν σ'(σ'²+2η²)/(σ'²+η²)²; at η = 1 it is far from the oracle.
    k = 0.8
    for eta in (0.5, 1.0):
        step = jko_step_particles(
            whitened_cloud(400, 2), lambda x: k * x.square().sum(-1) / 2,
            step=TAU, diffusivity=NU, bandwidth=eta,
        )  # fmt: skip
        found = float(step.state.square().mean().sqrt())
        biased = brentq(
            lambda s, e=eta: (s - 1) / TAU + k * s
            - NU * s * (s**2 + 2 * e**2) / (s**2 + e**2) ** 2, 0.1, 5,
        )  # fmt: skip
        # 400 particles: the sampled kernel density adds 0.5 %.
        assert found == pytest.approx(biased, rel=5e-3)
    assert abs(found - oracles.jko_confined_step(1.0, NU, TAU, k)) > 0.02


def test_kernel_step_lowers_the_energy_and_is_stationary():
    y = whitened_cloud(120, 3)
    options = {"step": TAU, "diffusivity": NU, "bandwidth": 0.6}
    step = jko_step_particles(y, lambda x: 0 * x[:, 0], **options)
    still = jko_step_particles(y, lambda x: 0 * x[:, 0], **{**options, "step": 1e-9})
    assert step.residual <= 1e-6
    assert step.objective < still.free_energy
    assert float(step.state.square().mean()) > float(y.square().mean())


def test_a_turned_cloud_gives_the_turned_step():
    y = whitened_cloud(60, 2)
    turn = torch.linalg.qr(torch.randn(2, 2, dtype=torch.float64)).Q
    steps = [
        jko_step_particles(z, lambda x: x.square().sum(-1), step=TAU, diffusivity=NU).state
        for z in (y, y @ turn)
    ]
    assert_close(steps[0] @ turn, steps[1], rtol=0, atol=1e-4)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("density", "potential", "options", "message"),
    [
        ([1.0, 0.0, 1.0], [0.0] * 3, {}, "positive between its first and last.*found 0 at"),
        ([1.0, -1.0, 1.0], [0.0] * 3, {}, "density must be finite and >= 0; found -1 at"),
        ([1.0] * 3, [0.0] * 4, {}, r"same cells.*found shapes \(3,\) and \(4,\)"),
        ([1.0] * 3, [0.0, math.inf, 0.0], {}, "potential must be finite; found inf"),
        ([0.0] * 3, [0.0] * 3, {}, "density must have a positive cell"),
        ([1.0] * 3, [0.0] * 3, {"step": 0.0}, "step must be finite and > 0; found 0"),
        ([1.0] * 3, [0.0] * 3, {"diffusivity": -1.0}, "diffusivity must be .* found -1"),
        ([1.0] * 3, [0.0] * 3, {"spacing": math.nan}, "spacing must be .* found nan"),
    ],
)
def test_bad_cells_are_refused(density, potential, options, message):
    arguments = {"spacing": 0.1, "step": 1.0, "diffusivity": 1.0, **options}
    with pytest.raises(InvalidInputError, match=message):
        jko_step_grid(density, potential, **arguments)


@pytest.mark.parametrize(
    ("particles", "potential", "options", "message"),
    [
        (np.zeros(5), lambda x: x[:, 0], {}, r"shape \(n, d\).*found \(5,\)"),
        (np.full((5, 1), np.nan), lambda x: x[:, 0], {}, "particles must be finite; found nan"),
        (np.zeros((5, 2)), lambda x: x[:, 0], {}, "bandwidth must be finite and > 0; found 0"),
        (np.eye(5), lambda x: x, {}, r"to a tensor of shape \(5,\); found \(5, 5\)"),
        (np.eye(5), lambda x: x[:, 0] / 0, {}, "potential must be finite"),
        (np.eye(5), lambda x: x[:, 0], {"step": -1.0}, "step must be .* found -1"),
    ],
)
def test_bad_particles_are_refused(particles, potential, options, message):
    arguments = {"step": 1.0, "diffusivity": 1.0, **options}
    with pytest.raises(InvalidInputError, match=message):
        jko_step_particles(particles, potential, **arguments)


def test_one_name_serves_densities_and_particles():
    grid = torch.linspace(-6, 6, 241, dtype=torch.float64)
    density = torch.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    width = float(grid[1] - grid[0])
    values = grid**2 / 2
    found = jko_step(density, values, spacing=width, step=0.2, diffusivity=0.5)
    same = jko_step_grid(density, values, spacing=width, step=0.2, diffusivity=0.5)
    torch.testing.assert_close(found.state, same.state, rtol=0, atol=0)
    cloud = grid[::8, None].clone()
    moved = jko_step(cloud, lambda x: x.square().sum(-1) / 2, step=0.2, diffusivity=0.5)
    alone = jko_step_particles(cloud, lambda x: x.square().sum(-1) / 2, step=0.2, diffusivity=0.5)
    torch.testing.assert_close(moved.state, alone.state, rtol=0, atol=0)


@pytest.mark.parametrize("spacing", [None, 0.1])
def test_a_state_and_a_potential_of_different_kinds_are_refused(spacing):
    potential = [0.0, 0.0] if spacing is None else (lambda x: x.sum(-1))
    with pytest.raises(InvalidInputError, match="matching pair"):
        jko_step([1.0, 1.0], potential, spacing=spacing, step=0.1, diffusivity=1.0)
