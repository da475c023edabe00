"""Barycenters against Gaussian oracles, optimality, POT, and the contraction of mutual drift."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import brentq
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import barycenter
from flowscope.transport.barycenter import barycenter_drift, fixed_barycenter, free_barycenter
from flowscope.transport.cloud import PointCloud
from flowscope.transport.distances import sinkhorn_divergence
from flowscope.transport.entropic import sinkhorn
from flowscope.transport.gaussian import Gaussian, bures_barycenter
from flowscope.transport.geometry import CostMatrix

GRID = torch.linspace(-6, 6, 121, dtype=torch.float64)
SHIFT = {"debiased": 0.0, "lebesgue": 0.5, "product": -0.5}
LAM = [0.3, 0.7]


def histogram(mean, s, grid=GRID):
    p = torch.exp(-((grid - mean) ** 2) / (2 * s**2))
    return p / p.sum()


def humps(*moments):
    return torch.stack([histogram(mean, s) for mean, s in moments])


def spread(masses, x=GRID):
    mean = (masses * x).sum(-1) / masses.sum(-1)
    variance = (masses * (x - mean[..., None]) ** 2).sum(-1) / masses.sum(-1)
    return mean, variance.sqrt()


def entropic_deviation(deviations, lam, eps, loss):
    """Deviation s of the barycenter of centred Gaussians on a line, by its scalar equation.

    The derivative of Σ λ_k T(s, s_k) in s is s − Σ λ_k c_k/s with c_k = √(s²s_k² + ε²/4) − ε/2
    (oracle 1). Debiasing subtracts s − c(s, s)/s and Shannon's entropy −ε log s adds −ε/s, so that
    Σ λ_k √(s²s_k² + ε²/4) equals √(s⁴ + ε²/4), or s² ∓ ε/2.
    """
    h = eps / 2

    def slope(s):
        across = sum(w * math.hypot(s * t, h) for w, t in zip(lam, deviations, strict=True))
        return across - (math.hypot(s * s, h) if loss == "debiased" else s * s - SHIFT[loss] * eps)

    return brentq(slope, 0.05 * min(deviations), 10 * max(deviations), xtol=1e-14)


def quantiles(n, s=1.0, mean=0.0):
    """The n points that stand for N(mean, s²) best, scaled to its variance exactly."""
    z = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)[:, None]
    return mean + s * z / z.square().mean().sqrt()


def gaussian_cloud(n, mean, covariance, seed):
    """Normal points whose mean and covariance are those asked for, without sampling error."""
    z = torch.randn(n, len(mean), generator=torch.Generator().manual_seed(seed)).double()
    z = z - z.mean(0)
    z = z @ torch.linalg.inv(torch.linalg.cholesky(z.mT @ z / n)).mT
    return torch.tensor(mean).double() + z @ torch.linalg.cholesky(covariance).mT


def covariance(x):
    centred = x - x.mean(0)
    return centred.mT @ centred / len(x)


# --- the oracle itself -------------------------------------------------------------------------


@pytest.mark.parametrize("loss", SHIFT)
def test_scalar_oracle_gives_the_bias_of_each_loss(loss):
    s = entropic_deviation([1.3, 1.3], LAM, 0.4, loss)
    assert s**2 == pytest.approx(1.69 + 2 * 0.4 * SHIFT[loss], rel=1e-12)


@pytest.mark.parametrize("loss", SHIFT)
def test_scalar_oracle_minimises_the_gaussian_costs(loss):
    eps, sides = 0.3, (0.6, 1.4)

    def objective(s):
        def between(p, q):
            return oracles.entropic_gaussian_cost([0.0], [[p * p]], [0.0], [[q * q]], eps)

        extra = {"debiased": -between(s, s) / 2, "lebesgue": -eps * math.log(s), "product": 0.0}[
            loss
        ]
        return sum(w * between(s, t) for w, t in zip(LAM, sides, strict=True)) + extra

    s = entropic_deviation(sides, LAM, eps, loss)
    assert objective(s) < min(objective(s - 1e-3), objective(s + 1e-3))


# --- on a fixed support ------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.05, 0.3])
@pytest.mark.parametrize("loss", ["debiased", "lebesgue"])
def test_equal_histograms_give_the_bias_of_the_loss(loss, eps):
    p = histogram(0.4, 0.9)
    bar = fixed_barycenter(
        torch.stack([p, p, p]), PointCloud(GRID[:, None]), loss=loss, epsilon=eps
    )
    mean, s = spread(bar.masses)
    assert mean == pytest.approx(0.4, abs=1e-5)
    assert s**2 == pytest.approx(0.81 + 2 * eps * SHIFT[loss], abs=2e-4)
    if loss == "debiased":
        assert_close(bar.masses, p, rtol=0, atol=1e-5)


@pytest.mark.parametrize("eps", [0.05, 0.4])
@pytest.mark.parametrize("loss", ["debiased", "lebesgue"])
def test_gaussians_on_a_grid_follow_the_scalar_oracle(loss, eps):
    bar = fixed_barycenter(
        humps((-0.7, 0.5), (0.3, 1.1)), PointCloud(GRID[:, None]), LAM, loss=loss, epsilon=eps
    )
    mean, s = spread(bar.masses)
    assert bar.status == "converged"
    assert mean == pytest.approx(0.0, abs=1e-4)
    assert s == pytest.approx(entropic_deviation([0.5, 1.1], LAM, eps, loss), abs=3e-4)


def test_small_epsilon_gives_the_mean_of_the_deviations():
    bar = fixed_barycenter(humps((0, 0.6), (0, 1.2)), PointCloud(GRID[:, None]), epsilon=0.01)
    assert spread(bar.masses)[1] == pytest.approx(0.9, abs=1e-3)


def test_barycenter_is_a_minimum_of_the_divergence():
    p, C = humps((-1.0, 0.5), (1.0, 0.8)), PointCloud(GRID[:, None]).dense()
    bar = fixed_barycenter(p, C, LAM, epsilon=0.3, tolerance=1e-6).masses.requires_grad_()

    def objective(q):
        parts = [
            sinkhorn_divergence(
                CostMatrix(C), None, q, t, within=(C, C), epsilon=0.3, tolerance=1e-8
            )
            for t in p
        ]
        return sum(w * part.value for w, part in zip(LAM, parts, strict=True))

    value = objective(bar)
    (slope,) = torch.autograd.grad(value, bar)
    within = bar.detach() > 1e-3 * bar.detach().max()
    assert slope[within].std() < 1e-4  # constant on the support, up to Σq = 1
    for shift in (0.05, -0.05):
        moved = histogram(*(float(v) for v in (spread(bar.detach())[0], spread(bar.detach())[1])))
        other = (1 - abs(shift)) * bar.detach() + abs(shift) * torch.roll(moved, int(shift * 60))
        assert objective(other) > value


@pytest.mark.parametrize("loss", ["debiased", "lebesgue"])
def test_agrees_with_pot(loss):
    p, C = humps((-1.0, 0.5), (1.5, 0.8), (0.0, 1.0)), PointCloud(GRID[:, None]).dense()
    lam = np.array([0.2, 0.3, 0.5])
    # POT's default method of barycenter ignores the weights in its start, and so in its answer
    solver = ot.bregman.barycenter_debiased if loss == "debiased" else ot.bregman.barycenter
    options = {"method": "sinkhorn_log", "numItermax": 5000, "stopThr": 1e-9}
    theirs = solver(p.numpy().T.copy(), C.numpy(), 0.3, weights=lam, **options)
    ours = fixed_barycenter(p, C, lam, loss=loss, epsilon=0.3, tolerance=1e-6)
    assert float((ours.masses - torch.from_numpy(theirs)).abs().sum()) < 1e-4


def test_modes_converge_and_hide_as_stated():
    """Two points: the self-coupling's mode (1, −1) has p = (1 − k)/(1 + k), k = e^{−c/ε}."""
    k = math.exp(-0.8)
    p, alpha = (1 - k) / (1 + k), torch.tensor([0.5 + 1e-5, 0.5 - 1e-5], dtype=torch.float64)
    both, cost = torch.stack([alpha, alpha]), [[0.0, 0.8], [0.8, 0.0]]
    options = {"epsilon": 1.0, "tolerance": 1e-15, "on_failure": "return"}
    early, late = (fixed_barycenter(both, cost, max_iterations=t, **options) for t in (4, 5))
    wrong = [float((bar.masses - alpha).abs().sum()) for bar in (early, late)]
    assert wrong[1] / wrong[0] == pytest.approx(1 - p / 2 - p**2 / 2, rel=1e-4)
    assert wrong[1] / float(late.marginal_error) == pytest.approx((1 - p) / p, rel=1e-4)


