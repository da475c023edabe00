"""Slopes of couplings: autograd against finite differences, masks and empty masses included."""

import math

import pytest
import torch
from torch.autograd import grad, gradcheck
from torch.testing import assert_close

from flowscope import transport
from flowscope.transport import PointCloud

D = torch.float64
N, M = 4, 3
OUTPUTS = {
    "value": lambda c: c.value,
    "cost": lambda c: c.cost,
    "matrix": lambda c: c.matrix,
    "apply": lambda c: c.apply(torch.linspace(-1, 2, M, dtype=D)),
    "barycentric": lambda c: c.barycentric(torch.linspace(-1, 2, 2 * M, dtype=D).reshape(M, 2)),
    # each potential alone is known up to a constant
    "potentials": lambda c: c.f[..., :, None] + c.g[..., None, :],
}
MEMBERS = ("sinkhorn", "masked", "unbalanced", "prescribed", "semi_relaxed")


def drawn(*shape):
    return torch.rand(*shape, dtype=D)


def mask(name):
    if name == "prescribed":
        return torch.ones(N, M, dtype=torch.bool).tril()
    hidden = torch.zeros(N, M, dtype=torch.bool)
    if name in ("masked", "unbalanced", "semi_relaxed"):
        hidden[0, 2] = hidden[3, 0] = True
    return ~hidden


def solve(name, cost, a, b, epsilon=0.3, tolerance=1e-12):
    options = {"epsilon": epsilon, "tolerance": tolerance}
    if name == "semi_relaxed":
        return transport.semi_relaxed(cost, a, epsilon=epsilon, prior=b)
    if name == "unbalanced":
        return transport.unbalanced(cost, a, b, relaxation=0.5, **options)
    solver = transport.prescribed if name == "prescribed" else transport.sinkhorn
    return solver(cost, a, b, **options)


