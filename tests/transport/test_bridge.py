"""Bridges between clouds: Gaussian closed forms on grids, laws of the process, rates."""

import math
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from tests.transport.hard_cases import contraction, hard_cases
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import PointCloud, exact, sinkhorn
from flowscope.transport.bridge import Bridge, bridge_path, schroedinger_bridge

EPSILON = 0.5
TIMES = [0.1, 0.5, 0.85]


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def gaussian_grid(mean, variance, reach=8.0, count=241):
    """Points and masses on a line whose sums are integrals against N(mean, variance)."""
    z = torch.linspace(-reach, reach, count, dtype=torch.float64)
    mass = torch.exp(-(z**2) / 2)
    return (mean + math.sqrt(variance) * z)[:, None], mass / mass.sum()


def gaussian_ends(first=(0.0, 1.0), second=(0.0, 0.49), epsilon=EPSILON):
    (x, a), (y, b) = gaussian_grid(*first), gaussian_grid(*second)
    return schroedinger_bridge(x, y, a, b, epsilon=epsilon, tolerance=1e-11)


@pytest.fixture(scope="module")
def gaussian():
    return gaussian_ends((-0.3, 1.0), (0.5, 0.49))


@pytest.fixture(scope="module")
def cloudy():
    """Twenty points to thirty in the plane, uneven masses of total three."""
    a, b = normal(2, 20).exp(), normal(3, 30).exp()
    return schroedinger_bridge(
        normal(0, 20, 2),
        0.5 * normal(1, 30, 2) + 1,
        3 * a / a.sum(),
        3 * b / b.sum(),
        epsilon=0.3,
        tolerance=1e-11,
    )


def derivative(function, at, step=1e-4):
    """Central difference of fourth order."""
    near, far = (function(at + k * step) - function(at - k * step) for k in (1, 2))
    return (8 * near - far) / (12 * step)


# --- Gaussian ends -----------------------------------------------------------------------------


def test_cross_covariance_and_middle_variance_are_the_known_ones():
    bridge = gaussian_ends()
    coupling = bridge.coupling
    x, y = coupling.geometry.x, coupling.geometry.y
    assert float(x[:, 0] @ coupling.apply(y[:, 0])) == pytest.approx(0.493303, abs=1e-6)
    assert float(bridge.mean_covariance(0.5)[1]) == pytest.approx(0.744152, abs=1e-6)


@pytest.mark.parametrize("t", [0.0, *TIMES, 1.0])
def test_moments_are_those_of_the_gaussian_bridge(gaussian, t):
    mean, covariance = gaussian.mean_covariance(t)
    expected = oracles.gaussian_bridge_covariance(1.0, 0.49, EPSILON, t)
    assert_close(
        mean, torch.tensor(oracles.gaussian_bridge_mean([-0.3], [0.5], t)), atol=1e-9, rtol=0
    )
    assert_close(covariance, torch.tensor(expected), atol=1e-9, rtol=0)


@pytest.mark.parametrize("t", [0.0, *TIMES])
def test_drift_is_linear_with_the_closed_slope(gaussian, t):
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    slope = oracles.gaussian_bridge_drift_slope(1.0, 0.49, EPSILON, t)
    mean = (1 - t) * -0.3 + t * 0.5
    assert_close(gaussian.drift(t, z), slope * (z - mean) + 0.8, atol=1e-8, rtol=0)


def test_drift_slope_obeys_riccati(gaussian):
    def slope(t):
        low, high = gaussian.drift(t, [[-1.0], [1.0]])
        return float(high - low) / 2

    for t in TIMES:
        assert derivative(slope, t, 1e-3) + slope(t) ** 2 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("t", TIMES)
def test_density_is_the_gaussian_one(gaussian, t):
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    variance = float(oracles.gaussian_bridge_covariance(1.0, 0.49, EPSILON, t)[0, 0])
    law = torch.distributions.Normal((1 - t) * -0.3 + t * 0.5, math.sqrt(variance))
    # potentials are known to the marginal error over the mass there, 1e-11 / 1e-5
    assert_close(gaussian.log_density(t, z[:, None]), law.log_prob(z), atol=1e-6, rtol=0)