def test_weight_one_returns_that_histogram():
    p = humps((-1.0, 0.5), (1.0, 0.8))
    for lam, k in (([1.0, 0.0], 0), ([0.0, 1.0], 1)):
        bar = fixed_barycenter(p, PointCloud(GRID[:, None]), lam, epsilon=0.1)
        assert_close(bar.masses, p[k], rtol=0, atol=1e-5)


def test_order_of_the_histograms_does_not_matter():
    p, lam = (
        humps((-1.0, 0.5), (1.0, 0.8), (0.0, 1.1)),
        torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64),
    )
    order = torch.tensor([2, 0, 1])
    first = fixed_barycenter(p, PointCloud(GRID[:, None]), lam, epsilon=0.2)
    second = fixed_barycenter(p[order], PointCloud(GRID[:, None]), lam[order], epsilon=0.2)
    assert_close(first.masses, second.masses, rtol=0, atol=1e-13)


def test_histograms_shifted_by_cells_shift_the_barycenter():
    p = humps((-1.5, 0.5), (-0.5, 0.6))
    first, second = (
        fixed_barycenter(q, PointCloud(GRID[:, None]), LAM, epsilon=0.1).masses
        for q in (p, torch.roll(p, 12, -1))
    )
    assert_close(torch.roll(first, 12), second, rtol=0, atol=1e-6)


