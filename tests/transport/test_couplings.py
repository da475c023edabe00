"""Laws that every member of the family of couplings obeys."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope import transport
from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import CostMatrix, Coupling, PointCloud

D = torch.float64
RHO = 0.7
FAMILY = ("sinkhorn", "masked", "unbalanced", "semi_relaxed", "prescribed", "exact")
ITERATIVE = ("sinkhorn", "masked", "unbalanced", "prescribed")
ENTROPIC = tuple(name for name in FAMILY if name != "exact")
FIXED_COLUMNS = ("sinkhorn", "masked", "prescribed", "exact")

seeds = st.integers(0, 2**31)
few = settings(max_examples=6)


def drawn(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def masses(seed, *shape):
    w = 0.2 + drawn(seed, *shape)
    return w / w.sum(-1, keepdim=True)


def problem(name, seed, n=5, m=4, batch=()):
    """Cost, with the mask of the member, and masses that it can couple."""
    cost, a, b = drawn(seed, *batch, n, m), masses(seed + 1, *batch, n), masses(seed + 2, *batch, m)
    if name == "masked":  # two corners; every prefix still has room
        cost[..., 0, m - 1] = cost[..., n - 1, 0] = math.inf
    if name == "prescribed":  # causal; b is what some positive causal kernel makes of a
        reach = torch.ones(n, m, dtype=torch.bool).tril()
        kernel = torch.where(reach, 0.1 + drawn(seed + 3, n, m), 0.0)
        b = a @ (kernel / kernel.sum(-1, keepdim=True))
        cost = cost.masked_fill(~reach, math.inf)
    return cost, a, b


def solve(name, cost, a, b, *, epsilon=0.2, tolerance=1e-10, rho=RHO, **options) -> Coupling:
    if name == "exact":
        return transport.exact(cost, a, b)
    if name == "semi_relaxed":
        return transport.semi_relaxed(cost, a, epsilon=epsilon, prior=b)
    options |= {"epsilon": epsilon, "tolerance": tolerance}
    if name == "unbalanced":
        return transport.unbalanced(cost, a, b, relaxation=rho, **options)
    solver = transport.prescribed if name == "prescribed" else transport.sinkhorn
    return solver(cost, a, b, **options)


def measured_error(coupling):
    """L1 error of both marginals, read from the matrix in float64, over the total mass."""
    P, a, b = (x.detach().double() for x in (coupling.matrix, coupling.a, coupling.b))
    error = (P.sum(-1) - a).abs().sum(-1)
    rho = coupling.relaxation.double()[..., None]
    if bool((rho > 0).all()):
        pull = torch.where(rho.isinf(), 0.0, coupling.g.detach().double() / rho)
        error = error + (P.sum(-2) - b * torch.exp(-pull)).abs().sum(-1)
    return error / a.sum(-1)


def kl(p, q):
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum((-2, -1))


def primal(name, cost, P, a, b, epsilon=0.2):
    """The objective of the member at any matrix."""
    paid = torch.where(P > 0, cost, 0.0).mul(P).sum((-2, -1))
    if name == "exact":
        return paid
    paid = paid + epsilon * kl(P, a[..., :, None] * b[..., None, :])
    if name == "unbalanced":
        columns = P.sum(-2)
        paid = paid + RHO * (kl(columns[..., None], b[..., None]) - columns.sum(-1) + b.sum(-1))
    return paid


# --- marginals, and what is said of them ---


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_rows_and_fixed_columns_are_kept(name, seed):
    cost, a, b = problem(name, seed)
    coupling = solve(name, cost, a, b)
    assert coupling.status == "converged"
    P = coupling.matrix
    assert (P >= 0).all()
    assert (P[cost.isinf()] == 0).all()
    assert_close(P.sum(-1), a, rtol=0, atol=1e-9)
    if name in FIXED_COLUMNS:
        assert_close(P.sum(-2), b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_the_reported_error_is_the_measured_one(name, seed):
    cost, a, b = problem(name, seed, batch=(3,))
    coupling = solve(name, cost, a, b, tolerance=1e-4)
    assert_close(coupling.marginal_error, measured_error(coupling), rtol=1e-6, atol=1e-13)


def hard_masses(kind, seed, *shape):
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)
    w = torch.softmax({"peaked": 12, "tiny": 40, "zero": 1, "heavy": 1}[kind] * noise, -1)
    if kind == "zero":
        w[..., ::3] = 0
        w = w / w.sum(-1, keepdim=True)
    return 37 * w if kind == "heavy" else w


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("kind", ["peaked", "tiny", "zero", "heavy"])
@pytest.mark.parametrize("relative", [1.0, 1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("stored", ["matrix", "masked", "cloud"])
def test_hard_problems_do_not_lie(dtype, kind, relative, stored):
    # Converged or not: what is reported is what the matrix does. The costs are 1 and 1e6.
    B, n, m = 6, 12, 9
    scale = torch.tensor([1.0, 1e6] * 3, dtype=D)[:, None, None]
    x, y = (torch.randn(B, k, 2, dtype=D) * scale.sqrt() for k in (n, m))
    if stored == "cloud":
        cost = PointCloud(x.to(dtype), y.to(dtype))
    else:
        dense = torch.cdist(x, y).square() / 2
        if stored == "masked":
            dense = dense.masked_fill(
                (torch.arange(n)[:, None] + torch.arange(m)) % 5 == 4, torch.inf
            )
        cost = CostMatrix(dense.to(dtype))
    a, b = (hard_masses(kind, k, B, k).to(dtype) for k in (n, m))
    for tolerance in (1e-3, 1e-6):
        coupling = transport.sinkhorn(
            cost, a, b, relative_epsilon=relative, tolerance=tolerance, max_iterations=150,
            on_failure="return",
        )  # fmt: skip
        measured = measured_error(coupling)
        # potentials are known to a rounding of C/ε
        unit = torch.finfo(coupling.a.dtype).eps * (10 + cost.largest() / coupling.epsilon).double()
        off = (coupling.marginal_error.double() - measured).abs()
        assert (off <= 4 * unit + 1e-3 * measured).all(), (coupling.marginal_error, measured)
        assert (measured[coupling.converged] <= 2 * tolerance).all()


@pytest.mark.parametrize("total", [1e-30, 1e-3, 64.0, 1e12, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("name", FAMILY)
def test_masses_of_any_total_scale_the_coupling(name, total, dtype):
    cost, a, b = (x.to(dtype) for x in problem(name, 5))
    one = solve(name, cost, a, b, tolerance=1e-5)
    many = solve(name, cost, (total * a).to(dtype), (total * b).to(dtype), tolerance=1e-5)
    assert_close(many.matrix.double() / total, one.matrix.double(), rtol=1e-4, atol=1e-5)
    # potentials carry the logarithm of the total, and its rounding
    rounding = torch.finfo(dtype).eps * (10 + 2 * abs(math.log(total)))
    assert_close(many.marginal_error, measured_error(many).to(dtype), rtol=1e-2, atol=rounding)


@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced"])
def test_a_recorded_graph_does_not_change_what_is_reported(name):
    cost, a, b = problem(name, 3)
    coupling = solve(name, cost.requires_grad_(), a, b, epsilon=0.05, tolerance=1e-3)
    assert_close(coupling.marginal_error, measured_error(coupling), rtol=1e-6, atol=1e-13)


# --- symmetries ---


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_row_and_column_prices_leave_the_coupling_unchanged(name, seed):
    cost, a, b = problem(name, seed)
    priced = cost + 3 * drawn(seed + 4, 5, 1)
    if name in FIXED_COLUMNS:
        priced = priced + 3 * drawn(seed + 5, 4)
    first, second = solve(name, cost, a, b), solve(name, priced, a, b)
    assert_close(first.matrix, second.matrix, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_permuted_problems_have_permuted_couplings(name, seed):
    cost, a, b = problem(name, seed)
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.randperm(5, generator=generator), torch.randperm(4, generator=generator)
    first, second = solve(name, cost, a, b), solve(name, cost[p][:, q], a[p], b[q])
    assert_close(first.matrix[p][:, q], second.matrix, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["sinkhorn", "masked", "exact"])
@few
@given(seeds)
def test_the_transposed_problem_has_the_transposed_coupling(name, seed):
    cost, a, b = problem(name, seed)
    assert_close(
        solve(name, cost, a, b).matrix.mT, solve(name, cost.mT, b, a).matrix, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("name", FAMILY)
def test_a_transposed_coupling_is_the_same_seen_from_the_other_side(name):
    coupling = solve(name, *problem(name, 2))
    other = coupling.transposed()
    assert_close(other.matrix, coupling.matrix.mT)
    assert_close(other.rows, coupling.matrix.sum(-2))
    assert_close(other.cost, coupling.cost)
    assert_close(other.value, coupling.value)
    assert_close(other.transposed().matrix, coupling.matrix)


@pytest.mark.parametrize("scale", [1e-4, 1e6])
@pytest.mark.parametrize("name", FAMILY)
def test_cost_and_epsilon_scale_together(name, scale):
    cost, a, b = problem(name, 4)
    one = solve(name, cost, a, b)
    many = solve(name, scale * cost, a, b, epsilon=0.2 * scale, rho=RHO * scale)
    assert_close(one.matrix, many.matrix, rtol=0, atol=1e-8)
    assert_close(scale * one.value, many.value, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", ENTROPIC)
def test_relative_epsilon_is_a_multiple_of_the_median_finite_cost(name):
    cost, a, b = problem(name, 6)
    if name == "semi_relaxed":
        relative = transport.semi_relaxed(cost, a, relative_epsilon=0.5, prior=b)
    else:
        relative = solve(name, cost, a, b, epsilon=None, relative_epsilon=0.5)
    median = cost[cost.isfinite()].median()
    assert_close(relative.epsilon, 0.5 * median)
    absolute = solve(name, cost, a, b, epsilon=0.5 * median.item())
    assert_close(relative.matrix, absolute.matrix, rtol=0, atol=1e-9)


# --- what a coupling derives ---


@pytest.mark.parametrize("name", FAMILY)
def test_products_and_costs_are_those_of_the_matrix(name):
    cost, a, b = problem(name, 7, batch=(2,))
    coupling = solve(name, cost, a, b)
    P, v, y = coupling.matrix, drawn(1, 4), drawn(2, 2, 4, 3)
    assert_close(coupling.apply(v), P @ v)
    assert_close(coupling.apply(y), P @ y)
    assert_close(coupling.apply(y[0]), P @ y[0])
    assert_close(coupling.apply(drawn(3, 5, 1, 4, 2)), P @ drawn(3, 5, 1, 4, 2))
    assert_close(coupling.rows, P.sum(-1))
    assert_close(coupling.columns, P.sum(-2))
    assert_close(coupling.barycentric(y), (P @ y) / P.sum(-1, keepdim=True))
    assert_close(coupling.cost, torch.where(P > 0, cost, 0.0).mul(P).sum((-2, -1)))


def test_positions_on_a_line_have_a_barycentre_a_row():
    coupling = solve("sinkhorn", *problem("sinkhorn", 1))
    y = drawn(4, 4)
    P = coupling.matrix
    try:
        found = coupling.barycentric(y)
    except InvalidInputError:
        return  # a sentence is an answer too; n × n numbers are not
    assert_close(found, (P @ y) / P.sum(-1))


@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced", "semi_relaxed"])
def test_potentials_reach_rows_and_columns_without_mass(name):
    # A mass that goes to zero takes its potential to a limit; the rest does not feel it.
    cost, a, b = problem(name, 21)
    a, b = a.clone(), b.clone()
    a[1] = b[2] = 0
    a, b = a / a.sum(), b / b.sum()
    none = solve(name, cost, a, b)
    little_a, little_b = a.clone(), b.clone()
    little_a[1] = little_b[2] = 1e-12
    some = solve(name, cost, little_a / little_a.sum(), little_b / little_b.sum())
    first, second = (c.f[:, None] + c.g for c in (none, some))
    assert_close(first, second, rtol=0, atol=1e-7)
    assert_close(none.value, some.value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ENTROPIC)
def test_potentials_make_the_matrix(name):
    cost, a, b = problem(name, 8)
    coupling = solve(name, cost, a, b)
    f, g = coupling.f[:, None], coupling.g
    assert_close(coupling.matrix, a[:, None] * b * torch.exp((f + g - cost) / 0.2))


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_the_dual_value_is_the_primal_one(name, seed):
    cost, a, b = problem(name, seed)
    coupling = solve(name, cost, a, b)
    assert_close(coupling.value, primal(name, cost, coupling.matrix, a, b), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", FAMILY)
@few
@given(seeds)
def test_no_feasible_coupling_is_better(name, seed):
    cost, a, b = problem(name, seed)
    value = solve(name, cost, a, b).value
    for k in range(4):  # the optimum of another cost is feasible for this one
        other = solve(name, cost + drawn(seed + 10 + k, 5, 4), a, b)
        assert primal(name, cost, other.matrix, a, b) >= value - 1e-9


@pytest.mark.parametrize("name", FAMILY)
def test_a_coupling_is_frozen(name):
    coupling = solve(name, *problem(name, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        coupling.f = coupling.g


# --- batches ---


@pytest.mark.parametrize("name", FAMILY)
def test_a_batch_is_its_problems(name):
    cost, a, b = problem(name, 9, batch=(2, 3))
    whole = solve(name, cost, a, b)
    assert whole.matrix.shape == (2, 3, 5, 4)
    for i in range(2):
        for j in range(3):
            one = solve(name, cost[i, j], a[i, j], b[i, j])
            assert_close(whole.matrix[i, j], one.matrix, rtol=0, atol=1e-8)
            assert_close(whole.value[i, j], one.value, rtol=0, atol=1e-8)
            assert whole.iterations[i, j] == one.iterations


@pytest.mark.parametrize("name", ["sinkhorn", "masked", "unbalanced"])
@pytest.mark.parametrize("cloud", [False, True])
def test_slow_and_fast_problems_share_a_batch(name, cloud):
    # Fast ones leave the batch; none must feel it.
    if cloud and name == "masked":
        pytest.skip("a cloud has no mask")
    cost, a, b = problem(name, 10)
    if cloud:
        cost = PointCloud(drawn(1, 5, 2), drawn(2, 4, 2))
    epsilon = torch.tensor([1e-3, 1.0, 0.1, 3e-3, 0.3, 1e-2, 10.0], dtype=D)
    whole = solve(name, cost, a.expand(7, 5), b, epsilon=epsilon, tolerance=1e-8)
    assert whole.converged.all()
    assert whole.iterations.max() > 3 * whole.iterations.min()
    for k, e in enumerate(epsilon):
        one = solve(name, cost, a, b, epsilon=e.item(), tolerance=1e-8)
        assert_close(whole.matrix[k], one.matrix, rtol=0, atol=1e-6)
        # an exact sweep that one problem of a batch needs is made for all
        # a batch shares its first plain sweeps, and none is charged for the slowest
        assert whole.iterations[k] <= max(20, 2 * one.iterations)


@pytest.mark.parametrize("name", FAMILY)
def test_one_family_of_masses_serves_a_batch_of_costs(name):
    cost, a, b = problem(name, 11)
    costs = torch.stack([cost, 2 * cost, cost + 1])
    whole = solve(name, costs, a, b)
    each = torch.stack([solve(name, c, a, b).matrix for c in costs])
    assert_close(whole.matrix, each, rtol=0, atol=1e-8)
    one_cost = solve(name, cost, a.expand(2, 5), b.expand(2, 4))
    assert_close(one_cost.matrix[1], each[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", FAMILY)
def test_an_empty_batch_gives_an_empty_result(name):
    cost, a, b = problem(name, 1)
    coupling = solve(name, cost.expand(0, 5, 4), a, b)
    assert coupling.matrix.shape == (0, 5, 4)
    assert coupling.cost.shape == coupling.value.shape == coupling.iterations.shape == (0,)
    assert coupling.status == "converged"


@pytest.mark.parametrize("name", FAMILY)
def test_layout_in_memory_does_not_matter(name):
    cost, a, b = problem(name, 12)
    plain = solve(name, cost, a, b)
    strided = torch.stack([b, b], -1)[:, 0]
    strange = solve(name, cost.mT.contiguous().mT, a.flip(0).contiguous().flip(0), strided)
    assert_close(plain.matrix, strange.matrix)
    expanded = solve(name, cost.expand(3, 5, 4), a.expand(3, 5), b.expand(3, 4))
    assert_close(expanded.matrix[2], plain.matrix, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["sinkhorn", "unbalanced", "semi_relaxed", "exact"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1), (2, 9)])
def test_single_rows_and_columns(name, n, m):
    cost, a, b = problem(name, 13, n, m)
    coupling = solve(name, cost, a, b)
    assert_close(coupling.matrix.sum(-1), a)
    if name in FIXED_COLUMNS and 1 in (n, m):
        assert_close(coupling.matrix, a[:, None] * b)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_graph_is_recorded_when_none_is_wanted(name, mode):
    cost, a, b = problem(name, 14)
    wanted = solve(name, cost, a, b)
    with mode():
        coupling = solve(name, cost.clone().requires_grad_(), a, b)
        assert not coupling.f.requires_grad
        assert not coupling.value.requires_grad
        assert_close(coupling.matrix, wanted.matrix, rtol=0, atol=1e-9)


# --- dtypes ---


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FAMILY)
def test_narrow_inputs_are_widened_and_exact_for_what_they_hold(name, narrow):
    cost, a, b = problem(name, 15)
    cost = (30 * cost).to(narrow)
    found = solve(name, cost, a.float(), b.float(), epsilon=0.5, tolerance=1e-5)
    wanted = solve(name, cost.double(), a, b, epsilon=0.5)
    assert found.matrix.dtype == found.f.dtype == torch.float32
    assert_close(found.matrix.double(), wanted.matrix, rtol=0, atol=1e-5)
    assert_close(found.value.double(), wanted.value, rtol=1e-4, atol=0)


def test_narrow_masses_are_widened():
    a = torch.tensor([0.25, 0.75], dtype=torch.bfloat16)
    coupling = transport.sinkhorn(torch.rand(2, 2).bfloat16(), a, a, epsilon=0.1)
    assert coupling.matrix.dtype == torch.float32
    assert_close(coupling.rows, a.float())


def test_masses_of_a_narrower_dtype_than_the_cost_are_equal_to_their_own_rounding():
    cost = drawn(1, 300, 200)
    a, b = torch.softmax(torch.randn(300), -1), torch.softmax(torch.randn(200), -1)
    assert a.double().sum() != b.double().sum()
    coupling = transport.sinkhorn(cost, a, b, epsilon=0.5)
    assert coupling.matrix.dtype == D


# --- how it was found ---


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("name", ITERATIVE)
def test_a_warm_start_from_the_solution_is_done_at_once(name, epsilon):
    cost, a, b = problem(name, 16)
    cold = solve(name, cost, a, b, epsilon=epsilon, tolerance=1e-9)
    warm = solve(name, cost, a, b, epsilon=epsilon, tolerance=2e-9, initial=(cold.f, cold.g))
    assert warm.iterations <= 2 < cold.iterations
    assert_close(warm.matrix, cold.matrix, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ITERATIVE)
def test_the_way_does_not_change_the_goal(name):
    cost, a, b = problem(name, 17)
    found = [
        solve(name, cost, a, b, epsilon=0.02, anneal=anneal, acceleration=acceleration)
        for anneal in (True, False)
        for acceleration in ("anderson", None)
    ]
    for other in found[1:]:
        assert_close(other.matrix, found[0].matrix, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ITERATIVE)
def test_failure_raises_with_what_was_reached(name):
    cost, a, b = problem(name, 18)
    spent = {"epsilon": 1e-3, "max_iterations": 7, "tolerance": 1e-12}
    with pytest.raises(ConvergenceError, match="1 of 1 problems did not reach") as caught:
        solve(name, cost, a, b, **spent)
    partial = caught.value.partial
    returned = solve(name, cost, a, b, **spent, on_failure="return")
    assert isinstance(partial, Coupling)
    assert partial.status == returned.status == "not converged"
    assert partial.iterations == returned.iterations == 7
    assert partial.marginal_error > 1e-12
    assert_close(partial.matrix, returned.matrix)
    assert_close(partial.marginal_error, measured_error(partial), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("most", [1, 2, 30])
def test_annealing_is_part_of_the_sweeps_allowed(most):
    cost, a, b = problem("sinkhorn", 19)
    coupling = solve("sinkhorn", cost, a, b, epsilon=1e-4, max_iterations=most, on_failure="return")
    assert coupling.iterations <= most


def test_only_some_problems_fail():
    cost, a, b = problem("sinkhorn", 20)
    epsilon = torch.tensor([1.0, 1e-4], dtype=D)
    with pytest.raises(ConvergenceError, match="1 of 2 problems") as caught:
        solve("sinkhorn", cost.expand(2, 5, 4), a, b, epsilon=epsilon, max_iterations=20)
    assert caught.value.partial.converged.tolist() == [True, False]
    good = solve("sinkhorn", cost, a, b, epsilon=1.0)
    assert_close(caught.value.partial.matrix[0], good.matrix, rtol=0, atol=1e-8)
