"""The debiased cost: a divergence, with its limits and closed forms."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import (
    CostMatrix,
    Gaussian,
    PointCloud,
    exact,
    gaussian_coupling,
    sinkhorn,
    sinkhorn_divergence,
)

D = torch.float64
seeds = st.integers(0, 2**31)


def clouds(seed=0, n=7, m=6, d=2):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(k, d, generator=generator, dtype=D) for k in (n, m))
    a, b = (0.2 + torch.rand(k, generator=generator, dtype=D) for k in (n, m))
    return x, y, a / a.sum(), b / b.sum()


def divergence(x, y, a=None, b=None, epsilon=0.3, tolerance=1e-10, **options):
    return sinkhorn_divergence(x, y, a, b, epsilon=epsilon, tolerance=tolerance, **options).value


@settings(max_examples=6)
@given(seeds)
def test_it_is_three_values(seed):
    x, y, a, b = clouds(seed)
    options = {"epsilon": 0.3, "tolerance": 1e-10}
    wanted = (
        sinkhorn(PointCloud(x, y), a, b, **options).value
        - sinkhorn(PointCloud(x), a, a, **options).value / 2
        - sinkhorn(PointCloud(y), b, b, **options).value / 2
    )
    assert_close(divergence(x, y, a, b), wanted, rtol=0, atol=1e-8)


@settings(max_examples=6)
@given(seeds, st.sampled_from([0.02, 0.3, 5.0]))
def test_it_is_zero_for_equal_laws_positive_otherwise_and_symmetric(seed, epsilon):
    x, y, a, b = clouds(seed)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    assert_close(divergence(x, x[order], a, a[order], epsilon).item(), 0.0, rtol=0, atol=1e-9)
    there, back = divergence(x, y, a, b, epsilon), divergence(y, x, b, a, epsilon)
    assert there > 0
    assert_close(there, back, rtol=0, atol=1e-8)


def test_a_point_split_in_two_is_the_same_law():
    x, y, a, b = clouds(1)
    split_x, split_a = torch.cat([x, x[:1]]), torch.cat([a, a[:1] / 2])
    split_a[0] /= 2
    assert_close(divergence(split_x, y, split_a, b), divergence(x, y, a, b), rtol=0, atol=1e-8)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 50.0])
def test_a_translation_costs_half_its_square(epsilon):
    x, _, a, _ = clouds(2)
    v = torch.tensor([0.7, -1.1], dtype=D)
    found = divergence(x, x + v, a, a, epsilon)
    assert_close(found, v.square().sum() / 2, rtol=1e-8, atol=0)


def test_translating_one_cloud_adds_what_the_means_add():
    x, y, a, b = clouds(3)
    v = torch.tensor([2.0, 1.0], dtype=D)
    apart = b @ y - a @ x
    gain = ((apart + v).square().sum() - apart.square().sum()) / 2
    assert_close(divergence(x, y + v, a, b) - divergence(x, y, a, b), gain, rtol=0, atol=1e-7)


def test_it_runs_from_the_exact_cost_to_the_distance_of_means():
    x, y, a, b = clouds(4)
    cold = divergence(x, y, a, b, epsilon=2e-3, tolerance=1e-7)
    assert_close(cold, exact(PointCloud(x, y), a, b).cost, rtol=0, atol=2e-3)
    hot = divergence(x, y, a, b, epsilon=1e5, tolerance=1e-13)
    assert_close(hot, (a @ x - b @ y).square().sum() / 2, rtol=1e-3, atol=1e-5)


def test_gaussians_on_a_grid_have_the_closed_form():
    grid = torch.linspace(-8, 8, 300, dtype=D)

    def law(mean, sd):
        w = torch.exp(-((grid - mean) ** 2) / (2 * sd**2))
        return w / w.sum()

    def gaussian(mean, sd):
        return Gaussian(
            mean=torch.tensor([mean]).double(), covariance=torch.eye(1).double() * sd**2
        )

    first, second, epsilon = (0.5, 1.0), (-0.3, 0.6), 0.4
    p, q = gaussian(*first), gaussian(*second)
    terms = [gaussian_coupling(u, v, epsilon=epsilon).value for u, v in ((p, q), (p, p), (q, q))]
    found = divergence(grid[:, None], grid[:, None], law(*first), law(*second), epsilon)
    assert_close(found, terms[0] - (terms[1] + terms[2]) / 2, rtol=1e-6, atol=0)


def test_the_entropy_of_a_coupling_is_that_of_the_gaussian_one():
    grid = torch.linspace(-8, 8, 300, dtype=D)
    weights = [torch.exp(-(grid**2) / (2 * s**2)) for s in (1.0, 0.7)]
    a, b = (w / w.sum() for w in weights)
    laws = [
        Gaussian(mean=torch.zeros(1, dtype=D), covariance=torch.eye(1, dtype=D) * s**2)
        for s in (1.0, 0.7)
    ]
    wanted = gaussian_coupling(*laws, epsilon=0.5).divergence
    coupling = sinkhorn(PointCloud(grid[:, None]), a, b, epsilon=0.5, tolerance=1e-10)
    assert_close((coupling.value - coupling.cost) / 0.5, wanted, rtol=1e-6, atol=0)


def test_slopes_are_those_of_finite_differences():
    x, y, a, b = clouds(5, 3, 2)

    def function(x, y, p, q):
        return divergence(
            x, y, torch.softmax(p, -1), torch.softmax(q, -1), epsilon=0.5, tolerance=1e-12
        )

    inputs = [z.requires_grad_() for z in (x, y, a.log(), b.log())]
    assert gradcheck(function, inputs, eps=1e-5, atol=1e-6)


def test_equal_clouds_have_no_slope():
    x, _, a, _ = clouds(6)
    leaf = x.clone().requires_grad_()
    divergence(leaf, x, a, a).backward()
    assert_close(leaf.grad, torch.zeros_like(x), rtol=0, atol=1e-7)


def test_costs_may_be_given_as_matrices():
    x, y, a, b = clouds(7)
    cost, inside = PointCloud(x, y).dense(), (PointCloud(x).dense(), PointCloud(y).dense())
    found = sinkhorn_divergence(
        CostMatrix(cost), None, a, b, within=inside, epsilon=0.3, tolerance=1e-10
    )
    assert_close(found.value, divergence(x, y, a, b), rtol=0, atol=1e-8)


def test_a_cloud_keeps_its_exponent():
    x, y, _, _ = clouds(8)
    cloud = PointCloud(x, y, exponent=1.0)
    options = {"epsilon": 0.3, "tolerance": 1e-10}
    found = sinkhorn_divergence(cloud, **options).value
    terms = [
        sinkhorn(PointCloud(u, v, exponent=1.0), **options).value
        for u, v in ((x, y), (x, x), (y, y))
    ]
    assert_close(found, terms[0] - (terms[1] + terms[2]) / 2, rtol=0, atol=1e-8)


def test_batches_broadcast():
    x = torch.stack([clouds(seed)[0] for seed in range(3)])
    y = clouds(9)[1]
    relative = sinkhorn_divergence(x, y, relative_epsilon=0.5, tolerance=1e-9)
    assert relative.value.shape == relative.epsilon.shape == relative.marginal_error.shape == (3,)
    for k in range(3):
        one = divergence(x[k], y, epsilon=relative.epsilon[k].item())
        assert_close(relative.value[k], one, rtol=0, atol=1e-7)
    strengths = torch.tensor([0.2, 0.5, 1.0], dtype=D)
    found = divergence(x, y, epsilon=strengths)
    assert_close(found[1], divergence(x[1], y, epsilon=0.5), rtol=0, atol=1e-8)


def test_relative_epsilon_is_read_between_the_clouds():
    x, y, _, _ = clouds(10)
    found = sinkhorn_divergence(x, y, relative_epsilon=0.2)
    assert_close(found.epsilon, 0.2 * PointCloud(x, y).median())


def test_the_distance_is_that_of_a_translation():
    x, _, _, _ = clouds(11)
    found = sinkhorn_divergence(x, x + 3, epsilon=0.5, tolerance=1e-10)
    assert_close(found.distance.item(), 3 * math.sqrt(2), rtol=1e-7, atol=0)
    same = sinkhorn_divergence(x, x, epsilon=0.5)
    assert same.distance == 0 or same.distance < 1e-3


def test_single_precision_and_half_precision_points():
    x, y, _, _ = clouds(12, 40, 30)
    wanted = divergence(x, y, epsilon=0.3)
    for dtype, atol in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2)):
        found = sinkhorn_divergence(x.to(dtype), y.to(dtype), epsilon=0.3, tolerance=1e-5)
        assert found.value.dtype == torch.float32
        assert_close(found.value.double(), wanted, rtol=0, atol=atol)


def test_pot_agrees():
    x, y, _, _ = clouds(13, 30, 25)
    # POT: cost |x−y|², entropy relative to the product in all three terms
    wanted = ot.bregman.empirical_sinkhorn_divergence(
        x.numpy(), y.numpy(), 1.0, stopThr=1e-12, numIterMax=5000
    )
    mine = sinkhorn_divergence(
        CostMatrix(2 * PointCloud(x, y).dense()),
        within=(2 * PointCloud(x).dense(), 2 * PointCloud(y).dense()),
        epsilon=1.0,
        tolerance=1e-10,
    )
    # POT subtracts linear costs ⟨C, Π⟩, not values: compare those
    linear = [
        sinkhorn(2 * PointCloud(u, v).dense(), epsilon=1.0, tolerance=1e-10).cost.item()
        for u, v in ((x, y), (x, x), (y, y))
    ]
    np.testing.assert_allclose(linear[0] - (linear[1] + linear[2]) / 2, wanted, rtol=1e-5)
    assert mine.value > 0


def test_failure_of_one_of_the_three_is_a_failure():
    x, y, _, _ = clouds(14)
    options = {"epsilon": 1e-4, "max_iterations": 20, "tolerance": 1e-9}
    with pytest.raises(ConvergenceError):
        sinkhorn_divergence(x, y, **options)
    found = sinkhorn_divergence(x, y, **options, on_failure="return")
    assert found.status == "not converged"
    assert found.marginal_error > 1e-9


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, y: sinkhorn_divergence(x, epsilon=1.0), "two clouds"),
        (lambda x, y: sinkhorn_divergence(CostMatrix(x @ x.mT + 9), epsilon=1.0), "within"),
        (lambda x, y: sinkhorn_divergence(x, y, within=(x, y), epsilon=1.0), "both kinds"),
        (lambda x, y: sinkhorn_divergence(x, y, epsilon=1.0, initial=(x, y)), "initial"),
        (lambda x, y: sinkhorn_divergence(x, y, epsilon=0.0), "epsilon must be positive"),
        (lambda x, y: sinkhorn_divergence(x, y), "exactly one of epsilon"),
        (lambda x, y: sinkhorn_divergence(x, y[:, :1], epsilon=1.0), "one dimension"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    x, y, _, _ = clouds(0)
    with pytest.raises(InvalidInputError, match=sentence):
        call(x, y)
