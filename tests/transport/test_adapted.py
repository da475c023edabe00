"""Adapted transport against brute force over bicausal couplings, closed forms and the trap."""

import math
from itertools import product

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.transport.adapted import adapted_wasserstein, adapted_wasserstein_gaussian
from flowscope.transport.gaussian import Gaussian, bures_distance
from flowscope.transport.line import wasserstein_1d

A = np.array([[1.0, 0.8], [0.8, 1.5]])
B = np.array([[1.3, -0.5], [-0.5, 1.0]])


def centred(covariance):
    return Gaussian(mean=np.zeros(len(covariance)), covariance=np.asarray(covariance))


def random_tree(seed, d=1, steps=2, n=6):
    """Paths on a small alphabet, so that pasts are shared, with random masses."""
    rng = np.random.default_rng(seed)
    paths = rng.integers(0, 3, size=(n, steps, d)) + 0.5 * rng.integers(0, 2, size=(1, steps, d))
    return paths.astype(float), rng.dirichlet(np.ones(n))


def plain_wasserstein(x, y, a, b, order):
    apart = np.linalg.norm(x[:, None] - y[None], axis=-1) ** order
    return ot.emd2(a, b, apart.sum(-1)) ** (1 / order)


def bicausal_programme(x, y, a, b, order):
    """Two steps as one linear programme over couplings with both causality constraints.

    Causal from x to y: given x₁, the law of x₂ does not depend on y₁, i.e.
    π(x₁, x₂, y₁, ·) = μ(x₂|x₁) π(x₁, ·, y₁, ·); likewise from y to x.
    """
    x, at_x = np.unique(x.reshape(len(x), -1), axis=0, return_inverse=True)
    y, at_y = np.unique(y.reshape(len(y), -1), axis=0, return_inverse=True)
    a, b = np.bincount(at_x.ravel(), a), np.bincount(at_y.ravel(), b)
    n, m = len(x), len(y)
    rows, levels = [], []

    def constrain(row, level):
        rows.append(row.ravel())
        levels.append(level)

    for i in range(n):
        row = np.zeros((n, m))
        row[i] = 1
        constrain(row, a[i])
    for j in range(m):
        row = np.zeros((n, m))
        row[:, j] = 1
        constrain(row, b[j])
    for i, v in product(range(n), np.unique(y[:, 0])):
        siblings, over = x[:, 0] == x[i, 0], y[:, 0] == v
        row = np.zeros((n, m))
        row[i, over] += 1
        row[np.ix_(siblings, over)] -= a[i] / a[siblings].sum()
        constrain(row, 0.0)
    for j, u in product(range(m), np.unique(x[:, 0])):
        siblings, over = y[:, 0] == y[j, 0], x[:, 0] == u
        row = np.zeros((n, m))
        row[over, j] += 1
        row[np.ix_(over, siblings)] -= b[j] / b[siblings].sum()
        constrain(row, 0.0)
    cost = (np.abs(x[:, None] - y[None]) ** order).sum(-1)
    solved = linprog(cost.ravel(), A_eq=np.array(rows), b_eq=np.array(levels), method="highs")
    return solved.fun ** (1 / order)


# --- trees -------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 2.0]))
def test_recursion_is_the_linear_programme_over_bicausal_couplings(seed, order):
    x, a = random_tree(seed, n=8)
    y, b = random_tree(seed + 1, n=7)
    found = adapted_wasserstein(x, y, a, b, order=order, cell=0.0).distance
    assert found == pytest.approx(bicausal_programme(x, y, a, b, order), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("order", [1.0, 2.0])
@pytest.mark.parametrize("gap", [0.5, 1e-6])
def test_early_information_is_far_in_adapted_and_near_in_plain_distance(gap, order):
    # x tells its end at once by ±gap, y not: W_p^p = gap^p, AW_p^p = gap^p + ½·2^p.
    x, y = np.array([[gap, 1.0], [-gap, -1.0]]), np.array([[0.0, 1.0], [0.0, -1.0]])
    found = adapted_wasserstein(x, y, order=order, cell=0.0).distance
    assert found**order == pytest.approx(gap**order + 0.5 * 2**order)
    half = np.full(2, 0.5)
    plain = plain_wasserstein(x[..., None], y[..., None], half, half, order)
    assert plain == pytest.approx(gap)


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([1, 2]), st.sampled_from([1.0, 2.0]))
def test_it_is_a_distance_above_the_plain_one(seed, d, order):
    (x, a), (y, b), (z, c) = (random_tree(seed + i, d=d, steps=3) for i in range(3))

    def adapted(p, q, m, n):
        return adapted_wasserstein(p, q, m, n, order=order, cell=0.0).distance

    forth = adapted(x, y, a, b)
    assert forth >= plain_wasserstein(x, y, a, b, order) - 1e-9
    assert forth == pytest.approx(adapted(y, x, b, a))
    assert adapted(x, x, a, a) == pytest.approx(0, abs=1e-6)
    assert forth <= adapted(x, z, a, c) + adapted(z, y, c, b) + 1e-9