def fitting(name):
    """Logits of masses that fit through the member's mask."""
    a = torch.softmax(drawn(N), -1)
    if name != "prescribed":
        return a.log(), drawn(M)
    kernel = torch.where(mask(name), 0.2 + drawn(N, M), 0.0)
    return a.log(), (a @ (kernel / kernel.sum(-1, keepdim=True))).log()


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", MEMBERS)
def test_slopes_in_cost_and_masses_are_those_of_finite_differences(name, output):
    # Masses move on the simplex, where their totals stay equal.
    reach = mask(name)
    inputs = [0.2 + drawn(N, M), *fitting(name)]

    def function(cost, p, q):
        coupling = solve(
            name, cost.masked_fill(~reach, math.inf), torch.softmax(p, -1), torch.softmax(q, -1)
        )
        return (
            OUTPUTS[output](coupling)[..., reach]
            if output == "potentials"
            else OUTPUTS[output](coupling)
        )

    assert gradcheck(function, [x.requires_grad_() for x in inputs], eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("output", OUTPUTS)
def test_slopes_in_points_are_those_of_finite_differences(output, exponent):
    def function(x, y):
        return OUTPUTS[output](
            transport.sinkhorn(PointCloud(x, y, exponent=exponent), epsilon=0.5, tolerance=1e-12)
        )

    x, y = (torch.randn(k, 2, dtype=D).requires_grad_() for k in (N, M))
    assert gradcheck(function, [x, y], eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced"])
def test_slopes_of_a_batch_are_those_of_its_problems(name):
    cost = drawn(3, N, M)
    weight, epsilon = torch.randn(N, M, dtype=D), torch.tensor([1.0, 0.1, 0.03], dtype=D)
    leaf = cost.clone().requires_grad_()
    (whole,) = grad((solve(name, leaf, None, None, epsilon).matrix * weight).sum(), leaf)
    for k in range(3):
        leaf = cost[k].clone().requires_grad_()
        coupling = solve(name, leaf, None, None, epsilon[k].item())
        (one,) = grad((coupling.matrix * weight).sum(), leaf)
        assert_close(whole[k], one, rtol=0, atol=1e-7)


def test_a_cloud_and_its_matrix_have_the_same_slopes():
    x, y = (torch.randn(k, 2, dtype=D).requires_grad_() for k in (20, 15))
    weight = torch.randn(20, 15, dtype=D)
    cloud = transport.sinkhorn(PointCloud(x, y), epsilon=0.3, tolerance=1e-11)
    matrix = transport.sinkhorn((x[:, None] - y).square().sum(-1) / 2, epsilon=0.3, tolerance=1e-11)
    for first, second in zip(
        grad((cloud.matrix * weight).sum() + cloud.value, (x, y)),
        grad((matrix.matrix * weight).sum() + matrix.value, (x, y)),
        strict=True,
    ):
        assert_close(first, second, rtol=1e-6, atol=1e-8)


def test_the_slopes_of_the_value_are_the_coupling_and_its_potentials():
    cost, a, b = drawn(N, M).requires_grad_(), drawn(N).requires_grad_(), None
    coupling = transport.sinkhorn(cost, a / a.sum(), b, epsilon=0.2, tolerance=1e-11)
    of_cost, of_mass = grad(coupling.value, (cost, coupling.a))
    assert_close(of_cost, coupling.matrix.detach())
    assert_close(of_mass, coupling.f.detach())


@pytest.mark.parametrize("relative", [3e-2, 1e-2])
def test_small_epsilon_has_accurate_slopes(relative):
    cost, direction = drawn(8, 7), torch.randn(8, 7, dtype=D)
    weight = torch.randn(8, 7, dtype=D)
    epsilon = relative * cost.median().item()

    def output(step):
        coupling = transport.sinkhorn(cost + step * direction, epsilon=epsilon, tolerance=1e-12)
        return (coupling.matrix * weight).sum()

    step = torch.zeros((), dtype=D, requires_grad=True)
    (slope,) = grad(output(step), step)
    h = 1e-2 * epsilon
    near, far = ((output(k * h) - output(-k * h)) / (2 * k * h) for k in (1, 2))
    assert_close(slope, (4 * near - far) / 3, rtol=1e-4, atol=1e-6 / epsilon)


def test_slopes_in_single_precision_follow_double_precision():
    cost, weight = drawn(30, 20), torch.randn(30, 20, dtype=D)
    found = []
    for dtype, tolerance in ((torch.float32, 1e-5), (D, 1e-11)):
        leaf = cost.to(dtype).requires_grad_()
        coupling = transport.sinkhorn(leaf, epsilon=0.05, tolerance=tolerance)
        found.append(grad((coupling.matrix * weight.to(dtype)).sum(), leaf)[0].double())
    assert_close(found[0], found[1], rtol=0, atol=3e-3 * found[1].abs().max().item())


@pytest.mark.parametrize("output", ["value", "matrix"])
def test_second_slopes_are_right_or_refused(output):
    cost, direction = drawn(N, M), torch.randn(N, M, dtype=D)

    def slope(step, **options):
        leaf = (cost + step * direction).requires_grad_()
        coupling = transport.sinkhorn(leaf, epsilon=0.3, tolerance=1e-12)
        return leaf, *grad(OUTPUTS[output](coupling).square().sum(), leaf, **options)

    wanted = (slope(1e-4)[1] - slope(-1e-4)[1]) / 2e-4
    try:
        leaf, first = slope(0.0, create_graph=True)
        (second,) = grad((first * direction).sum(), leaf)
    except RuntimeError:
        return  # torch's own word for a function that can be differentiated once
    assert_close(second, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("output", ["value", "cost", "matrix", "apply"])
@pytest.mark.parametrize("name", MEMBERS)
def test_masked_costs_have_no_slope_and_no_nan(name, output):
    reach = mask(name)
    p, q = fitting(name)
    cost = (0.2 + drawn(N, M)).masked_fill(~reach, math.inf).requires_grad_()
    coupling = solve(name, cost, torch.softmax(p, -1), torch.softmax(q, -1))
    (slope,) = grad(OUTPUTS[output](coupling).square().sum(), cost)
    assert slope.isfinite().all()
    assert (slope[~reach] == 0).all()
    assert (slope[reach] != 0).any()


@pytest.mark.parametrize("output", ["value", "cost", "matrix", "apply"])
@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced", "semi_relaxed"])
def test_empty_rows_and_columns_have_finite_slopes(name, output):
    a = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=D, requires_grad=True)
    b = torch.tensor([0.6, 0.0, 0.4], dtype=D, requires_grad=True)
    cost = drawn(N, M).requires_grad_()
    coupling = solve(name, cost, a, b)
    for slope in grad(OUTPUTS[output](coupling).square().sum(), (cost, a, b)):
        assert slope.isfinite().all()


@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced", "semi_relaxed"])
def test_an_empty_row_that_reaches_nothing_has_finite_slopes(name):
    cost = drawn(N, M)
    cost[1] = math.inf
    cost.requires_grad_()
    a = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=D)
    coupling = solve(name, cost, a, None)
    (slope,) = grad(coupling.matrix.square().sum() + coupling.value, cost)
    assert slope.isfinite().all()
    assert (slope[1] == 0).all()


def test_points_that_coincide_have_finite_slopes():
    x = torch.randn(5, 2, dtype=D)
    for exponent in (1.0, 2.0, 3.0):
        leaf = x.clone().requires_grad_()
        coupling = transport.sinkhorn(PointCloud(leaf, x, exponent=exponent), epsilon=0.3)
        (slope,) = grad(coupling.value + coupling.matrix.square().sum(), leaf)
        assert slope.isfinite().all()


def test_the_exact_cost_has_the_coupling_as_slope():
    cost = drawn(N, M)
    cost[0, 0] = math.inf
    cost.requires_grad_()
    coupling = transport.exact(cost)
    (slope,) = grad(coupling.cost, cost)
    assert_close(slope, coupling.matrix)