def test_masses_keep_their_total_and_zeros_are_allowed():
    p = torch.zeros(2, 121, dtype=torch.float64)
    p[0, 20:40], p[1, 70:100] = 3 / 20, 3 / 30
    bar = fixed_barycenter(p, PointCloud(GRID[:, None]), relative_epsilon=0.02, tolerance=1e-3)
    assert float(bar.masses.sum()) == pytest.approx(3.0, rel=1e-12)
    assert spread(bar.masses)[0] == pytest.approx(float(spread(p)[0].mean()), abs=1e-2)


def test_errors_are_relative_to_the_total():
    p, options = humps((-1.0, 0.5), (1.0, 0.8)), {"max_iterations": 5, "on_failure": "return"}
    one, three = (
        fixed_barycenter(q, PointCloud(GRID[:, None]), epsilon=0.5, **options) for q in (p, 3 * p)
    )
    assert_close(3 * one.masses, three.masses, rtol=0, atol=1e-3)  # d starts at one in both
    bar = fixed_barycenter(3 * p, COST, epsilon=0.5, loss="lebesgue", **options)
    reference = fixed_barycenter(p, COST, epsilon=0.5, loss="lebesgue", **options)
    assert_close(bar.marginal_error, reference.marginal_error)


def test_batch_is_its_problems_one_by_one():
    p = torch.stack([humps((-1.0, 0.5), (1.0, 0.8)), humps((0.0, 0.7), (0.5, 0.7))])
    cost = PointCloud(GRID[:, None])
    whole = fixed_barycenter(p, cost, LAM, epsilon=torch.tensor([0.1, 0.3]))
    assert len(set(whole.iterations.tolist())) == 2
    for k, eps in enumerate((0.1, 0.3)):
        alone = fixed_barycenter(p[k], cost, LAM, epsilon=torch.tensor(eps))
        assert_close(whole.masses[k], alone.masses, rtol=0, atol=1e-13)
        assert int(whole.iterations[k]) == int(alone.iterations)