def test_one_step_is_the_plain_distance():
    x, a = random_tree(0, steps=1)
    y, b = random_tree(1, steps=1)
    found = adapted_wasserstein(x, y, a, b, cell=0.0).distance
    assert found == pytest.approx(float(wasserstein_1d(x[:, 0, 0], y[:, 0, 0], a, b, order=2)))


def test_coordinates_that_are_constant_change_nothing():
    # Two dimensions take the network simplex where one takes quantiles: two routes.
    (x, a), (y, b) = random_tree(4, steps=3, n=12), random_tree(5, steps=3, n=12)
    wide = [np.concatenate([p, np.ones_like(p)], -1) for p in (x, y)]
    expected = adapted_wasserstein(x, y, a, b, cell=0.0).distance
    assert adapted_wasserstein(*wide, a, b, cell=0.0).distance == pytest.approx(expected)


def test_time_reversal_changes_it():
    x, y = np.array([[0.1, 1.0], [-0.1, -1.0]]), np.array([[0.0, 1.0], [0.0, -1.0]])
    forward = adapted_wasserstein(x, y, cell=0.0).distance
    backward = adapted_wasserstein(x[:, ::-1].copy(), y[:, ::-1].copy(), cell=0.0).distance
    assert forward == pytest.approx(math.sqrt(2.01))
    assert backward == pytest.approx(0.1)


def test_paths_without_mass_and_the_scale_of_masses_do_not_count():
    (x, a), (y, b) = random_tree(6), random_tree(7)
    expected = adapted_wasserstein(x, y, a, b, cell=0.0).distance
    more = np.concatenate([x, 100 + x])
    masses = np.concatenate([a, 0 * a])
    assert adapted_wasserstein(more, y, 5 * masses, 5 * b, cell=0.0).distance == pytest.approx(
        expected
    )


# --- Gaussian processes ------------------------------------------------------------------------


def nested_two_steps(first, second, n=400):
    """Independent route: conditional laws of step two in closed form, step one on quantiles.

    Given x₁ the second value is N(αx₁, v); W₂² of two conditional laws is (αx₁ − βy₁)² plus
    the squared difference of deviations. Step one is then solved exactly on n quantiles.
    """
    z = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n).numpy()
    z /= z.std()
    points, slopes, deviations = [], [], []
    for S in (first, second):
        points.append(math.sqrt(S[0, 0]) * z)
        slopes.append(S[1, 0] / S[0, 0])
        deviations.append(math.sqrt(S[1, 1] - S[1, 0] ** 2 / S[0, 0]))
    x, y = points
    cost = (x[:, None] - y) ** 2 + (slopes[0] * x[:, None] - slopes[1] * y) ** 2
    cost += (deviations[0] - deviations[1]) ** 2
    return math.sqrt(ot.emd2(np.full(n, 1 / n), np.full(n, 1 / n), cost))


@pytest.mark.parametrize("pair", [(A, B), (A, np.diag([2.0, 0.3])), (4 * A, np.diag([1, 9]) @ B)])
def test_two_step_gaussians_are_the_nested_solution(pair):
    first, second = pair[0], (pair[1] + pair[1].T) / 2
    second = second + 4 * np.eye(2) * (np.linalg.eigvalsh(second)[0] < 0.1)
    found = adapted_wasserstein_gaussian(centred(first), centred(second))
    assert float(found) == pytest.approx(nested_two_steps(first, second), rel=1e-10)


def test_an_antitone_first_step_is_taken_where_it_pays():
    # 1 + αβ < 0: the second step gains more than the first loses.
    first = np.array([[1.0, 3.0], [3.0, 10.0]])
    second = np.array([[1.0, -3.0], [-3.0, 10.0]])
    found = float(adapted_wasserstein_gaussian(centred(first), centred(second)))
    assert found == pytest.approx(2.0)
    assert found == pytest.approx(nested_two_steps(first, second), rel=1e-10)


