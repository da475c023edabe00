"""A cost stored as a matrix and the same cost recomputed from points are one geometry."""

import math
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.transport import CostMatrix, PointCloud, exact, semi_relaxed, sinkhorn, unbalanced
from flowscope.transport import cloud as cloud_module

D = torch.float64


def points(*shape):
    return torch.randn(*shape, dtype=D)


def pair(exponent, n=30, m=20, d=3, batch=(2,), dtype=D):
    cloud = PointCloud(
        points(*batch, n, d).to(dtype), points(*batch, m, d).to(dtype), exponent=exponent
    )
    return cloud, CostMatrix(cloud.dense())


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
def test_the_cost_is_a_power_of_the_distance(exponent):
    x, y = points(4, 2), points(3, 2)
    wanted = (x[:, None] - y).norm(dim=-1) ** exponent / exponent
    assert_close(PointCloud(x, y, exponent=exponent).dense(), wanted)


@pytest.mark.parametrize("tile", [7, 64, 2**20])
@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
def test_every_reduction_of_a_cloud_is_that_of_its_matrix(exponent, tile, monkeypatch):
    # Small tiles make ends that do not divide.
    monkeypatch.setattr(cloud_module, "_TILE", tile)
    cloud, matrix = pair(exponent)
    phi, psi = points(2, 30), points(2, 20)
    epsilon, v = torch.tensor([0.5, 2.0], dtype=D), points(2, 20, 3)
    assert_close(cloud.median(), matrix.median())
    assert (cloud.largest() >= matrix.largest() - 1e-12).all()
    assert_close(cloud.row_minimum(psi, epsilon), matrix.row_minimum(psi, epsilon))
    first, second = (c.kernel(phi, psi, epsilon) for c in (cloud, matrix))
    assert_close(first.rows(v[..., 0]), second.rows(v[..., 0]))
    assert_close(first.columns(phi), second.columns(phi))
    assert_close(cloud.soft_rows(psi, epsilon), matrix.soft_rows(psi, epsilon))
    assert_close(cloud.product(phi, psi, epsilon, v), matrix.product(phi, psi, epsilon, v))
    assert_close(cloud.expected(phi, psi, epsilon), matrix.expected(phi, psi, epsilon))
    assert_close(cloud.transposed().dense(), matrix.dense().mT)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("relative", [0.5, 0.05])