def test_marginal_error_is_what_it_says():
    """Stopped early, the masses are still the mean of columns whose rows are exact."""
    p, C = humps((-1.0, 0.5), (1.0, 0.8)), PointCloud(GRID[:, None]).dense()
    bar = fixed_barycenter(
        p, C, epsilon=0.5, loss="lebesgue", max_iterations=1, on_failure="return"
    )
    K = torch.exp(-C / 0.5)
    columns = (p / K.sum(-1)) @ K
    assert_close(bar.masses, columns.mean(0))
    assert_close(bar.marginal_error, (columns - columns.mean(0)).abs().sum(-1).max())
    assert bar.status == "not converged"


def test_float32_is_solved_in_float64():
    p = humps((-1.0, 0.5), (1.0, 0.8))
    exact = fixed_barycenter(p, PointCloud(GRID[:, None]), epsilon=0.05)
    single = fixed_barycenter(p.float(), PointCloud(GRID[:, None].float()), epsilon=0.05)
    assert_close(single.masses, exact.masses, rtol=0, atol=1e-6)


# --- on a free support -------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.02, 0.3])
@pytest.mark.parametrize("loss", ["debiased", "product"])
def test_equal_clouds_give_the_bias_of_the_loss(loss, eps):
    x = quantiles(60, 0.9, 0.4)
    bar = free_barycenter([x, x], loss=loss, epsilon=eps, support=60)
    assert bar.points.mean() == pytest.approx(0.4, abs=1e-4)
    # sixty points of a normal law have a lighter tail than it: two percent of the shift
    assert float(covariance(bar.points)) == pytest.approx(0.81 + 2 * eps * SHIFT[loss], abs=0.012)


def test_cloud_that_is_the_answer_rests():
    x = torch.randn(40, 3, dtype=torch.float64)
    bar = free_barycenter([x, x, x], epsilon=0.5, support=x)
    assert bar.iterations == 0
    assert torch.equal(bar.points, x)
    assert bar.objective == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("eps", [0.02, 0.3])
@pytest.mark.parametrize("loss", ["debiased", "product"])
def test_gaussians_on_a_line_follow_the_scalar_oracle(loss, eps):
    clouds = [quantiles(80, 0.5, -0.7), quantiles(60, 1.1, 0.3)]
    bar = free_barycenter(clouds, weights=LAM, loss=loss, epsilon=eps, support=70)
    expected = entropic_deviation([0.5, 1.1], LAM, eps, loss)
    assert bar.points.mean() == pytest.approx(0.0, abs=1e-4)
    assert bar.points.std(correction=0) == pytest.approx(expected, rel=0.01)


def test_gaussians_in_the_plane_follow_the_bures_barycenter():
    A = torch.tensor([[1.0, 0.5], [0.5, 0.8]]).double()
    B = torch.tensor([[0.6, -0.3], [-0.3, 1.5]]).double()
    clouds = [gaussian_cloud(300, [0.0, 0.0], A, 1), gaussian_cloud(300, [2.0, -1.0], B, 2)]
    bar = free_barycenter(clouds, weights=LAM, epsilon=0.1, support=200)
    laws = [Gaussian(mean=m, covariance=S) for m, S in (([0.0, 0.0], A), ([2.0, -1.0], B))]
    exact = bures_barycenter(laws, LAM).gaussian
    assert_close(bar.points.mean(0), exact.mean, rtol=0, atol=1e-3)
    # 300 points a cloud: the plan between samples misses the population's by a few percent
    assert_close(covariance(bar.points), exact.covariance, rtol=0, atol=0.04)


