"""Transport without entropy: linear programming, duality, masks."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import PointCloud, exact

D = torch.float64
inf = math.inf


def problem(seed, n=6, m=5):
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(n, m, generator=generator, dtype=D)
    a, b = (0.1 + torch.rand(k, generator=generator, dtype=D) for k in (n, m))
    return cost, a / a.sum(), b / b.sum()


def linear_program(cost, a, b):
    n, m = cost.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    open_ = np.isfinite(cost.numpy()).ravel()
    found = linprog(
        cost.numpy().ravel()[open_],
        A_eq=np.vstack([rows, columns])[:, open_],
        b_eq=np.concatenate([a.numpy(), b.numpy()]),
    )
    return found.fun if found.status == 0 else None


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.booleans())
def test_the_cost_is_that_of_the_linear_program(seed, masked):
    cost, a, b = problem(seed)
    if masked:
        hidden = torch.rand(6, 5, generator=torch.Generator().manual_seed(seed)) < 0.2
        cost = cost.masked_fill(hidden, inf)
    wanted = linear_program(cost, a, b)
    if wanted is None:
        with pytest.raises((ConvergenceError, InvalidInputError)):
            exact(cost, a, b)
        return
    coupling = exact(cost, a, b)
    assert_close(coupling.cost.item(), wanted, rtol=1e-9, atol=1e-12)
    assert (coupling.matrix[cost.isinf()] == 0).all()
    assert coupling.marginal_error < 1e-12


def test_uniform_masses_solve_the_assignment_problem():
    cost = torch.rand(30, 30, dtype=D)
    i, j = linear_sum_assignment(cost.numpy())
    assert_close(exact(cost).cost.item(), cost[i, j].mean().item())


@settings(max_examples=10)
@given(st.integers(0, 2**31), st.booleans())
def test_potentials_are_dual_feasible_and_leave_no_gap(seed, zeros):
    cost, a, b = problem(seed)
    if zeros:
        a[:2], b[3] = 0, 0
        a, b = a / a.sum(), b / b.sum()
    coupling = exact(cost, a, b)
    assert (coupling.f[:, None] + coupling.g <= cost + 1e-9).all()
    assert_close(a @ coupling.f + b @ coupling.g, coupling.cost, rtol=0, atol=1e-9)


def test_masked_potentials_are_dual_feasible_too():
    cost, a, b = problem(3)
    cost[0, 0] = cost[2, 1] = cost[5, 4] = inf
    coupling = exact(cost, a, b)
    assert (coupling.f[:, None] + coupling.g <= cost + 1e-9).all()
    assert_close(a @ coupling.f + b @ coupling.g, coupling.cost, rtol=0, atol=1e-9)


def test_pot_agrees():
    cost, a, b = problem(1, 40, 30)
    wanted = ot.emd2(a.numpy(), b.numpy(), cost.numpy())
    assert_close(exact(cost, a, b).cost.item(), wanted)


def test_sorted_points_on_a_line_are_matched_in_order():
    x, y = torch.randn(20, 1, dtype=D), torch.randn(20, 1, dtype=D)
    wanted = (x.sort(0).values - y.sort(0).values).square().mean() / 2
    assert_close(exact(PointCloud(x, y)).cost, wanted)


def test_totals_scale_the_cost():
    cost, a, b = problem(2)
    assert_close(exact(cost, 1e6 * a, 1e6 * b).cost, 1e6 * exact(cost, a, b).cost)


def test_value_and_cost_are_one_number_and_epsilon_is_zero():
    coupling = exact(*problem(4))
    assert_close(coupling.value, coupling.cost)
    assert coupling.epsilon == 0
    assert coupling.status == "converged"


def test_a_causal_mask_with_equal_masses_leaves_the_identity():
    cost = torch.rand(4, 4, dtype=D).masked_fill(~torch.ones(4, 4).tril().bool(), inf)
    assert_close(exact(cost).matrix, torch.eye(4, dtype=D) / 4)


def test_a_mask_that_allows_no_coupling_is_named():
    cost = torch.tensor([[0.0, inf], [0.0, inf], [0.0, 0.0]], dtype=D)
    with pytest.raises((ConvergenceError, InvalidInputError), match="mask"):
        exact(cost, [0.4, 0.4, 0.2], [0.5, 0.5])


def test_too_few_pivots_are_not_passed_over():
    with (
        pytest.raises(ConvergenceError, match="1 pivots"),
        pytest.warns(UserWarning, match="numItermax"),
    ):
        exact(torch.rand(50, 50, dtype=D), max_iterations=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_is_solved_in_double_precision(dtype):
    cost = torch.rand(20, 20).to(dtype)
    found = exact(cost)
    assert found.matrix.dtype == torch.float32
    assert_close(found.cost.double(), exact(cost.double()).cost, rtol=1e-6, atol=0)


def test_large_costs_beside_masks_keep_their_digits():
    # The price that stands for a mask must not drown differences between costs.
    cost, a, b = problem(5)
    cost = 1e6 + cost
    cost[0, 0] = inf
    assert_close(exact(cost, a, b).cost.item(), linear_program(cost, a, b), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("cost", "a", "b", "sentence"),
    [
        ([[0.0, 1.0]], [1.0], [0.5, 0.4], "equal totals; found 1 and 0.9"),
        ([[0.0, -1.0]], None, None, r"negative; found -1 at \(0, 1\)"),
        ([[0.0, math.nan]], None, None, "NaN"),
        ([[inf, inf], [0.0, 1.0]], None, None, "row 0 is masked everywhere"),
        ([[0.0, inf], [0.0, inf]], None, None, "column 1 is masked everywhere"),
        ([[0.0, 1.0]], [0.5, 0.5], None, "1 points"),
    ],
)
def test_bad_input_is_refused(cost, a, b, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        exact(cost, a, b)
