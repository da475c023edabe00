"""Low-rank kernels: laws of the approximation, lost positivity, and errors that are told."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from flowscope.errors import ConvergenceError, FlowscopeError, InvalidInputError
from flowscope.transport import PointCloud, sinkhorn
from flowscope.transport.bridge import schroedinger_bridge
from flowscope.transport.nystrom import NystromCloud, nystrom_coupling


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def cloud(seed, n, m, d):
    return PointCloud(normal(seed, n, d), 0.7 * normal(seed + 1, m, d) + 0.5)


def gaussian(x, y, epsilon):
    return torch.exp(-(x[..., :, None, :] - y[..., None, :, :]).square().sum(-1) / (2 * epsilon))


def low_rank(geometry, epsilon):
    X, Y = geometry.factors(torch.tensor(epsilon, dtype=torch.float64))
    return X @ Y.mT


def column_error(coupling):
    """Marginal error from the dense matrix: an independent route."""
    matrix = coupling.matrix
    off = (matrix.sum(-2) - coupling.b).abs().sum() + (matrix.sum(-1) - coupling.a).abs().sum()
    return float(off / coupling.a.sum())


# --- the kernel --------------------------------------------------------------------------------


def test_kernel_is_the_nystrom_formula():
    geometry = NystromCloud(cloud(0, 40, 30, 2), rank=12)
    x, y, r = geometry.cloud.x, geometry.cloud.y, geometry.landmarks
    K = gaussian(r, r, 0.8)
    formula = gaussian(x, r, 0.8) @ torch.linalg.solve(K, gaussian(r, y, 0.8))
    assert_close(low_rank(geometry, 0.8), formula, atol=1e-8, rtol=0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.floats(0.05, 20.0))
def test_no_pair_misses_by_more_than_the_bound(seed, rank, epsilon):
    geometry = NystromCloud(cloud(seed, 25, 20, 2), rank=rank)
    e = torch.tensor(epsilon, dtype=torch.float64)
    x, y = geometry.cloud.x, geometry.cloud.y
    error = (low_rank(geometry, epsilon) - gaussian(x, y, epsilon)).abs()
    missing = [(1 - F.square().sum(-1)).clamp(min=0) for F in geometry.factors(e)]
    assert bool((error <= (missing[0][:, None] * missing[1]).sqrt() + 1e-7).all())
    assert float(error.max()) <= float(geometry.bound(e)) + 1e-7
    largest, negative = geometry.sampled_error(e)  # 25 × 20 pairs: the sample is all of them
    K = low_rank(geometry, epsilon)
    assert_close(largest, error.max(), atol=1e-12, rtol=0)
    assert_close(negative, -K[K < 0].sum() / K.abs().sum(), atol=1e-12, rtol=0)


def test_all_points_as_landmarks_give_the_kernel():
    geometry = NystromCloud(cloud(1, 15, 12, 2), rank=27)
    expected = gaussian(geometry.cloud.x, geometry.cloud.y, 0.5)
    assert_close(low_rank(geometry, 0.5), expected, atol=1e-7, rtol=0)


def test_error_falls_with_the_rank():
    e = torch.tensor(1.0, dtype=torch.float64)
    bounds = [float(NystromCloud(cloud(2, 200, 200, 2), rank=R).bound(e)) for R in (5, 20, 60, 150)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 0.1
    assert bounds[-1] < 1e-5


def test_landmarks_are_farthest_points():
    line = torch.linspace(0, 8, 9, dtype=torch.float64)[:, None]
    landmarks = NystromCloud(PointCloud(line), rank=5).landmarks[:, 0]
    assert landmarks.tolist() == [4, 0, 8, 2, 6]


def test_repeated_points_do_no_harm():
    points = normal(3, 6, 2).repeat(5, 1)
    geometry = NystromCloud(PointCloud(points), rank=20)
    expected = gaussian(points, points, 0.5)
    assert_close(low_rank(geometry, 0.5), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize(("n", "m", "rank"), [(300, 200, 30), (5, 4, 1), (20_000, 10, 1000)])
def test_default_rank_is_a_tenth_up_to_a_thousand(n, m, rank):
    assert NystromCloud(PointCloud(normal(4, n, 1), normal(5, m, 1))).rank == rank


def test_default_landmarks_serve_both_clouds():
    # far clouds: a landmark set from one of them alone could not
    x = normal(6, 100, 2)
    geometry = NystromCloud(PointCloud(x, normal(7, 100, 2) + 30), rank=80)
    assert float(geometry.bound(torch.tensor(1.0, dtype=torch.float64))) < 1e-2


# --- as a geometry -----------------------------------------------------------------------------


def test_reductions_are_those_of_the_low_rank_matrix():
    geometry = NystromCloud(cloud(8, 30, 25, 2), rank=20)
    e = torch.tensor(2.0, dtype=torch.float64)
    phi, psi, v = 0.1 * normal(9, 30), 0.1 * normal(10, 25), normal(11, 25, 3)
    K = low_rank(geometry, 2.0)
    weights = phi.exp()[:, None] * K * psi.exp()
    assert_close(geometry.product(phi, psi, e, v), weights @ v)
    assert_close(geometry.expected(phi, psi, e), (geometry.dense() * weights).sum(-1))
    assert_close(geometry.soft_rows(psi, e), (K @ psi.exp()).log())
    assert_close(geometry.transposed().soft_rows(phi, e), (K.T @ phi.exp()).log())
    kernel = geometry.flat().kernel(phi[None], psi[None], e[None])
    w, u = v[:, 0].exp(), phi.exp()
    assert_close(kernel.rows(w[None])[0], weights @ w)
    assert_close(kernel.columns(u[None])[0], weights.T @ u)


def test_minimum_is_soft_and_within_log_m_of_the_least():
    exact = cloud(12, 30, 25, 2)
    e, psi = torch.tensor([2.0], dtype=torch.float64), 0.1 * normal(13, 1, 25)
    least = exact.flat().row_minimum(psi, e)
    soft = NystromCloud(exact, rank=50).flat().row_minimum(psi, e)
    assert bool((soft <= least + 1e-6).all())
    assert bool((soft >= least - math.log(25) - 1e-6).all())


def test_a_batch_is_its_problems():
    x, y = normal(14, 2, 30, 2), normal(15, 2, 25, 2) + 0.5
    options = {"epsilon": 2.0, "tolerance": 1e-9}
    both = sinkhorn(NystromCloud(PointCloud(x, y), rank=30), **options)
    for k in (0, 1):
        one = sinkhorn(NystromCloud(PointCloud(x[k], y[k]), rank=30), **options)
        assert_close(both.f[k], one.f, atol=1e-7, rtol=0)
    shared = NystromCloud(PointCloud(x[0], y[0]), rank=30)
    masses = normal(16, 2, 30).exp()
    wide = sinkhorn(shared, masses / masses.sum(-1, keepdim=True), **options)
    assert wide.f.shape == (2, 30)


def test_a_product_costs_the_sum_of_the_sides_times_the_rank():
    n, m, R = 900, 700, 40
    geometry = NystromCloud(cloud(17, n, m, 3), rank=R).flat()
    e = torch.tensor([20.0], dtype=torch.float64)
    kernel = geometry.kernel(torch.zeros(1, n).double(), torch.zeros(1, m).double(), e)
    with FlopCounterMode(display=False) as count:
        kernel.rows(torch.ones(1, m, dtype=torch.float64))
        kernel.columns(torch.ones(1, n, dtype=torch.float64))
    assert count.get_total_flops() == 4 * (n + m) * R  # the exact kernel: 4nm(d+3)


# --- couplings ---------------------------------------------------------------------------------


def test_a_smooth_problem_is_solved_in_low_rank():
    exact = cloud(20, 2000, 2000, 2)
    found = nystrom_coupling(exact, relative_epsilon=0.5, tolerance=1e-6)
    assert found.kernel == "nystrom"
    assert found.rank == 200
    assert found.kernel_error <= found.kernel_bound < 1e-2
    # reported is the error on the exact kernel, and it is the true one
    assert float(found.coupling.marginal_error) == found.exact_error <= 1e-6
    assert found.exact_error == pytest.approx(column_error(found.coupling), rel=1e-3)
    plain = sinkhorn(exact, relative_epsilon=0.5, tolerance=1e-6)
    # two couplings within 1e-6 of their marginals: potentials agree to that over the least scaling
    difference = found.coupling.matrix - plain.matrix
    assert float(difference.abs().sum()) < 1e-5


@pytest.mark.parametrize(
    ("relative", "rank", "seen"),
    [(0.02, 200, "on the sample"), (0.002, 20, "in a product")],
)
def test_lost_positivity_is_seen_and_ends_in_the_exact_kernel(relative, rank, seen):
    exact = cloud(22, 600, 600, 2)
    found = nystrom_coupling(exact, relative_epsilon=relative, rank=rank)
    assert found.kernel == "exact (positivity lost)"
    assert (found.negative_share > 1e-3) == (seen == "on the sample")
    assert found.kernel_error > 0.1
    assert math.isnan(found.low_rank_error)
    plain = sinkhorn(exact, relative_epsilon=relative)
    assert torch.equal(found.coupling.f, plain.f)  # and ε is the one asked for
    assert torch.equal(found.coupling.epsilon, plain.epsilon)


def test_negative_weights_of_more_than_the_tolerance_are_lost_positivity():
    # all sums are positive here: the sweeps would go through, and the exact kernel go on from them
    exact, options = cloud(40, 2000, 2000, 3), {"relative_epsilon": 0.5}
    loose = nystrom_coupling(exact, **options)
    assert loose.kernel == "nystrom"
    assert loose.negative_share > 1e-9
    tight = nystrom_coupling(exact, tolerance=1e-9, **options)
    assert tight.kernel == "exact (positivity lost)"


def test_a_sum_that_is_not_positive_raises():
    geometry = NystromCloud(cloud(22, 100, 100, 2), rank=20).flat()
    e = torch.tensor([0.1], dtype=torch.float64)
    X, Y = geometry.factors(e)
    row, column = divmod(int((X @ Y.mT).argmin()), 100)
    zeros, basis = torch.zeros(1, 100, dtype=torch.float64), torch.eye(100, dtype=torch.float64)
    kernel = geometry.kernel(zeros, zeros, e)
    with pytest.raises(FlowscopeError, match="not positive"):
        kernel.rows(basis[None, column])
    with pytest.raises(FlowscopeError, match="not positive"):
        kernel.columns(basis[None, row])
    # a row without mass has no say
    dead = torch.where(basis[row] > 0, -torch.inf, 0.0)[None]
    others = (X @ Y.mT)[0, :, column] > 0
    others[row] = True
    masked = torch.where(others, dead, -torch.inf)
    assert float(geometry.kernel(masked, zeros, e).rows(basis[None, column])[0, row]) == 0


def test_convergence_within_the_low_rank_kernel_is_not_believed():
    # eight dimensions, ε = the median cost: all entries positive, 3 % off, and sweeps converge.
    exact = cloud(24, 2000, 2000, 8)
    found = nystrom_coupling(exact, relative_epsilon=1.0, rank=100, tolerance=1e-4)
    assert found.negative_share == 0
    assert found.low_rank_error <= 1e-4 < found.exact_error
    assert found.kernel == "exact (kernel error)"
    assert float(found.coupling.marginal_error) <= 1e-4
    assert column_error(found.coupling) <= 1.01e-4
    assert int(found.coupling.iterations) > found.low_rank_iterations > 0


def test_the_bridge_says_which_kernel_it_used():
    x, y = normal(26, 300, 2), normal(27, 300, 2)
    smooth = schroedinger_bridge(x, y, epsilon=5.0, kernel="nystrom", tolerance=1e-6)
    rough = schroedinger_bridge(x, y, epsilon=0.01, kernel="nystrom", rank=10)
    plain = schroedinger_bridge(x, y, epsilon=5.0, tolerance=1e-6)
    assert (smooth.kernel, plain.kernel) == ("nystrom", "exact")
    assert rough.kernel == "exact (positivity lost)"
    z = normal(28, 5, 2)
    assert_close(smooth.drift(0.5, z), plain.drift(0.5, z), atol=1e-5, rtol=0)


def test_masses_and_starts_are_passed_on():
    exact = cloud(29, 200, 150, 2)
    a, b = normal(30, 200).exp(), normal(31, 150).exp()
    a[3], b[5] = 0, 0
    a, b = 2 * a / a.sum(), 2 * b / b.sum()
    options = {"epsilon": 3.0, "tolerance": 1e-9, "rank": 100}
    found = nystrom_coupling(exact, a, b, **options)
    assert found.kernel == "nystrom"
    assert_close(found.coupling.rows, a, atol=1e-12, rtol=0)
    assert column_error(found.coupling) <= 1.01e-9
    start = (found.coupling.f, found.coupling.g)
    again = nystrom_coupling(exact, a, b, initial=start, **options)
    assert again.low_rank_iterations < found.low_rank_iterations


def test_single_precision_points_are_widened():
    points = PointCloud(normal(32, 100, 2).float(), normal(33, 100, 2).float())
    found = nystrom_coupling(points, epsilon=3.0, rank=50, tolerance=1e-8)
    assert found.coupling.f.dtype == torch.float64
    assert found.exact_error <= 1e-8  # out of reach in float32


def test_running_out_of_sweeps_raises_with_what_was_reached():
    exact = cloud(34, 300, 300, 8)
    options = {"relative_epsilon": 1.0, "rank": 60, "tolerance": 1e-12, "max_iterations": 3}
    with pytest.raises(ConvergenceError) as caught:
        nystrom_coupling(exact, **options)
    assert float(caught.value.partial.marginal_error) > 1e-12
    left = nystrom_coupling(exact, on_failure="return", **options)
    assert left.coupling.status == "not converged"
    assert int(left.coupling.iterations) == 4  # three on the low-rank kernel, one on the exact one


# --- input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, -1, 21])
def test_a_rank_beyond_the_points_is_refused(rank):
    with pytest.raises(InvalidInputError, match="rank must lie between 1 and the 20 points"):
        NystromCloud(cloud(35, 10, 10, 2), rank=rank)


def test_another_cost_is_refused():
    with pytest.raises(InvalidInputError, match="exponent 1"):
        NystromCloud(PointCloud(normal(36, 10, 2), exponent=1.0))


def test_a_batch_of_problems_is_refused():
    with pytest.raises(InvalidInputError, match="one problem"):
        nystrom_coupling(PointCloud(normal(37, 2, 10, 2)), epsilon=1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_a_noise_that_is_not_positive_is_refused(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon must be positive"):
        nystrom_coupling(cloud(38, 10, 10, 2), epsilon=epsilon)


def test_unequal_totals_are_refused():
    with pytest.raises(InvalidInputError, match="equal totals"):
        nystrom_coupling(cloud(39, 3, 3, 2), [1.0, 1.0, 1.0], [1.0, 1.0, 2.0], epsilon=1.0)