def test_objective_is_the_divergence_of_the_points():
    clouds = [quantiles(40, 0.5), quantiles(30, 1.1, 1.0)]
    bar = free_barycenter(clouds, weights=LAM, epsilon=0.2, support=20)
    parts = [sinkhorn_divergence(bar.points, y, epsilon=0.2, tolerance=1e-9).value for y in clouds]
    expected = sum(w * float(v) for w, v in zip(LAM, parts, strict=True))
    assert bar.objective == pytest.approx(expected, rel=1e-4)


def test_displacement_is_minus_the_slope_of_the_objective():
    """One move from given points, against autograd through the divergence."""
    clouds = [torch.randn(12, 2).double(), torch.randn(9, 2).double() + 1]
    x = torch.randn(7, 2).double().requires_grad_()
    options = {"epsilon": 0.5, "tolerance": 1e-7}
    value = sum(
        w * sinkhorn_divergence(x, y, epsilon=0.5, tolerance=1e-10).value
        for w, y in zip(LAM, clouds, strict=True)
    )
    (slope,) = torch.autograd.grad(value, x)
    moved = free_barycenter(
        clouds, None, LAM, support=x, max_iterations=1, on_failure="return", **options
    )
    assert_close(moved.points, x.detach() - 7 * slope, rtol=0, atol=1e-6)


def test_residual_is_relative_to_the_spread_of_the_family():
    x, far = torch.randn(30, 2).double(), torch.tensor([6.0, -3.0]).double()
    bar = free_barycenter([x, x + far], epsilon=0.3, support=x, tolerance=0.99)
    scale = math.sqrt(float(covariance(x).trace() + far.square().sum() / 4))
    assert bar.iterations == 0
    assert bar.residual == pytest.approx(float(far.norm()) / 2 / scale, rel=0.005)


def test_weighted_points_are_repeated_points():
    x, y = quantiles(6), quantiles(9, 2.0, 1.0)
    count = torch.tensor([1, 2, 1, 3, 1, 1])
    start = quantiles(8)
    weighted = free_barycenter([x, y], [count.double() / 9, None], epsilon=0.3, support=start)
    repeated = free_barycenter([x.repeat_interleave(count, 0), y], epsilon=0.3, support=start)
    assert_close(weighted.points, repeated.points, rtol=0, atol=1e-5)


def test_weight_one_returns_that_cloud():
    x = torch.randn(50, 2).double()
    bar = free_barycenter([x, 3 * x + 1], weights=[1.0, 0.0], epsilon=0.3, support=50)
    apart = sinkhorn_divergence(bar.points, x, epsilon=0.3, tolerance=1e-9).distance
    assert float(apart) < 0.015  # one percent of the cloud's size, at the default tolerance


def test_translation_moves_the_barycenter_along():
    x, y = quantiles(20), torch.randn(25, 1).double()
    shift = torch.tensor([3.0]).double()
    first = free_barycenter([x, y], weights=LAM, epsilon=0.2)
    second = free_barycenter([x + shift, y + shift], weights=LAM, epsilon=0.2)
    assert_close(first.points + shift, second.points, rtol=0, atol=1e-9)


def test_order_of_the_clouds_does_not_matter():
    x, y = torch.randn(20, 2).double(), torch.randn(25, 2).double() * 2 + 1
    first = free_barycenter([x, y], weights=LAM, relative_epsilon=0.1, tolerance=0.02)
    second = free_barycenter([y, x], weights=LAM[::-1], relative_epsilon=0.1, tolerance=0.02)
    assert_close(first.points, second.points, rtol=0, atol=1e-8)


