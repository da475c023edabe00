"""Distances between rows and the curvature of kernels, against closed forms and laws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from flowscope.errors import InvalidInputError
from flowscope.transport.rows import common_support, curvature, row_wasserstein


def cloud(n, seed, dimension=3):
    x = np.random.default_rng(seed).normal(size=(n, dimension))
    return np.linalg.norm(x[:, None] - x[None], axis=-1)


def laws(n, count, seed, spread=0.5):
    return np.random.default_rng(seed).dirichlet(np.full(n, spread), size=count)


def by_linear_programming(p, q, cost):
    n = len(p)
    equal = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    return linprog(cost.ravel(), A_eq=equal, b_eq=np.concatenate([p, q])).fun


def test_w1_on_a_line_is_the_area_between_the_distribution_functions():
    x = np.sort(np.random.default_rng(0).normal(size=9))
    p, q = laws(9, 2, seed=1)
    area = (np.abs(np.cumsum(p) - np.cumsum(q))[:-1] * np.diff(x)).sum()
    assert_allclose(row_wasserstein(p, q, np.abs(x[:, None] - x)), area, rtol=1e-12)


def test_w2_on_a_line_is_that_of_the_sorted_coupling():
    x = np.sort(np.random.default_rng(2).normal(size=7))
    p, q = laws(7, 2, seed=3)
    level = np.unique(np.concatenate([np.cumsum(p), np.cumsum(q)]))
    level = np.concatenate([[0.0], level[level < 1 - 1e-14], [1.0]])
    middle = (level[1:] + level[:-1]) / 2
    quantile = [x[np.searchsorted(np.cumsum(law), middle).clip(max=6)] for law in (p, q)]
    square = (np.diff(level) * (quantile[0] - quantile[1]) ** 2).sum()
    found = row_wasserstein(p, q, np.abs(x[:, None] - x), order=2)
    assert_allclose(found, np.sqrt(square), rtol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_two_diracs_are_as_far_apart_as_their_points(order):
    d, eye = cloud(6, 4), np.eye(6)
    found = row_wasserstein(eye[:, None], eye[None], d, order=order)
    assert_allclose(found, d, atol=1e-12)


def test_the_discrete_metric_gives_total_variation():
    p, q = laws(12, 5, seed=5), laws(12, 5, seed=6)
    found = row_wasserstein(p, q, 1 - np.eye(12))
    assert_allclose(found, 0.5 * np.abs(p - q).sum(-1), rtol=1e-12)
    assert_allclose(row_wasserstein(p, q, 1 - np.eye(12), order=2) ** 2, found, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_both_orders_agree_with_a_generic_linear_program(order):
    d = cloud(6, 7)
    p, q = laws(6, 2, seed=8)
    expected = by_linear_programming(p, q, d**order) ** (1 / order)
    assert_allclose(row_wasserstein(p, q, d, order=order), expected, rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.sampled_from([1, 2]), peaked=st.booleans())
def test_distances_obey_the_triangle_inequality_and_are_symmetric(seed, order, peaked):
    d = cloud(8, seed)
    p, q, r = laws(8, 3, seed, spread=0.05 if peaked else 1.0)
    pq, qr, pr = (row_wasserstein(a, b, d, order=order) for a, b in ((p, q), (q, r), (p, r)))
    assert pr <= pq + qr + 1e-9
    assert_allclose(row_wasserstein(q, p, d, order=order), pq, atol=1e-9)
    assert row_wasserstein(p, p, d, order=order) == pytest.approx(0, abs=1e-7)


def test_w1_is_linear_along_a_mixture_and_never_above_w2():
    d = cloud(7, 9)
    p, q = laws(7, 2, seed=10)
    whole = row_wasserstein(p, q, d)
    assert_allclose(row_wasserstein(0.75 * p + 0.25 * q, q, d), 0.75 * whole, rtol=1e-9)
    assert whole < row_wasserstein(p, q, d, order=2)


def test_leading_axes_of_rows_and_metrics_are_a_batch():
    d = np.stack([cloud(5, s) for s in (11, 12)])
    p, q = laws(5, 6, seed=13).reshape(3, 2, 5), laws(5, 2, seed=14)
    found = row_wasserstein(p, q, d)
    assert found.shape == (3, 2)
    for place in np.ndindex(3, 2):
        alone = row_wasserstein(p[place], q[place[1]], d[place[1]])
        assert_allclose(found[place], alone, rtol=1e-12)


def test_float32_rows_are_normalised_in_float64():
    z = torch.randn(2, 40, generator=torch.Generator().manual_seed(0))
    rows, d = torch.softmax(z, -1), cloud(40, 15)
    exact = torch.softmax(z.double(), -1)
    assert_allclose(row_wasserstein(rows[0], rows[1], d), row_wasserstein(*exact, d), rtol=1e-5)


def test_common_support_renormalises_and_tells_what_was_kept():
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.0, 0.1, 0.3, 0.6])
    shared = common_support(p, q)
    assert shared.support.tolist() == [False, True, True, False]
    assert_allclose(shared.p, [0, 0.6, 0.4, 0])
    assert_allclose(shared.q, [0, 0.25, 0.75, 0])
    assert_allclose([shared.kept_p, shared.kept_q], [0.5, 0.4])


def test_rows_without_common_support_are_undefined_not_zero():
    shared = common_support([1.0, 0.0], [0.0, 1.0])
    assert shared.p.isnan().all()
    found = curvature(np.eye(2), 1 - np.eye(2), np.array([[0, 1]]))
    assert found.kappa.isnan().all()


def pairs_of(n):
    return np.stack(np.triu_indices(n, 1), -1)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_walk_on_the_complete_graph(n):
    """Rows differ in two entries of 1/(n−1): W₁ = 1/(n−1), κ = (n−2)/(n−1)."""
    walk = (1 - np.eye(n)) / (n - 1)
    found = curvature(walk, 1 - np.eye(n), pairs_of(n), support=np.ones((n, n), bool))
    assert_allclose(found.kappa, (n - 2) / (n - 1), atol=1e-12)


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_lazy_walk_on_the_hypercube(dimension):
    """Ollivier: staying with probability ½, neighbours have κ = 1/N and so has every pair."""
    corner = (np.arange(2**dimension)[:, None] >> np.arange(dimension)) & 1
    d = np.abs(corner[:, None] - corner[None]).sum(-1).astype(float)
    walk = 0.5 * np.eye(len(d)) + 0.5 * (d == 1) / dimension
    found = curvature(walk, d, pairs_of(len(d)), support=np.ones_like(d, bool))
    assert_allclose(found.kappa[found.distance == 1], 1 / dimension, atol=1e-12)
    assert (found.kappa >= 1 / dimension - 1e-12).all()


def test_equal_rows_have_curvature_one_and_the_identity_zero():
    d, everywhere = cloud(6, 16), np.ones((6, 6), bool)
    rows = np.broadcast_to(laws(6, 1, seed=17), (6, 6))
    assert_allclose(curvature(rows, d, pairs_of(6)).kappa, 1.0)
    still = curvature(np.eye(6), d, pairs_of(6), support=everywhere)
    assert_allclose(still.kappa, 0.0, atol=1e-12)


def test_rows_that_look_away_from_each_other_have_negative_curvature():
    d = np.abs(np.subtract.outer([-3.0, -1, 1, 3], [-3.0, -1, 1, 3]))
    rows = np.eye(4)[[0, 0, 3, 3]]
    found = curvature(rows, d, np.array([[1, 2]]), support=np.ones((4, 4), bool))
    assert_allclose(found.kappa, 1 - 6 / 2)


def test_curvature_has_no_unit():
    d, rows = cloud(6, 18), laws(6, 6, seed=19)
    found = [curvature(rows, scale * d, pairs_of(6)).kappa for scale in (1.0, 250.0)]
    assert_allclose(*found, atol=1e-10)


def test_causal_rows_are_compared_on_the_keys_of_the_earlier_one():
    n, d = 6, cloud(6, 20)
    visible = np.tril(np.ones((n, n), bool))
    z = np.where(visible, np.random.default_rng(21).normal(size=(n, n)), -np.inf)
    rows = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    found = curvature(rows, d, np.array([[2, 5]]), support=visible)
    late = rows[5, :3] / rows[5, :3].sum()
    assert_allclose(found.wasserstein, row_wasserstein(rows[2, :3], late, d[:3, :3]))
    assert_allclose(found.kept, rows[5, :3].sum())


def test_pairs_that_say_nothing_are_left_out():
    visible = np.tril(np.ones((4, 4), bool))
    rows = visible / visible.sum(-1, keepdims=True)
    d = cloud(4, 22)
    d[1, 2] = d[2, 1] = 0.0
    found = curvature(rows, d, np.array([[0, 3], [1, 2], [1, 3]]), support=visible)
    assert found.kappa[:2].isnan().all(), "one common key; no distance"
    assert_allclose(found.kappa[2], 1.0)
    rows[3] = [1e-5, 0, 0, 1 - 1e-5]
    assert curvature(rows, d, np.array([[1, 3]]), support=visible).kappa.isnan().all()


@pytest.mark.parametrize(
    ("p", "metric", "order", "words"),
    [
        ([0.5, 0.6], 1 - np.eye(2), 1, "sum to one"),
        ([0.5, 0.5], np.array([[0.0, 1], [2, 0]]), 1, "symmetric"),
        ([0.5, 0.5], np.ones((2, 2)), 1, "zero diagonal"),
        ([0.5, 0.5], -(1 - np.eye(2)), 1, "non-negative"),
        ([0.5, 0.5], 1 - np.eye(3), 1, "same points"),
        ([0.5, 0.5], np.ones(2), 1, "distances of n points"),
        ([0.5, 0.5], 1 - np.eye(2), 3, "order must be 1 or 2"),
    ],
)
def test_what_is_no_row_or_no_metric_is_refused(p, metric, order, words):
    with pytest.raises(InvalidInputError, match=words):
        row_wasserstein(p, [0.5, 0.5], metric, order=order)