def test_three_steps_are_the_best_bicausal_gaussian_coupling():
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(2, 3, 3))
    first, second = (f @ f.T + 0.1 * np.eye(3) for f in factors)
    L, M = np.linalg.cholesky(first), np.linalg.cholesky(second)

    def cost(angles):
        # ξ and η white, correlated at equal times only: the joint law of any such coupling.
        R = np.diag(np.cos(angles))
        return np.trace(first) + np.trace(second) - 2 * np.trace(L @ R @ M.T)

    starts = product([0.3, 2.8], repeat=3)
    best = min(minimize(cost, s, method="BFGS", options={"gtol": 1e-9}).fun for s in starts)
    found = adapted_wasserstein_gaussian(centred(first), centred(second))
    assert float(found) == pytest.approx(math.sqrt(best), rel=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_gaussian_adapted_distance_is_above_bures_and_asymmetric_in_time(seed):
    factors = np.random.default_rng(seed).normal(size=(2, 4, 4))
    laws = [centred(f @ f.T + 0.05 * np.eye(4)) for f in factors]
    back = [centred(g.covariance.flip(-1, -2).numpy()) for g in laws]
    forward = adapted_wasserstein_gaussian(*laws)
    assert forward >= bures_distance(*laws) - 1e-12
    assert abs(forward - adapted_wasserstein_gaussian(*back)) > 1e-6


def test_means_batches_and_equal_laws():
    mean = np.array([[0.0, 0.0], [3.0, 4.0]])
    stack = Gaussian(mean=mean, covariance=np.stack([A, A]))
    found = adapted_wasserstein_gaussian(stack, centred(A))
    assert_close(found, torch.tensor([0.0, 5.0], dtype=torch.float64))


def test_gridded_samples_converge_to_the_closed_form_and_raw_ones_do_not():
    rng = np.random.default_rng(0)
    exact = float(adapted_wasserstein_gaussian(centred(A), centred(B)))
    plain = float(bures_distance(centred(A), centred(B)))
    errors = []
    for n in (200, 4000):
        x, y = (rng.multivariate_normal([0, 0], S, n) for S in (A, B))
        errors.append(abs(adapted_wasserstein(x, y).distance - exact) / exact)
    # Stated tolerance: 10 % at 200 paths and 3 % at 4000, two steps.
    assert errors[0] < 0.10
    assert errors[1] < 0.03
    # Without grid each path is its own tree: the recursion gives plain W₂ instead.
    raw = adapted_wasserstein(x[:800], y[:800], cell=0.0)
    assert raw.nodes == ((800, 800), (800, 800))
    assert abs(raw.distance - plain) < 0.1 < abs(raw.distance - exact)


def test_the_default_cell_is_the_one_stated():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(64, 3)), 2 * rng.normal(size=(100, 3))
    both = np.concatenate([p - p.mean(0) for p in (x, y)])
    found = adapted_wasserstein(x, y)
    assert found.cell == pytest.approx(math.sqrt((both**2).mean()) * 64 ** (-1 / 4))
    wide = adapted_wasserstein(x[:, :2, None].repeat(2, -1), y[:, :2, None].repeat(2, -1))
    assert wide.cell == pytest.approx(math.sqrt((both[:, :2] ** 2).mean()) * 64 ** (-1 / 4))


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (np.zeros((4, 2)), np.zeros((4, 3)), {}, r"found \(T, d\) = \(2, 1\) and \(3, 1\)"),
        (np.zeros(4), np.zeros((4, 3)), {}, r"x must be paths .* found \(4,\)"),
        (np.full((2, 2), np.nan), np.zeros((2, 2)), {}, "x must be finite; found nan"),
        (np.zeros((2, 2)), np.zeros((2, 2)), {"order": 0.5}, "order must be .* found 0.5"),
        (np.zeros((2, 2)), np.zeros((2, 2)), {"cell": -1.0}, "cell must be .* found -1"),
        (np.zeros((2, 2)), np.zeros((2, 2)), {"a": [0.5, 0.6]}, "equal totals; found 1.1 and 1"),
    ],
)
def test_bad_paths_are_refused(x, y, options, message):
    with pytest.raises(InvalidInputError, match=message):
        adapted_wasserstein(x, y, **options)


def test_bad_processes_are_refused():
    with pytest.raises(InvalidInputError, match="same number of steps; found 2 and 3"):
        adapted_wasserstein_gaussian(centred(A), centred(np.eye(3)))
    with pytest.raises(InvalidInputError, match=r"second must be positive definite.*found 2"):
        adapted_wasserstein_gaussian(centred(A), centred(np.ones((2, 2))))