def test_bridge_is_not_the_geometric_mixture():
    # theory §2: N(∓a, 1), ε = 2; the geometric mixture of the end laws has variance 1.
    bridge = gaussian_ends((-1.5, 1.0), (1.5, 1.0), epsilon=2.0)
    assert float(bridge.mean_covariance(0.5)[1]) == pytest.approx(1.207107, abs=1e-6)


# --- laws of the process -----------------------------------------------------------------------


def test_density_is_the_mixture_over_all_pairs(cloudy):
    t, z, coupling = 0.3, normal(5, 7, 2), cloudy.coupling
    x, y = coupling.geometry.x, coupling.geometry.y
    centres = (1 - t) * x[:, None] + t * y
    variance = t * (1 - t) * 0.3
    square = (z[:, None, None] - centres).square().sum(-1)
    gaussians = torch.exp(-square / (2 * variance)) / (2 * math.pi * variance)
    mixture = (coupling.matrix / 3 * gaussians).sum((-2, -1))
    assert_close(cloudy.log_density(t, z), mixture.log(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("t", TIMES)
def test_score_is_the_slope_of_the_log_density(cloudy, t):
    z = normal(6, 5, 2).requires_grad_()
    (slope,) = torch.autograd.grad(cloudy.log_density(t, z).sum(), z)
    assert_close(cloudy.score(t, z.detach()), slope, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("t", TIMES)
def test_drift_is_velocity_plus_half_epsilon_score(cloudy, t):
    z = normal(7, 6, 2)
    both = cloudy.velocity(t, z) + 0.15 * cloudy.score(t, z)
    assert_close(cloudy.drift(t, z), both, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("t", TIMES)
def test_velocity_carries_the_density(cloudy, t):
    z = 0.5 + 0.5 * normal(8, 6, 2)

    def density(t, z):
        return cloudy.log_density(t, z).exp()

    def flux(z, axis):
        return density(t, z) * cloudy.velocity(t, z)[:, axis]

    rate = derivative(lambda s: density(s, z), t)
    unit = torch.eye(2, dtype=torch.float64)
    divergence = sum(derivative(lambda s, k=k: flux(z + s * unit[k], k), 0.0) for k in (0, 1))
    assert float(rate.abs().max()) > 0.05  # the law does move there
    assert_close(rate, -divergence, atol=1e-7, rtol=0)


def test_drift_is_the_slope_of_a_heat_flow(cloudy):
    # h solves the backward heat equation, so φ = ε log h has ∂_tφ + ½|∇φ|² + ½εΔφ = c(t), here
    # with the normaliser of the Gaussian left out: c = −½dε/(1−t).
    t, z, e = 0.4, normal(9, 4, 2), 0.3
    log_h = cloudy.forward().log_h
    y = cloudy.coupling.geometry.y

    def potential(t, z):
        spread = torch.tensor((1 - t) * e, dtype=torch.float64)
        return e * PointCloud(z, y).soft_rows(log_h, spread)

    unit = torch.eye(2, dtype=torch.float64)
    drift = cloudy.drift(t, z)
    laplacian = sum(
        derivative(lambda s, k=k: cloudy.drift(t, z + s * unit[k])[:, k], 0.0) for k in (0, 1)
    )
    residual = derivative(lambda s: potential(s, z), t) + (drift**2).sum(-1) / 2 + e * laplacian / 2
    assert_close(residual, torch.full_like(residual, -e / (1 - t)), atol=1e-7, rtol=0)


def test_diffusion_started_from_the_first_law_reaches_the_second(cloudy):
    # Euler–Maruyama, 4,000 paths, fixed seed: within 4 standard errors. The last step lands on the
    # conditional mean of the end and adds εh of noise; its bias, like Euler's, is of order h.
    count, steps, e = 4000, 200, 0.3
    generator = torch.Generator().manual_seed(11)
    z, h = cloudy.sample(0.0, count, generator), 1 / steps
    for k in range(steps):
        noise = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        z = z + h * cloudy.drift(k * h, z) + math.sqrt(e * h) * noise
    mean, covariance = cloudy.mean_covariance(1.0)
    spread = covariance.diagonal()
    assert bool(((z.mean(0) - mean).abs() < 4 * (spread / count).sqrt()).all())
    error = torch.sqrt((spread[:, None] * spread + covariance**2) / count)
    assert bool(((torch.cov(z.T) - covariance).abs() < 4 * error + 2 * h * e).all())


@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
def test_samples_have_the_exact_moments(cloudy, t):
    count = 20_000
    z = cloudy.sample(t, count, torch.Generator().manual_seed(12))
    mean, covariance = cloudy.mean_covariance(t)
    spread = covariance.diagonal()
    assert bool(((z.mean(0) - mean).abs() < 4 * (spread / count).sqrt()).all())
    # a fourth moment at most five times the Gaussian one: 6 standard errors of a Gaussian
    error = torch.sqrt((spread[:, None] * spread + covariance**2) / count)
    assert bool(((torch.cov(z.T) - covariance).abs() < 6 * error).all())


def test_samples_are_repeatable_and_start_on_the_points(cloudy):
    draws = [cloudy.sample(0.0, 50, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*draws)
    apart = (draws[0][:, None] - cloudy.coupling.geometry.x).abs().amax(-1).amin(-1)
    assert float(apart.max()) == 0


@pytest.mark.parametrize("t", TIMES)
def test_the_bridge_back_is_the_bridge_in_reversed_time(cloudy, t):
    c, z = cloudy.coupling, normal(10, 5, 2)
    back = schroedinger_bridge(c.geometry.y, c.geometry.x, c.b, c.a, epsilon=0.3, tolerance=1e-11)
    for other in (back, cloudy.reversed()):
        for mine, theirs in zip(
            cloudy.mean_covariance(t), other.mean_covariance(1 - t), strict=True
        ):
            assert_close(mine, theirs, atol=1e-9, rtol=0)
        assert_close(cloudy.log_density(t, z), other.log_density(1 - t, z), atol=1e-9, rtol=0)
        assert_close(cloudy.velocity(t, z), -other.velocity(1 - t, z), atol=1e-8, rtol=0)


# --- forward operator --------------------------------------------------------------------------


def test_forward_operator_is_stochastic_and_carries_a_to_b(cloudy):
    forward, c = cloudy.forward(), cloudy.coupling
    assert_close(forward.matrix.sum(-1), torch.ones(20, dtype=torch.float64), atol=1e-14, rtol=0)
    assert_close(forward.push(c.a), c.b, atol=1e-10, rtol=0)
    assert_close(forward.matrix, c.matrix / c.a[:, None], atol=1e-10, rtol=0)


def test_forward_products_are_those_of_its_matrix(cloudy):
    forward = cloudy.forward()
    v, w = normal(13, 30, 3), normal(14, 20)
    assert_close(forward.apply(v), forward.matrix @ v, atol=1e-12, rtol=0)
    assert_close(forward.apply(v[:, 0]), forward.matrix @ v[:, 0], atol=1e-12, rtol=0)
    assert_close(forward.push(w), forward.matrix.T @ w, atol=1e-12, rtol=0)


def test_forward_is_stochastic_before_convergence_and_from_starts_without_mass():
    a = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    bridge = schroedinger_bridge(
        normal(15, 3, 2), normal(16, 4, 2), a, epsilon=0.05, max_iterations=1, on_failure="return"
    )
    assert bridge.coupling.status == "not converged"
    sums = bridge.forward().apply(torch.ones(4, dtype=torch.float64))
    assert_close(sums, torch.ones(3, dtype=torch.float64), atol=1e-13, rtol=0)
    assert bool(bridge.drift(0.5, normal(17, 3, 2)).isfinite().all())


def test_drift_at_the_start_points_to_the_conditional_mean(cloudy):
    x, y = cloudy.coupling.geometry.x, cloudy.coupling.geometry.y
    assert_close(cloudy.drift(0.0, x), cloudy.forward().apply(y) - x, atol=1e-11, rtol=0)


def test_drift_far_away_and_close_to_the_end_is_a_number(cloudy):
    z, left = torch.tensor([[1e6, 0.0], [0.0, -1e6]], dtype=torch.float64), 1e-9
    y = cloudy.coupling.geometry.y
    nearest = y[torch.cdist(z, y, compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)]
    drift = cloudy.drift(1 - left, z)
    assert_close(drift, (nearest - z) / (1 - (1 - left)), atol=0, rtol=1e-12)


# --- limits and invariances --------------------------------------------------------------------


def test_small_noise_gives_the_least_cost_coupling():
    x, y = normal(18, 12, 2), normal(19, 12, 2) + 1
    epsilon = 2e-3
    bridge = schroedinger_bridge(x, y, epsilon=epsilon, tolerance=1e-9)
    best = exact(PointCloud(x, y))
    assert 0 <= float(bridge.coupling.cost - best.cost) <= epsilon * math.log(12)
    assert_close(bridge.coupling.matrix, best.matrix, atol=1e-3, rtol=0)
    # along a line of the exact coupling the drift is its displacement
    middle = (x + 12 * best.matrix @ y) / 2
    assert_close(bridge.drift(0.5, middle), 12 * best.matrix @ y - x, atol=1e-2, rtol=0)


def test_much_noise_gives_the_product():
    bridge = schroedinger_bridge(normal(20, 6, 2), normal(21, 5, 2), epsilon=1e6, tolerance=1e-12)
    assert_close(bridge.coupling.matrix, torch.full((6, 5), 1 / 30).double(), atol=1e-6, rtol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.95), st.floats(0.1, 3.0))
def test_a_moved_frame_moves_everything_with_it(seed, t, epsilon):
    # X_t → QX_t + s + t v turns drift and velocity and adds v
    x, y, z = normal(seed, 5, 2), normal(seed + 1, 4, 2), normal(seed + 2, 3, 2)
    Q = torch.linalg.qr(normal(seed + 3, 2, 2))[0]
    s, v = normal(seed + 4, 2, 2)
    plain = schroedinger_bridge(x, y, epsilon=epsilon, tolerance=1e-11)
    moved = schroedinger_bridge(x @ Q.T + s, y @ Q.T + s + v, epsilon=epsilon, tolerance=1e-11)
    image = z @ Q.T + s + t * v
    options = {"atol": 1e-7, "rtol": 1e-7}
    assert_close(moved.log_density(t, image), plain.log_density(t, z), **options)
    assert_close(moved.drift(t, image), plain.drift(t, z) @ Q.T + v, **options)
    assert_close(moved.velocity(t, image), plain.velocity(t, z) @ Q.T + v, **options)


def test_single_precision_points_give_the_same_bridge(cloudy):
    c, z = cloudy.coupling, normal(22, 4, 2)
    x, y, a, b = (w.float() for w in (c.geometry.x, c.geometry.y, c.a, c.b))
    single = schroedinger_bridge(x, y, a, b, epsilon=0.3, tolerance=1e-5)
    # potentials agree to the tolerance over the least mass, about 1e-3
    assert_close(single.drift(0.5, z.float()), cloudy.drift(0.5, z), atol=2e-3, rtol=0)


def test_relative_epsilon_is_in_units_of_the_median_cost():
    x, y = normal(23, 9, 2), normal(24, 9, 2)
    bridge = schroedinger_bridge(x, y, relative_epsilon=0.1)
    assert bridge.epsilon == pytest.approx(0.1 * float(torch.cdist(x, y).square().median()) / 2)


class _Largest(TorchDispatchMode):
    """Remember the most numbers that any tensor made meanwhile holds."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.size = max(self.size, out.untyped_storage().nbytes() // out.element_size())
        return out


def test_no_method_holds_all_pairs():
    n, m, p = 1500, 2500, 40
    bridge = schroedinger_bridge(normal(25, n, 2), normal(26, m, 2), epsilon=1.0)
    z = normal(27, p, 2)
    with _Largest() as seen:
        bridge.log_density(0.5, z)
        bridge.velocity(0.5, z)
        bridge.mean_covariance(0.5)
        bridge.sample(0.5, 1000, torch.Generator().manual_seed(0))
        bridge.forward().push(bridge.coupling.a)
    assert seen.size <= 2**20 < n * m


# --- the iteration behind it -------------------------------------------------------------------


@pytest.mark.parametrize(("c", "sweeps"), [(1.0, 6), (3.0, 30)])
def test_plain_sweeps_contract_at_birkhoffs_rate(c, sweeps):
    points = torch.tensor([[0.0], [math.sqrt(2 * c)]], dtype=torch.float64)  # costs 0 and c
    start = torch.zeros(2), torch.tensor([0.4, -0.4], dtype=torch.float64)
    errors = []
    for most in (sweeps, sweeps + 1):
        bridge = schroedinger_bridge(
            points,
            points,
            epsilon=1.0,
            tolerance=1e-15,
            max_iterations=most,
            acceleration=None,
            anneal=False,
            initial=start,
            on_failure="return",
        )
        errors.append(float(bridge.coupling.marginal_error))
    rate = oracles.two_point_sinkhorn_rate(c, 1.0)
    assert errors[1] / errors[0] == pytest.approx(rate, rel=1e-3)
    assert c != 1.0 or rate == pytest.approx(0.21355, abs=1e-5)


def test_acceleration_pays_on_ten_hard_cases():
    # Points, where nothing but Anderson helps: a small stored matrix also gets Newton steps. The
    # plain sweeps, the same on both, are made on the matrix, which is faster.
    gains = []
    for case in hard_cases():
        cloud, options = PointCloud(case.x, case.y), {"epsilon": case.epsilon, "tolerance": 1e-9}
        fast = sinkhorn(cloud, case.a, case.b, **options)
        plain = sinkhorn(
            cloud.dense(), case.a, case.b, acceleration=None, max_iterations=30_000, **options
        )
        assert contraction(fast) > 0.99, case.name
        gains.append(int(plain.iterations) / int(fast.iterations))
    assert min(gains) >= 1 / 1.1
    assert median(gains) >= 3


def layers(d, count=6, n=60):
    """Tokens over layers: each keeps most of its velocity."""
    x, v = normal(30, n, d), 0.1 * normal(31, n, d)
    clouds = [x]
    for k in range(count - 1):
        v = 0.99 * v + 0.003 * normal(32 + k, n, d)
        clouds.append(clouds[-1] + v)
    return clouds


@pytest.mark.parametrize("d", [4, 16])
def test_a_path_of_bridges_starts_warm_and_ends_the_same(d):
    clouds, options = layers(d), {"relative_epsilon": 0.02}
    warm = bridge_path(clouds, **options)
    cold = [schroedinger_bridge(*ends, **options) for ends in pairwise(clouds)]
    assert len(warm) == 5
    later, afresh = (sum(int(b.coupling.iterations) for b in path[1:]) for path in (warm, cold))
    assert later <= 0.75 * afresh
    for one, other in zip(warm, cold, strict=True):
        assert one.coupling.status == "converged"
        # both are within a marginal error of 1e-3 of one coupling
        assert float((one.coupling.matrix - other.coupling.matrix).abs().sum()) < 0.1


def test_a_constant_velocity_is_foreseen():
    # x → x + Mx → x + 2Mx, M symmetric: the start is right to second order. Measured sweeps: 275
    # for the first bridge, 23 for the next, 81 from its potentials as they are.
    x, options = normal(40, 50, 3), {"relative_epsilon": 0.02, "tolerance": 1e-5}
    v = x * torch.tensor([0.06, -0.03, 0.09], dtype=torch.float64)
    clouds = [x, x + v, x + 2 * v]
    first, second = bridge_path(clouds, **options)
    carried = schroedinger_bridge(*clouds[1:], initial=first.potentials, **options)
    sweeps = [int(b.coupling.iterations) for b in (second, carried, first)]
    assert 2 * sweeps[0] < sweeps[1]
    assert 2 * sweeps[1] < sweeps[2]


def test_potentials_of_a_neighbour_start_a_bridge():
    x, y = normal(33, 40, 3), normal(34, 40, 3)
    options = {"epsilon": 0.05, "tolerance": 1e-9}
    first = schroedinger_bridge(x, y, **options)
    again = schroedinger_bridge(x, y, initial=first.potentials, **options)
    assert int(again.coupling.iterations) <= 2 < int(first.coupling.iterations)


# --- input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("method", ["drift", "velocity", "score", "log_density"])
def test_a_time_out_of_range_is_refused(cloudy, method, t):
    with pytest.raises(InvalidInputError, match="time must lie in"):
        getattr(cloudy, method)(t, [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("method", "t"),
    [("drift", 1.0), ("velocity", 0.0), ("velocity", 1.0), ("score", 0.0), ("log_density", 1.0)],
)
def test_atoms_are_refused(cloudy, method, t):
    with pytest.raises(InvalidInputError, match="atoms"):
        getattr(cloudy, method)(t, [[0.0, 0.0]])


@pytest.mark.parametrize("t", [-0.1, 1.1])
def test_moments_and_draws_refuse_such_times_too(cloudy, t):
    with pytest.raises(InvalidInputError, match="time must lie in"):
        cloudy.mean_covariance(t)
    with pytest.raises(InvalidInputError, match="time must lie in"):
        cloudy.sample(t, 1, torch.Generator())


@pytest.mark.parametrize("points", [[[0.0]], [0.0, 0.0], [[0.0, 0.0, 0.0]]])
def test_points_of_another_dimension_are_refused(cloudy, points):
    with pytest.raises(InvalidInputError, match="points must have shape"):
        cloudy.drift(0.5, points)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": None}, "exactly one of epsilon"),
        ({"kernel": "dense"}, "kernel must be"),
        ({"rank": 3}, "kernel must be"),
        ({"kernel": "nystrom", "rank": 10}, "rank must lie"),
        ({"x": np.zeros((2, 3, 2))}, "one cloud each"),
        ({"y": np.zeros((3, 1))}, "one dimension"),
        ({"a": [0.5, 0.5, 0.5]}, "equal totals"),
        ({"nonsense": 1}, "unknown option"),
    ],
)
def test_bad_problems_are_refused(change, message):
    good = {"x": np.eye(3, 2), "y": np.ones((3, 2)), "epsilon": 1.0}
    with pytest.raises(InvalidInputError, match=message):
        schroedinger_bridge(**{**good, **change})


def test_a_coupling_of_another_cost_is_refused():
    with pytest.raises(InvalidInputError, match="cost ½"):
        Bridge(coupling=sinkhorn([[0.0, 1.0]], epsilon=1.0))


def test_wrong_vectors_and_counts_are_refused(cloudy):
    with pytest.raises(InvalidInputError, match="30 ends"):
        cloudy.forward().apply(torch.ones(20))
    with pytest.raises(InvalidInputError, match="20 starts"):
        cloudy.forward().push(torch.ones(30))
    with pytest.raises(InvalidInputError, match="count"):
        cloudy.sample(0.5, 0, torch.Generator())


@pytest.mark.parametrize("clouds", [[np.eye(2)], [np.eye(2), np.eye(3, 2)]])
def test_a_path_needs_two_clouds_of_the_same_points(clouds):
    with pytest.raises(InvalidInputError, match="clouds must be two"):
        bridge_path(clouds, epsilon=1.0)


def test_a_bridge_that_did_not_converge_raises_with_what_it_reached():
    with pytest.raises(ConvergenceError) as caught:
        schroedinger_bridge(
            normal(35, 30, 2), normal(36, 30, 2), epsilon=0.01, tolerance=1e-9, max_iterations=3
        )
    assert caught.value.partial.status == "not converged"