def test_couplings_of_a_cloud_are_those_of_its_matrix(exponent, relative):
    cloud, matrix = pair(exponent)
    options = {"relative_epsilon": relative, "tolerance": 1e-10}
    for solver, more in (
        (sinkhorn, options),
        (unbalanced, options | {"relaxation": 1.0}),
        (semi_relaxed, {"relative_epsilon": relative}),
        (exact, {}),
    ):
        first, second = solver(cloud, **more), solver(matrix, **more)
        v = points(2, 20, 2)
        assert_close(first.matrix, second.matrix, rtol=0, atol=1e-8)
        assert_close(first.cost, second.cost, rtol=1e-7, atol=0)
        assert_close(first.value, second.value, rtol=1e-7, atol=0)
        assert_close(first.apply(v), second.apply(v), rtol=0, atol=1e-8)
        assert_close(first.apply(v[0]), second.apply(v[0]), rtol=0, atol=1e-8)
        assert_close(first.barycentric(v), second.barycentric(v), rtol=0, atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_single_precision_is_double_precision_rounded(exponent, offset):
    # Far from the origin |x|² cancels: clouds must be centred first.
    x, y = points(50, 3) + offset, points(40, 3) + offset
    x, y = x.float(), y.float()
    first = sinkhorn(PointCloud(x, y, exponent=exponent), epsilon=0.2, tolerance=1e-4)
    second = sinkhorn(
        PointCloud(x.double(), y.double(), exponent=exponent), epsilon=0.2, tolerance=1e-10
    )
    assert_close(first.matrix.double(), second.matrix, rtol=0, atol=5e-5)
    assert_close(first.value.double(), second.value, rtol=2e-4, atol=0)
    measured = (first.matrix.double().sum(-2) - 1 / 40).abs().sum()
    assert_close(first.marginal_error.double(), measured, rtol=0, atol=1e-4)


def test_clouds_far_from_each_other_are_still_one_geometry():
    # Centring at one cloud leaves the other far away.
    x, y = points(20, 2), points(20, 2) + 100
    first = sinkhorn(PointCloud(x.float(), y.float()), epsilon=0.5)
    second = sinkhorn(
        PointCloud(x.float().double(), y.float().double()), epsilon=0.5, tolerance=1e-9
    )
    assert_close(first.value.double(), second.value, rtol=1e-5, atol=0)
    measured = (first.matrix.double().sum(-2) - 1 / 20).abs().sum()
    assert_close(first.marginal_error.double(), measured, rtol=0, atol=1e-3)
    assert measured < 2e-3


def test_nothing_of_a_cloud_needs_its_matrix(monkeypatch):
    # But for the median, which is read from a sample of at most 512 points a side.
    form = PointCloud.dense

    def refuse(cloud):
        assert cloud.n < 600, "an n × m matrix was formed"
        return form(cloud)

    cloud = PointCloud(points(600, 2), points(600, 2))
    monkeypatch.setattr(PointCloud, "dense", refuse)
    for coupling in (
        sinkhorn(cloud, epsilon=0.3),
        unbalanced(cloud, epsilon=0.3, relaxation=1.0),
        semi_relaxed(cloud, epsilon=0.3),
    ):
        for read in (coupling.cost, coupling.value, coupling.rows, coupling.columns):
            assert read.isfinite().all()
        assert coupling.barycentric(points(600, 2)).isfinite().all()


CEILING = """
import resource, torch
from flowscope.transport import PointCloud, sinkhorn
torch.set_num_threads(1)
x, y = torch.randn({n}, 2), torch.randn({n}, 2)
small = sinkhorn(PointCloud(x[:50], y[:50]), epsilon=0.5)
small.cost, small.value, small.barycentric(y[:50])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
coupling = sinkhorn(PointCloud(x, y), epsilon=5.0)
coupling.cost, coupling.value, coupling.barycentric(y), coupling.columns
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_stays_far_below_the_matrix():
    n = 6000  # 144 MB as a float32 matrix
    out = subprocess.run(
        [sys.executable, "-c", CEILING.format(n=n)], check=True, capture_output=True, text=True
    )
    assert int(out.stdout) < 4 * n * n / 3


def test_medians_of_large_clouds_are_read_from_a_sample():
    x, y = points(3000, 2), points(2000, 2)
    sampled = PointCloud(x, y).median()
    assert_close(sampled, CostMatrix(PointCloud(x, y).dense()).median(), rtol=0.1, atol=0)


def test_the_median_ignores_masks_and_is_one_a_problem():
    cost = torch.tensor([[[1.0, 2.0, 3.0]], [[math.inf, 7.0, math.inf]]], dtype=D)
    assert_close(CostMatrix(cost).median(), torch.tensor([2.0, 7.0], dtype=D))


def test_clouds_broadcast_their_batches():
    x, y = points(3, 1, 6, 2), points(4, 5, 2)
    whole = sinkhorn(PointCloud(x, y), epsilon=0.5, tolerance=1e-9)
    assert whole.matrix.shape == (3, 4, 6, 5)
    one = sinkhorn(PointCloud(x[2, 0], y[1]), epsilon=0.5, tolerance=1e-9)
    assert_close(whole.matrix[2, 1], one.matrix, rtol=0, atol=1e-8)


def test_products_broadcast_over_axes_that_the_problem_does_not_have():
    coupling = sinkhorn(PointCloud(points(6, 2), points(5, 2)), epsilon=0.5)
    v = points(3, 5, 2)
    assert_close(coupling.apply(v), coupling.matrix @ v)


def test_an_empty_batch_of_clouds_is_an_empty_result():
    coupling = sinkhorn(PointCloud(points(0, 6, 2), points(5, 2)), epsilon=0.5)
    assert coupling.matrix.shape == (0, 6, 5)


@pytest.mark.parametrize("d", [1, 2, 64])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 7), (7, 1)])
def test_single_points(n, m, d):
    coupling = sinkhorn(PointCloud(points(n, d), points(m, d)), epsilon=0.5, tolerance=1e-9)
    assert_close(coupling.matrix, torch.full((n, m), 1 / (n * m), dtype=D))


def test_zero_masses_on_a_cloud():
    a = torch.tensor([0.0, 0.5, 0.5, 0.0], dtype=D)
    x, y = points(4, 2), points(3, 2)
    whole = sinkhorn(PointCloud(x, y), a, epsilon=0.3, tolerance=1e-10)
    part = sinkhorn(PointCloud(x[1:3], y), epsilon=0.3, tolerance=1e-10)
    assert_close(whole.matrix[1:3], part.matrix, rtol=0, atol=1e-9)
    assert_close(whole.matrix.sum(-1), a)
    assert_close(whole.g - whole.g[0], part.g - part.g[0], rtol=0, atol=1e-8)


def test_costs_as_large_as_single_precision_holds():
    # Their sum is not a float32; their median is.
    cost = torch.rand(4, 3)
    coupling = sinkhorn(cost * 3e38, relative_epsilon=0.02)
    wanted = sinkhorn(cost, relative_epsilon=0.02, tolerance=1e-6)
    assert_close(coupling.matrix, wanted.matrix, rtol=0, atol=1e-3, check_dtype=False)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PointCloud([0.0, 1.0]), r"points.*\(2,\)"),
        (lambda: PointCloud(points(3, 2), points(3, 4)), "one dimension"),
        (lambda: PointCloud(points(0, 2), points(3, 2)), r"none empty.*\(0, 2\)"),
        (lambda: PointCloud([[math.inf]]), "x must be finite; found inf"),
        (lambda: PointCloud([[0.0]], [[math.nan]]), "y must be finite; found nan"),
        (lambda: PointCloud([[0.0]], exponent=0.5), "exponent must be at least 1; found 0.5"),
        (lambda: PointCloud([[0.0]], exponent=math.nan), "exponent must be at least 1"),
        (lambda: PointCloud(points(2, 3, 1), points(3, 3, 1)), "broadcast"),
        (lambda: CostMatrix(torch.zeros(3, 0)), r"not empty.*\(3, 0\)"),
        (lambda: CostMatrix(torch.zeros(2, 2, dtype=torch.long)), "floating-point"),
    ],
)
def test_bad_geometries_are_refused(call, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        call()