def test_start_is_deterministic():
    clouds = [quantiles(20), quantiles(20, 2.0)]
    before = torch.get_rng_state()
    first, second = (free_barycenter(clouds, epsilon=0.5).points for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_float32_masses_may_differ_by_their_rounding():
    clouds, w = [quantiles(7).float(), quantiles(7, 2.0).float()], torch.rand(2, 7)
    w = w / w.sum(-1, keepdim=True)
    first = free_barycenter(clouds, list(w), epsilon=0.5)
    second = free_barycenter(
        clouds, list(w.double() / w.double().sum(-1, keepdim=True)), epsilon=0.5
    )
    assert_close(first.points, second.points, rtol=0, atol=1e-5)


def test_fewer_points_than_dimensions_are_fine():
    clouds = [torch.randn(4, 16).double(), torch.randn(3, 16).double() + 1]
    bar = free_barycenter(clouds, relative_epsilon=0.2)
    assert bar.points.shape == (4, 16)
    assert_close(bar.points.mean(0), (clouds[0].mean(0) + clouds[1].mean(0)) / 2, rtol=0, atol=0.01)


def test_single_point_sits_at_the_weighted_mean():
    clouds = [torch.randn(10, 2).double(), torch.randn(12, 2).double() + 1]
    bar = free_barycenter(clouds, weights=LAM, epsilon=0.5, support=1)
    expected = 0.3 * clouds[0].mean(0) + 0.7 * clouds[1].mean(0)
    assert_close(bar.points[0], expected, rtol=0, atol=1e-4)


# --- drift -------------------------------------------------------------------------------------


def test_equal_clouds_have_no_velocity():
    x = torch.randn(30, 2).double()
    drift = barycenter_drift([x, x.clone()], 2.0, epsilon=0.3, support=x)
    for velocity in drift.velocities:
        assert_close(velocity, torch.zeros_like(x), rtol=0, atol=1e-12)
    found = barycenter_drift([x, x], 2.0, epsilon=0.3).velocities[0]
    assert float(found.square().sum(-1).mean().sqrt()) < 2 * 5e-3  # a cold start: met in law


def test_translated_copies_move_rigidly():
    x, far = torch.randn(25, 2).double(), torch.tensor([3.0, -1.0]).double()
    drift = barycenter_drift([x, x + far], 0.5, weights=LAM, epsilon=0.3, support=x, tolerance=1e-5)
    assert_close(drift.velocities[0], (0.5 * 0.7 * far).expand_as(x), rtol=0, atol=1e-4)
    assert_close(drift.velocities[1], (-0.5 * 0.3 * far).expand_as(x), rtol=0, atol=1e-4)


def test_velocity_is_minus_the_slope_of_the_divergence():
    clouds = [torch.randn(12, 2).double(), torch.randn(9, 2).double() + 1]
    drift = barycenter_drift(clouds, 1.5, epsilon=0.5, support=10, tolerance=1e-4)
    for x, velocity in zip(clouds, drift.velocities, strict=True):
        z = x.clone().requires_grad_()
        value = sinkhorn_divergence(z, drift.barycenter.points, epsilon=0.5, tolerance=1e-9).value
        (slope,) = torch.autograd.grad(value, z)
        assert_close(velocity, -1.5 * len(x) * slope, rtol=0, atol=1e-4)


def test_mutual_drift_contracts_at_the_known_rate():
    """Euler against the closed flow: m_k' = κ(m̄ − m_k), and s_k' = κ(s̄ − s_k) for small ε."""
    kappa, dt, steps, eps = 2.0, 0.1, 5, 0.01
    start = [(-1.0, 0.5), (2.0, 1.5)]
    clouds = [quantiles(50, s, m) for m, s in start]
    support, dispersions = quantiles(50), []
    for _ in range(steps):
        drift = barycenter_drift(clouds, kappa, weights=LAM, epsilon=eps, support=support)
        dispersions.append(drift.barycenter.objective)
        support = drift.barycenter.points
        clouds = [x + dt * v for x, v in zip(clouds, drift.velocities, strict=True)]
    kept = (1 - kappa * dt) ** steps  # Euler's e^{−κt}
    middle = [sum(w * v[i] for w, v in zip(LAM, start, strict=True)) for i in (0, 1)]
    for x, (m, s) in zip(clouds, start, strict=True):
        assert float(x.mean()) == pytest.approx(middle[0] + kept * (m - middle[0]), abs=2e-3)
        deviation = float(x.std(correction=0))
        assert deviation == pytest.approx(middle[1] + kept * (s - middle[1]), rel=0.01)
    # ½W₂² falls as the square of the distances
    ratios = [b / a for a, b in pairwise(dispersions)]
    assert max(abs(ratio - (1 - kappa * dt) ** 2) for ratio in ratios) < 0.02


def test_drift_of_gaussians_at_large_epsilon_is_the_entropic_one():
    """Slopes of T_k and T_self are c/s² with c of oracle 1, each at the same ε."""
    eps, sides = 0.5, (0.5, 1.5)
    clouds = [quantiles(200, s) for s in sides]
    drift = barycenter_drift(clouds, 1.0, weights=LAM, epsilon=eps, support=100)
    bar = entropic_deviation(sides, LAM, eps, "debiased")
    for x, v, s in zip(clouds, drift.velocities, sides, strict=True):
        across, own = (
            oracles.entropic_gaussian_coupling([[s * s]], [[t * t]], eps)[0, 0] for t in (bar, s)
        )
        slope = float((x * v).mean() / x.square().mean())
        assert slope == pytest.approx((across - own) / s**2, abs=0.02)


def test_clouds_of_weight_zero_are_pulled_too():
    x, y = quantiles(20), quantiles(20, 1.0, 4.0)
    drift = barycenter_drift([x, y], 1.0, weights=[1.0, 0.0], epsilon=0.1, support=x)
    assert_close(drift.velocities[0], torch.zeros_like(x), rtol=0, atol=1e-6)
    assert_close(drift.velocities[1], torch.full_like(y, -4.0), rtol=0, atol=1e-3)


# --- what is refused ---------------------------------------------------------------------------

PAIR = humps((-1.0, 0.5), (1.0, 0.8))
COST = PointCloud(GRID[:, None]).dense()
X, Y = quantiles(5), quantiles(6, 2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fixed_barycenter(PAIR, COST, [0.5, 0.6], epsilon=1.0), "sum to one.*1.1"),
        (lambda: fixed_barycenter(PAIR, COST, [1.5, -0.5], epsilon=1.0), "no negative.*-0.5"),
        (lambda: fixed_barycenter(PAIR, COST, [0.2, 0.3, 0.5], epsilon=1.0), r"\(2,\); .*\(3,\)"),
        (lambda: fixed_barycenter(PAIR[:1], COST, epsilon=1.0), "at least two.*found 1"),
        (lambda: fixed_barycenter(PAIR[0], COST, epsilon=1.0), "at least two.*found 1"),
        (
            lambda: fixed_barycenter(PAIR * torch.tensor([[1.0], [2.0]]), COST, epsilon=1.0),
            r"equal totals, a ratio of 1 to the first; found 2 at \(1,\)",
        ),
        (lambda: fixed_barycenter(-PAIR, COST, epsilon=1.0), "negative"),
        (lambda: fixed_barycenter(PAIR[:, 1:], COST, epsilon=1.0), "121"),
        (lambda: fixed_barycenter(PAIR, COST.tril(), epsilon=1.0), "symmetric"),
        (lambda: fixed_barycenter(PAIR, COST[:, :5], epsilon=1.0), r"symmetric.*\(121, 5\)"),
        (
            lambda: fixed_barycenter(PAIR, PointCloud(GRID[:, None], X), epsilon=1.0),
            r"symmetric.*\(121, 5\)",
        ),
        (
            lambda: fixed_barycenter(
                PAIR, COST.masked_fill(COST > 50, torch.inf), epsilon=1.0
            ),
            "finite symmetric",
        ),
        (lambda: fixed_barycenter(PAIR, COST, epsilon=0.0), "positive"),
        (lambda: fixed_barycenter(PAIR, COST), "exactly one of epsilon"),
        (lambda: fixed_barycenter(PAIR, COST, epsilon=1.0, loss="product"), "lebesgue.*product"),
        (lambda: fixed_barycenter(PAIR, COST, epsilon=1.0, anneal=True), "unknown option 'anneal'"),
        (lambda: fixed_barycenter(PAIR, COST, epsilon=1.0, tolerance=0.0), "tolerance"),
        (lambda: fixed_barycenter(PAIR, COST[None], epsilon=1.0), r"one .*\(1, 121, 121\)"),
        (lambda: free_barycenter([X], epsilon=1.0), "at least two inputs; found 1"),
        (lambda: free_barycenter([], epsilon=1.0), "at least two inputs; found 0"),
        (lambda: free_barycenter([X, Y.expand(6, 2)], epsilon=1.0), r"\(5, 1\), \(6, 2\)"),
        (lambda: free_barycenter([X, Y[:0]], epsilon=1.0), r"none empty.*\(0, 1\)"),
        (lambda: free_barycenter([X, Y], epsilon=1.0, support=0), "m >= 1.*found 0"),
        (lambda: free_barycenter([X, Y], epsilon=1.0, support=X[:0]), r"found shape \(0, 1\)"),
        (
            lambda: free_barycenter([X, Y], epsilon=1.0, support=X.expand(5, 2)),
            r"points \(m, 1\).*\(5, 2\)",
        ),
        (lambda: free_barycenter([X, Y], epsilon=1.0, support=X / 0), "x must be finite"),
        (lambda: free_barycenter([X, Y / 0], epsilon=1.0), "finite"),
        (lambda: free_barycenter([X, Y], weights=[0.7, 0.7], epsilon=1.0), "sum to one"),
        (lambda: free_barycenter([X, Y], [None], epsilon=1.0), "masses for each; .*1 masses"),
        (
            lambda: free_barycenter([X, Y], [[1.0] * 5, None], epsilon=1.0),
            r"a ratio of 1 to the first; found 0.2 at \(1,\)",
        ),
        (lambda: free_barycenter([X, Y], epsilon=1.0, loss="lebesgue"), "'product'; .*'lebesgue'"),
        (lambda: barycenter_drift([X, Y], -1.0, epsilon=1.0), "strength.*-1"),
        (lambda: barycenter_drift([X, Y], math.inf, epsilon=1.0), "strength.*inf"),
        (lambda: barycenter_drift([X], 1.0, epsilon=1.0), "at least two inputs"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: fixed_barycenter(PAIR, COST, epsilon=0.1, max_iterations=2, **o),
        lambda **o: free_barycenter([X, Y], epsilon=0.1, max_iterations=1, tolerance=1e-6, **o),
        lambda **o: barycenter_drift(
            [X, Y], 1.0, epsilon=0.1, max_iterations=1, tolerance=1e-6, **o
        ),
    ],
)
def test_what_did_not_converge_says_so(call):
    with pytest.raises(ConvergenceError, match="iterations") as caught:
        call()
    assert "not converged" in statuses(caught.value.partial)
    assert "not converged" in statuses(call(on_failure="return"))


def statuses(result):
    return (result.barycenter if hasattr(result, "barycenter") else result).status


def test_couplings_that_did_not_converge_stop_the_descent(monkeypatch):
    monkeypatch.setattr(barycenter, "sinkhorn", partial(sinkhorn, max_iterations=1))
    options = {"epsilon": 0.01, "support": X, "on_failure": "return"}
    bar = free_barycenter([X, Y], **options)
    assert (bar.iterations, bar.status) == (0, "not converged")
    assert free_barycenter([X, Y], tolerance=9.0, **options).status == "not converged"
    drift = barycenter_drift([X, Y], 1.0, **options)
    assert drift.statuses == ("converged", "not converged")  # the first is the support itself
