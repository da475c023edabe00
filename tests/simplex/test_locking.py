"""The exact locking bound: never exceeded, and attained."""

import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError


def shifted(p: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    return torch.softmax(p.log() + step, -1)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(2, 6), st.floats(0.1, 8), st.floats(0.01, 20), st.booleans()
)
def test_no_step_exceeds_the_bound(seed, v, spread, osc, corner):
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(spread * torch.randn(64, v, generator=generator, dtype=torch.float64), -1)
    step = torch.rand(64, v, generator=generator, dtype=torch.float64)
    step = step.round() if corner else step
    reached = simplex.oscillation(osc * step)
    moved = simplex.total_variation(p, shifted(p, osc * step))
    assert (moved <= simplex.locking_bound(p, reached) + 1e-12).all()


@pytest.mark.parametrize("delta", [0.3, 0.1, 0.01, 1e-6])
@pytest.mark.parametrize("osc", [0.01, 0.5, 1.5, 8.0])
def test_the_bound_is_attained(delta, osc):
    critical = 1 / (1 + math.exp(osc / 2))
    if delta <= critical:
        p, step = [1 - delta, delta], [0.0, osc]
    else:  # a part of the tail of exactly the critical mass moves
        p, step = [1 - delta, critical, delta - critical], [0.0, osc, 0.0]
    p = torch.tensor(p, dtype=torch.float64)
    moved = simplex.total_variation(p, shifted(p, torch.tensor(step, dtype=torch.float64)))
    assert_close(simplex.locking_bound(p, osc), moved, rtol=1e-9, atol=0)


@pytest.mark.parametrize("osc", [0.3, 2.0, 9.0])
def test_tanh_bounds_every_step_and_is_tight_for_two_outcomes(osc):
    critical = 1 / (1 + math.exp(osc / 2))
    p = torch.tensor([1 - critical, critical], dtype=torch.float64)
    moved = simplex.total_variation(p, shifted(p, torch.tensor([0.0, osc]).double()))
    assert_close(moved.item(), math.tanh(osc / 4))
    deltas = torch.linspace(0, 0.8, 200, dtype=torch.float64)
    p = torch.stack([1 - deltas] + [deltas / 4] * 4, -1)
    assert (simplex.locking_bound(p, osc) <= math.tanh(osc / 4) + 1e-15).all()


def test_an_optimiser_finds_the_bound_and_no_more():
    # Free tail split and free step at fixed δ: the supremum is the bound.
    delta, osc = 0.2, 2.5

    def loss(x):
        split = torch.softmax(torch.tensor(x[:3]), -1)
        p = torch.cat([torch.tensor([1 - delta], dtype=torch.float64), delta * split])
        step = osc * torch.sigmoid(torch.tensor([*x[3:]]))
        return -simplex.total_variation(p, shifted(p, step)).item()

    best = min(
        (minimize(loss, torch.randn(7, generator=g).double().numpy(), method="Nelder-Mead",
                  options={"maxiter": 4000, "maxfev": 4000, "xatol": 1e-9, "fatol": 1e-12})
         for g in (torch.Generator().manual_seed(s) for s in range(3))),
        key=lambda r: r.fun,
    )  # fmt: skip
    bound = simplex.locking_bound([1 - delta, delta], osc).item()
    assert -best.fun <= bound + 1e-12
    assert_close(-best.fun, bound, rtol=1e-3, atol=0)


def test_the_numbers_of_the_theory_page():
    p = torch.tensor([0.99, 0.01], dtype=torch.float64)
    moved = simplex.total_variation(p, shifted(p, torch.tensor([0.0, 8.0]).double()))
    assert_close(moved.item(), 0.958, rtol=0, atol=5e-4)
    assert_close(simplex.locking_bound(p, 8.0), moved)


def test_small_steps_recover_four_delta_one_minus_delta():
    # 000 eq 20 has .2 where the first order is ‖Δp‖₁ ≤ .36 ‖Δz‖_∞, osc = 2‖Δz‖_∞.
    osc = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(simplex.locking_bound([0.9, 0.1], osc), osc)
    assert_close(4 * slope.item(), 0.36)


def exact_bound(delta: float, osc: float) -> float:
    getcontext().prec = 400
    d, growth = Decimal(delta), Decimal(osc).exp()
    if d <= 1 / (1 + (Decimal(osc) / 2).exp()):
        return float(d * growth / (1 - d + d * growth) - d)
    return float(((Decimal(osc) / 2).exp() - 1) / ((Decimal(osc) / 2).exp() + 1))


@pytest.mark.parametrize("delta", [0.0, 1e-30, 1e-12, 1e-7, 0.02, 0.49])
@pytest.mark.parametrize("osc", [0.0, 1e-9, 1e-3, 1.0, 30.0, 120.0, 700.0, 1600.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_is_stable_for_tiny_tails_and_large_steps(delta, osc, dtype):
    p = torch.tensor([1 - delta, delta], dtype=dtype)
    tail = (p[1].double() / p.double().sum()).item()
    oracle = exact_bound(tail, osc)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    assert_close(simplex.locking_bound(p, osc).item(), oracle, rtol=tolerance, atol=1e-45)


def test_osc_broadcasts_against_the_batch():
    p = torch.softmax(torch.randn(3, 1, 5, generator=torch.Generator().manual_seed(0)), -1)
    osc = torch.tensor([0.1, 1.0])
    bound = simplex.locking_bound(p, osc)
    assert bound.shape == (3, 2)
    assert_close(bound[2, 1], simplex.locking_bound(p[2, 0], 1.0))


def test_the_bound_is_differentiable_on_both_branches():
    for delta in (0.05, 0.6):
        z = torch.tensor([1 - delta, 0.7 * delta, 0.3 * delta], dtype=torch.float64).log()
        osc = torch.tensor(1.2, dtype=torch.float64)
        assert torch.autograd.gradcheck(
            lambda z, o: simplex.locking_bound(torch.softmax(z, -1), o),
            (z.requires_grad_(), osc.requires_grad_()),
        )
    p = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(simplex.locking_bound(p, 3.0), p)
    assert_close(slope[1] - slope[0], torch.tensor(math.expm1(3.0)).double())


@pytest.mark.parametrize(
    ("osc", "sentence"),
    [
        (-0.1, r"osc must be ≥ 0.*-0\.1"),
        (torch.tensor([0.5, -2.0]), r"osc must be ≥ 0.*-2 at \(1,\)"),
        (math.nan, "osc must be finite.*nan"),
        (math.inf, "osc must be finite.*inf"),
        (torch.tensor(1), "floating-point"),
    ],
)
def test_an_oscillation_that_is_none_is_refused(osc, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        simplex.locking_bound([0.9, 0.1], osc)


def test_oscillation_is_the_range_and_knows_no_gauge():
    v = torch.tensor([[1.0, -2.0, 4.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert_close(simplex.oscillation(v), torch.tensor([6.0, 0.0]).double())
    assert_close(simplex.oscillation(v + 3), simplex.oscillation(v))
