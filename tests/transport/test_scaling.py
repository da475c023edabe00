"""The iteration itself: every way through it gives the same coupling."""

import pytest
import torch
from tests.transport.hard_cases import hard_cases
from torch.testing import assert_close

from flowscope.transport import CostMatrix, sinkhorn, unbalanced
from flowscope.transport.newton import newton_potential
from flowscope.transport.plain import plain_start, safely_plain
from flowscope.transport.problem import as_problem
from flowscope.transport.scaling import Settings, scaled

D = torch.float64


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def flat(cost, epsilon, a=None, b=None):
    return as_problem(cost, a, b, epsilon=epsilon, relative_epsilon=None).flat()


def settings(tolerance=1e-10, *, anneal=True, accelerate=True, most=10_000):
    return Settings(
        tolerance=tolerance,
        max_iterations=most,
        anneal=anneal,
        accelerate=accelerate,
        newton=accelerate,
    )


def test_the_plain_way_ends_where_the_guarded_one_does(monkeypatch):
    problem = flat(drawn(3, 20, 15), 0.3)
    assert safely_plain(problem)
    short = scaled(problem, settings())
    monkeypatch.setattr("flowscope.transport.scaling.safely_plain", lambda problem: False)
    guarded = scaled(problem, settings())
    assert short.converged.all()
    assert guarded.converged.all()
    total = short.f[..., None] + short.g[:, None] - guarded.f[..., None] - guarded.g[:, None]
    assert total.abs().max() < 1e-9


def test_the_plain_way_is_left_to_others_when_it_would_be_long():
    problem = flat(drawn(2, 20, 15), 0.004)
    assert safely_plain(problem)
    *_, error, sweeps = plain_start(problem, 1e-9, 10_000, accelerate=True)
    assert sweeps < 20
    assert error.max() > 1e-9


@pytest.mark.parametrize("small", ["cost", "mass"])
def test_the_plain_way_is_closed_where_something_could_underflow(small):
    b = torch.ones(15, dtype=D)
    if small == "mass":
        b[0] = 1e-33
    epsilon = 1e-3 if small == "cost" else 1.0
    assert not safely_plain(flat(drawn(1, 20, 15), epsilon, None, b / b.sum()))


def test_newton_steps_finish_what_sweeps_do_not():
    cost = drawn(4, 40, 40, seed=3)
    problem = flat(cost, 3e-3 * 0.5)
    slow = scaled(problem, settings(1e-9, accelerate=False, most=3_000))
    assert not slow.converged.any(), "else this shows nothing"
    fast = scaled(problem, settings(1e-9, most=200))
    assert fast.converged.all()


def test_a_newton_step_never_lowers_the_dual_value():
    cost = drawn(3, 12, 9, seed=4)
    problem = flat(cost, 2e-3)
    start = torch.zeros(3, 9, dtype=D)

    def dual(g):
        e = problem.epsilon[:, None]
        f = -e * problem.geometry.soft_rows(g / e + problem.b.log(), problem.epsilon)
        return (problem.a * f).sum(-1) + (problem.b * g).sum(-1)

    assert (dual(newton_potential(problem, start, 1e-9)) > dual(start)).all()


def test_acceleration_saves_two_sweeps_in_three_on_hard_problems():
    ratios = []
    for case in hard_cases()[4:7]:
        cost = torch.cdist(case.x, case.y).square() / 2
        counts = [
            sinkhorn(
                cost,
                case.a,
                case.b,
                epsilon=case.epsilon,
                tolerance=1e-9,
                anneal=False,
                acceleration=kind,
                max_iterations=100_000,
            ).iterations.item()
            for kind in (None, "anderson")
        ]
        ratios.append(counts[0] / counts[1])
    assert sorted(ratios)[len(ratios) // 2] > 3
    assert min(ratios) > 0.9


def test_shares_of_a_batch_agree_with_the_whole(monkeypatch):
    cost = drawn(9, 40, 30, seed=5)
    alone = sinkhorn(cost, epsilon=0.01, tolerance=1e-10)
    monkeypatch.setattr("flowscope.transport.scaling._WORTH_SHARING", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    shared = sinkhorn(cost, epsilon=0.01, tolerance=1e-10)
    assert_close(shared.matrix, alone.matrix, rtol=0, atol=1e-9)


def test_single_precision_that_cannot_reach_its_tolerance_is_widened():
    cost = drawn(10, 10).float()
    assert sinkhorn(cost, epsilon=0.1).matrix.dtype == torch.float32
    fine = sinkhorn(cost, epsilon=0.1, tolerance=1e-9)
    assert fine.matrix.dtype == D
    assert fine.marginal_error < 1e-9


def test_a_relaxed_sweep_contracts_by_its_own_factor():
    # ρ/(ρ+ε) whatever the cost: 40 sweeps at one half leave nothing.
    cost = 50 * drawn(12, 12)
    coupling = unbalanced(
        CostMatrix(cost), epsilon=1.0, relaxation=1.0, tolerance=1e-9, acceleration=None
    )
    assert coupling.iterations < 50
