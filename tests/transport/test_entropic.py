"""Closed forms, limits and other people's solvers; and what is refused."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport import (
    CostMatrix,
    PointCloud,
    exact,
    prescribed,
    semi_relaxed,
    sinkhorn,
    unbalanced,
)

D = torch.float64
inf = math.inf


def drawn(*shape):
    return torch.rand(*shape, dtype=D)


def masses(*shape):
    w = 0.2 + drawn(*shape)
    return w / w.sum(-1, keepdim=True)


# --- closed forms ---


@pytest.mark.parametrize("c", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
def test_two_points(c, epsilon):
    coupling = sinkhorn([[0.0, c], [c, 0.0]], epsilon=epsilon, tolerance=1e-12)
    wanted = torch.from_numpy(oracles.two_point_coupling(c, epsilon))
    assert_close(coupling.matrix, wanted, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("c", [0.5, 1.0, 3.0])
def test_two_points_contract_by_the_birkhoff_rate_every_sweep(c):
    # From potentials close to the solution the error falls by tanh²(c/2) a sweep.
    cost = [[0.0, c], [c, 0.0]]
    start = (torch.zeros(2, dtype=D), torch.tensor([1e-3, -1e-3], dtype=D))
    errors = [
        sinkhorn(
            cost, epsilon=1.0, tolerance=1e-15, max_iterations=k, initial=start,
            anneal=False, acceleration=None, on_failure="return",
        ).marginal_error.item()
        for k in range(1, 6)
    ]  # fmt: skip
    usable = [e for e in errors if e > 1e-10]
    assert len(usable) >= 3
    rates = np.array(usable[1:]) / np.array(usable[:-1])
    np.testing.assert_allclose(rates, oracles.two_point_sinkhorn_rate(c, 1.0), rtol=1e-5)


def gaussian_grid(mean, sd, reach=8.0, size=400):
    x = torch.linspace(-reach, reach, size, dtype=D)
    w = torch.exp(-((x - mean) ** 2) / (2 * sd**2))
    return x, w / w.sum()


@pytest.mark.parametrize(("s0", "s1", "epsilon"), [(1.0, 0.7, 0.5), (0.5, 1.2, 2.0)])
def test_gaussians_on_a_grid(s0, s1, epsilon):
    x, a = gaussian_grid(0.3, s0)
    _, b = gaussian_grid(-0.4, s1)
    coupling = sinkhorn(PointCloud(x[:, None]), a, b, epsilon=epsilon, tolerance=1e-9)
    covariance = (a * (x - 0.3)) @ coupling.barycentric(x[:, None] + 0.4)[:, 0]
    wanted = oracles.entropic_gaussian_coupling(s0**2, s1**2, epsilon)[0, 0]
    value = oracles.entropic_gaussian_cost(0.3, s0**2, -0.4, s1**2, epsilon)
    assert_close(covariance.item(), wanted, rtol=1e-6, atol=0)
    assert_close(coupling.value.item(), value, rtol=1e-6, atol=0)


def test_the_cross_covariance_of_the_theory_page():
    x, a = gaussian_grid(0.0, 1.0)
    _, b = gaussian_grid(0.0, 0.7)
    coupling = sinkhorn(PointCloud(x[:, None]), a, b, epsilon=0.5, tolerance=1e-9)
    assert_close(
        (a * x @ coupling.barycentric(x[:, None])[:, 0]).item(), 0.493303, rtol=0, atol=1e-6
    )


def test_free_columns_are_a_row_softmax_with_its_prior():
    cost, a, prior = drawn(6, 5), masses(6), masses(5)
    coupling = semi_relaxed(cost, a, epsilon=0.3, prior=prior)
    wanted = a[:, None] * torch.softmax(prior.log() - cost / 0.3, -1)
    assert_close(coupling.matrix, wanted)
    uniform = semi_relaxed(cost, torch.ones(6, dtype=D), epsilon=0.3)
    assert_close(uniform.matrix, torch.softmax(-cost / 0.3, -1))


def test_masks_of_free_columns_are_minus_infinity_in_the_logits():
    logits, causal = torch.randn(2, 5, 5, dtype=D), torch.ones(5, 5).tril().bool()
    cost = (logits.amax() - logits).masked_fill(~causal, inf)
    coupling = semi_relaxed(cost, torch.ones(5, dtype=D), epsilon=1.0)
    assert_close(coupling.matrix, torch.softmax(logits.masked_fill(~causal, -inf), -1))


# --- a generic convex solver ---


def convex_minimum(cost, a, b, epsilon, rho):
    """SLSQP on the entries of the coupling: rows fixed, columns drawn to b with strength rho."""
    n, m = cost.shape
    c, p, q = (x.numpy() for x in (cost, a, b))
    reference = np.outer(p, q)
    scale = np.repeat(p, m)  # optimise Π/a, so that all unknowns are of order one

    def objective(z):
        P = (z * scale).reshape(n, m)
        columns = P.sum(0)
        value = (c * P).sum() + epsilon * (P * np.log(P / reference)).sum()
        slope = c + epsilon * (np.log(P / reference) + 1)
        value += rho * ((columns * np.log(columns / q)).sum() - columns.sum() + q.sum())
        return value, (slope + rho * np.log(columns / q)).ravel() * scale

    rows = np.kron(np.eye(n), np.ones(m))
    found = minimize(
        objective, np.full(n * m, 1 / m), jac=True, bounds=[(1e-12, 1)] * (n * m), method="SLSQP",
        constraints={"type": "eq", "fun": lambda z: rows @ z - 1, "jac": lambda z: rows},
        options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    return torch.from_numpy((found.x * scale).reshape(n, m)), found.fun


def test_free_columns_solve_the_convex_problem():
    # 000 Prop. 2.1, with a prior.
    cost, a, prior = drawn(4, 3), masses(4), masses(3)
    matrix, value = convex_minimum(cost, a, prior, 0.4, 0.0)
    coupling = semi_relaxed(cost, a, epsilon=0.4, prior=prior)
    assert_close(coupling.matrix, matrix, rtol=0, atol=1e-6)
    assert_close(coupling.value.item(), value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("total", [1.0, 1.7])
@pytest.mark.parametrize("rho", [0.1, 2.0])
def test_relaxed_columns_solve_the_convex_problem(rho, total):
    cost, a, b = drawn(4, 3), masses(4), total * masses(3)
    matrix, value = convex_minimum(cost, a, b, 0.4, rho)
    coupling = unbalanced(cost, a, b, epsilon=0.4, relaxation=rho, tolerance=1e-11)
    assert_close(coupling.matrix, matrix, rtol=0, atol=1e-6)
    assert_close(coupling.value.item(), value, rtol=0, atol=1e-9)


# --- limits ---


def test_strong_relaxation_is_balanced_and_weak_is_free():
    cost, a, b = drawn(5, 4), masses(5), masses(4)
    balanced = sinkhorn(cost, a, b, epsilon=0.2, tolerance=1e-10)
    free = semi_relaxed(cost, a, epsilon=0.2, prior=b)
    strong = unbalanced(cost, a, b, epsilon=0.2, relaxation=1e5, tolerance=1e-10)
    weak = unbalanced(cost, a, b, epsilon=0.2, relaxation=1e-7, tolerance=1e-10)
    assert_close(strong.matrix, balanced.matrix, rtol=0, atol=1e-5)
    assert_close(weak.matrix, free.matrix, rtol=0, atol=1e-5)
    assert (balanced.matrix - free.matrix).abs().max() > 1e-2


def test_the_distance_to_the_balanced_coupling_falls_as_one_over_rho():
    cost, a, b = drawn(5, 4), masses(5), masses(4)
    balanced = sinkhorn(cost, a, b, epsilon=0.2, tolerance=1e-12)
    rhos = np.array([10.0, 100.0, 1000.0])
    gaps = [
        (unbalanced(cost, a, b, epsilon=0.2, relaxation=r, tolerance=1e-12).matrix
         - balanced.matrix).abs().sum().item()
        for r in rhos
    ]  # fmt: skip
    slope = np.polyfit(np.log(rhos), np.log(gaps), 1)[0]
    np.testing.assert_allclose(slope, -1, atol=0.03)


def test_small_epsilon_is_exact_and_large_is_independent():
    cost, a, b = drawn(8, 7), masses(8), masses(7)
    cold = sinkhorn(cost, a, b, epsilon=1e-3, tolerance=1e-6)
    best = exact(cost, a, b)
    # the entropy of a coupling is at most log of its size
    assert best.cost - 1e-6 <= cold.cost <= best.cost + 1e-3 * math.log(56)
    hot = sinkhorn(cost, a, b, epsilon=1e6, tolerance=1e-9)
    assert_close(hot.matrix, a[:, None] * b, rtol=0, atol=1e-6)


def peaked(place, width=3.0, size=200, floor=1e-10):
    x = np.linspace(0, 1, size)
    w = np.exp(-0.5 * ((x - place) * size / width) ** 2) + floor
    return w / w.sum()


def test_peaked_laws_where_a_plain_kernel_fails():
    # What attention looks like. The kernel e^{-C/ε} is zero between the peaks, and POT's plain
    # scaling returns a number far from the truth with no more than a warning.
    x = np.linspace(0, 1, 200)
    cost, a, b = 100 * (x[:, None] - x) ** 2 / 2, peaked(0.05), peaked(0.95)
    truth = exact(cost, a, b).cost.item()
    coupling = sinkhorn(cost, a, b, epsilon=0.02)
    assert coupling.status == "converged"
    assert_close(coupling.cost.item(), truth, rtol=0.01, atol=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plain = float(ot.sinkhorn2(a, b, cost, 0.02))
    assert said
    assert not abs(plain - truth) <= 0.1 * truth


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peaked_laws_in_low_precision(dtype):
    x = torch.linspace(0, 1, 200, dtype=D)
    cost = (100 * (x[:, None] - x) ** 2 / 2).to(dtype)
    a, b = (torch.from_numpy(peaked(p)).float() for p in (0.05, 0.95))
    truth = exact(cost.double(), a.double() / a.double().sum(), b.double() / b.double().sum()).cost
    coupling = sinkhorn(cost, a, b, epsilon=0.02)
    assert_close(coupling.cost.double(), truth, rtol=0.01, atol=0)


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_pot_agrees_where_it_is_right(epsilon):
    cost, a, b = drawn(30, 20), masses(30), masses(20)
    wanted = ot.sinkhorn(
        a.numpy(), b.numpy(), cost.numpy(), epsilon, method="sinkhorn_log", stopThr=1e-11,
        numItermax=20_000,
    )  # fmt: skip
    coupling = sinkhorn(cost, a, b, epsilon=epsilon, tolerance=1e-9)
    assert_close(coupling.matrix, torch.from_numpy(wanted), rtol=0, atol=1e-9)
    assert coupling.marginal_error <= 1e-9


@pytest.mark.parametrize("relative", [1.0, 0.1, 0.01])
def test_nine_digits_are_reached_when_asked_for(relative):
    coupling = sinkhorn(
        drawn(4, 40, 30), masses(40), masses(30), relative_epsilon=relative, tolerance=1e-9
    )
    assert (coupling.marginal_error <= 1e-9).all()
    assert_close(coupling.matrix.sum(-2), coupling.b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("relative", [1e-3, 1e-4])
def test_small_epsilon_converges_within_the_default_number_of_sweeps(relative):
    coupling = sinkhorn(drawn(4, 12, 9), masses(12), masses(9), relative_epsilon=relative)
    assert (coupling.marginal_error <= 1e-3).all()


@pytest.mark.parametrize("relative", [1e-4, 1e-5])
def test_no_problem_of_a_hundred_is_left_behind_at_small_epsilon(relative):
    """One Newton try failed 12 and 39 of these: potentials were too far for steps of e³."""
    costs = torch.rand(100, 12, 9, dtype=D, generator=torch.Generator().manual_seed(1))
    coupling = sinkhorn(costs, masses(12), masses(9), relative_epsilon=relative)
    assert (coupling.marginal_error <= 1e-3).all()
    assert (coupling.iterations <= 1000).all()


# --- masks ---


def causal_problem(n, *batch):
    """Column masses that a positive causal kernel makes of rows of one."""
    causal = torch.ones(n, n).tril().bool()
    kernel = torch.where(causal, 0.05 + drawn(*batch, n, n), 0.0)
    b = (kernel / kernel.sum(-1, keepdim=True)).sum(-2)
    cost = drawn(*batch, n, n).masked_fill(~causal, inf)
    return cost, torch.ones(n, dtype=D), b


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_prescribed_causal_columns_are_reached(epsilon):
    cost, a, b = causal_problem(12, 5)
    coupling = prescribed(cost, a, b, epsilon=epsilon, tolerance=1e-9)
    assert_close(coupling.matrix.sum(-2), b, rtol=0, atol=2e-8)
    assert (coupling.matrix.triu(1) == 0).all()


def test_the_first_prefix_that_is_too_full_is_named():
    cost, a, b = causal_problem(5)
    b = torch.tensor([1.5, 0.4, 1.2, 1.0, 0.9], dtype=D)  # two rows of one into 1.9
    with pytest.raises(InvalidInputError, match=r"prefix of 2 rows.*holds 2 and its columns 1\.9"):
        prescribed(cost, a, b, epsilon=1.0)


def test_equality_in_a_prefix_is_refused():
    cost, a, _ = causal_problem(4)
    with pytest.raises(InvalidInputError, match=r"prefix of 2 rows"):
        prescribed(cost, a, torch.tensor([1.5, 0.5, 1.5, 0.5], dtype=D), epsilon=1.0)
    with pytest.raises(InvalidInputError, match=r"prefix of 1 rows"):
        prescribed(cost, a, torch.ones(4, dtype=D), epsilon=1.0)


def test_the_problem_of_a_batch_is_named():
    cost, a, b = causal_problem(4, 3)
    b = b.clone()
    b[2] = torch.tensor([1.5, 0.4, 1.2, 0.9], dtype=D)
    with pytest.raises(InvalidInputError, match=r"prefix of 2 rows of problem \(2,\)"):
        prescribed(cost, a, b, epsilon=1.0)


def test_prescribed_needs_nested_rows():
    with pytest.raises(InvalidInputError, match="nested"):
        prescribed([[0.0, inf], [inf, 0.0]], [0.5, 0.5], [0.5, 0.5], epsilon=1.0)


def test_prescribed_without_a_mask_is_sinkhorn():
    cost, a, b = drawn(5, 4), masses(5), masses(4)
    assert_close(
        prescribed(cost, a, b, epsilon=0.2, tolerance=1e-9).matrix,
        sinkhorn(cost, a, b, epsilon=0.2, tolerance=1e-9).matrix,
    )


@pytest.mark.parametrize("batch", [(), (3,)])
def test_balanced_transport_refuses_a_causal_mask(batch):
    cost, _, _ = causal_problem(5, *batch)
    with pytest.raises(
        InvalidInputError, match=r"causal mask.*semi_relaxed.*unbalanced.*prescribed"
    ):
        sinkhorn(cost, epsilon=1.0)


def test_balanced_transport_refuses_the_mirror_of_a_causal_mask():
    cost, _, _ = causal_problem(5)
    with pytest.raises(InvalidInputError, match="causal"):
        sinkhorn(cost.mT, epsilon=1.0)


@pytest.mark.parametrize("solver", [semi_relaxed, unbalanced])
def test_causal_masks_are_at_home_where_columns_may_move(solver):
    cost, a, _ = causal_problem(6)
    options = {"relaxation": 0.5, "tolerance": 1e-9} if solver is unbalanced else {}
    coupling = solver(cost, a, epsilon=0.3, **options)
    assert_close(coupling.matrix.sum(-1), a)
    assert (coupling.matrix.triu(1) == 0).all()


def test_a_mask_that_allows_no_coupling_does_not_converge():
    cost = [[0.0, inf, inf], [0.0, inf, inf], [0.0, 0.0, 0.0]]
    with pytest.raises((ConvergenceError, InvalidInputError)):
        sinkhorn(cost, epsilon=1.0, max_iterations=300)


# --- what is refused ---


SQUARE = [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("cost", "a", "b", "options", "sentence"),
    [
        (SQUARE, [0.5, 0.5], [0.5, 0.4], {"epsilon": 1.0}, "equal totals; found 1 and 0.9"),
        ([[0.0, -1.0]], None, None, {"epsilon": 1.0}, r"negative; found -1 at \(0, 1\)"),
        ([[0.0, math.nan]], None, None, {"epsilon": 1.0}, r"NaN; found nan at \(0, 1\)"),
        ([[0.0, -inf]], None, None, {"epsilon": 1.0}, "negative; found -inf"),
        ([[inf, inf], [0.0, 1.0]], None, None, {"epsilon": 1.0}, "row 0 is masked everywhere"),
        ([[0.0, inf], [0.0, inf]], None, None, {"epsilon": 1.0}, "column 1 is masked everywhere"),
        (SQUARE, None, None, {"epsilon": 0.0}, "epsilon must be positive.*found 0.*exact"),
        (SQUARE, None, None, {"epsilon": -1.0}, "epsilon must be positive.*-1"),
        (SQUARE, None, None, {"epsilon": math.nan}, "epsilon must be positive.*nan"),
        (SQUARE, None, None, {"epsilon": inf}, "epsilon must be positive and finite.*inf"),
        (SQUARE, None, None, {"relative_epsilon": 0.0}, "relative_epsilon must be positive"),
        (SQUARE, None, None, {"relative_epsilon": 1.0}, "positive median"),
        (SQUARE, None, None, {}, "exactly one of epsilon"),
        (SQUARE, None, None, {"epsilon": 1.0, "relative_epsilon": 1.0}, "exactly one of epsilon"),
        (SQUARE, [1.0], None, {"epsilon": 1.0}, r"a must hold one mass.*2 points.*\(1,\)"),
        (SQUARE, None, [1.0] * 3, {"epsilon": 1.0}, r"b must hold one mass.*2 points.*\(3,\)"),
        (SQUARE, [1.5, -0.5], None, {"epsilon": 1.0}, r"a must have no negative mass.*-0.5"),
        (SQUARE, [math.nan, 1.0], None, {"epsilon": 1.0}, "a must be finite.*nan"),
        (SQUARE, [0.0, 0.0], None, {"epsilon": 1.0}, "a must hold some mass"),
        ([0.0, 1.0], None, None, {"epsilon": 1.0}, r"row and a column axis.*\(2,\)"),
        (SQUARE, None, None, {"epsilon": 1.0, "tolerance": 0.0}, "tolerance must be positive"),
        (SQUARE, None, None, {"epsilon": 1.0, "tolerance": math.nan}, "tolerance must be positive"),
        (SQUARE, None, None, {"epsilon": 1.0, "max_iterations": 0}, "max_iterations at least 1"),
        (SQUARE, None, None, {"epsilon": 1.0, "acceleration": "magic"}, "'magic'"),
        (SQUARE, None, None, {"epsilon": 1.0, "on_failure": "hide"}, "'hide'"),
        (SQUARE, None, None, {"epsilon": 1.0, "eps": 1.0}, "unknown option 'eps'"),
        (SQUARE, None, None, {"epsilon": torch.ones(3)}, r"epsilon must.*\(3,\)"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_sentence(cost, a, b, options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        sinkhorn(cost, a, b, **options)


def test_shapes_that_disagree_are_named():
    with pytest.raises(InvalidInputError, match=r"broadcast; found \(2,\), \(3,\), \(\)"):
        sinkhorn(drawn(2, 4, 4), masses(3, 4), epsilon=1.0)
    with pytest.raises(InvalidInputError, match=r"initial.*\(3,\)"):
        sinkhorn(drawn(4, 4), epsilon=1.0, initial=(torch.zeros(4), torch.zeros(3)))
    with pytest.raises(InvalidInputError, match="initial"):
        sinkhorn(drawn(4, 4), epsilon=1.0, initial=(torch.zeros(3, 4), torch.zeros(3, 4)))
    with pytest.raises(InvalidInputError, match=r"relaxation.*\(3,\)"):
        unbalanced(drawn(4, 4), epsilon=1.0, relaxation=torch.ones(3))
    with pytest.raises(InvalidInputError, match="4 columns"):
        sinkhorn(drawn(4, 4), epsilon=1.0).apply(drawn(3))


def test_initial_potentials_must_be_finite():
    with pytest.raises(InvalidInputError, match="initial"):
        sinkhorn(
            drawn(4, 4),
            epsilon=1.0,
            initial=(drawn(4), torch.full((4,), math.nan)),
            max_iterations=20,
        )


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, inf])
def test_relaxation_must_be_positive(rho):
    with pytest.raises(InvalidInputError, match="relaxation must be positive and finite"):
        unbalanced(SQUARE, epsilon=1.0, relaxation=rho)


def test_a_row_must_reach_a_column_that_holds_mass():
    cost, b = [[0.0, inf], [0.0, 0.0]], [0.0, 1.0]
    for call in (
        lambda: unbalanced(cost, None, b, epsilon=1.0, relaxation=1.0),
        lambda: semi_relaxed(cost, epsilon=1.0, prior=b),
        lambda: sinkhorn(CostMatrix([[0.0, inf], [0.0, 1.0]]).cost, None, b, epsilon=1.0),
    ):
        with pytest.raises(InvalidInputError, match=r"row 0|causal"):
            call()


def test_the_problem_whose_masses_differ_is_named():
    a = torch.stack([masses(4), masses(4), 1.1 * masses(4)])
    with pytest.raises(InvalidInputError, match=r"found 1\.1 and 1 in problem \(2,\)"):
        sinkhorn(drawn(3, 4, 4), a, masses(4), epsilon=1.0)


@given(mass=st.floats(0.1, 10.0), epsilon=st.floats(0.2, 2.0))
def test_value_of_masses_other_than_one_follows_the_stated_convention(mass, epsilon):
    cost = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.5, 0.3]], dtype=torch.float64)
    a = torch.tensor([0.4, 0.6], dtype=torch.float64)
    b = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    whole, scaled = (
        sinkhorn(cost, m * a, m * b, epsilon=epsilon, tolerance=1e-12).value for m in (1.0, mass)
    )
    expected = mass * whole - epsilon * mass * math.log(mass)
    assert_close(scaled, expected, rtol=1e-8, atol=1e-8)
