"""The least move that changes the top outcome: closed forms, laws, an optimiser, random laws."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError

KINDS = ("tv", "kl", "reverse_kl", "logit")


def distance(p, q, kind):
    """How far q lies from p in the sense of a kind."""
    if kind == "tv":
        return simplex.total_variation(p, q)
    if kind == "logit":
        return simplex.oscillation(q.log() - p.log())
    return simplex.kl_divergence(q, p) if kind == "kl" else simplex.kl_divergence(p, q)


@pytest.mark.parametrize(
    ("p", "radii"),
    [
        ([0.6, 0.3, 0.1], (0.15, 0.052844, 0.050970, math.log(2))),
        ([0.99, 0.01], (0.49, 1.614463, 0.637146, math.log(99))),
        ([0.5, 0.5], (0.0, 0.0, 0.0, 0.0)),
        ([1.0, 0.0, 0.0], (0.5, math.inf, math.log(2), math.inf)),
    ],
)
def test_closed_forms(p, radii):
    found = [simplex.flip_radius(p, kind).item() for kind in KINDS]
    assert_close(torch.tensor(found), torch.tensor(radii), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_law_inside_the_radius_has_another_top_outcome(kind):
    """10⁵ random laws about random centres: not one flips inside, and some flip just outside."""
    generator = torch.Generator().manual_seed(0)
    inside = outside = 0
    for outcomes in (2, 3, 5, 20):
        shape = (25_000, outcomes)
        p = torch.softmax(2 * torch.randn(shape, generator=generator, dtype=torch.float64), -1)
        size = 2 * torch.rand(shape[0], 1, generator=generator, dtype=torch.float64)
        step = size * torch.randn(shape, generator=generator, dtype=torch.float64)
        q = torch.softmax(p.log() + step, -1)
        flips = p.argmax(-1) != q.argmax(-1)
        close = distance(p, q, kind) < simplex.flip_radius(p, kind)
        assert not bool((flips & close).any())
        inside += int(close.sum())
        outside += int((flips & ~close).sum())
    assert inside > 5_000
    assert outside > 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_the_radius_is_attained(kind):
    """Just beyond it there is a law whose two leading outcomes tie."""
    p = torch.tensor([0.55, 0.2, 0.15, 0.1], dtype=torch.float64)
    q = p.clone()
    if kind in ("tv", "reverse_kl"):
        q[:2] = p[:2].mean()
    else:  # the two leading outcomes at their geometric mean
        q[:2] = (p[0] * p[1]).sqrt()
        q = q / q.sum()
    if kind == "logit":
        assert_close((p[0] / p[1]).log(), simplex.flip_radius(p, kind))
        return
    assert_close(distance(p, q, kind), simplex.flip_radius(p, kind), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["kl", "reverse_kl"])
def test_an_optimiser_finds_no_nearer_law(kind):
    p = np.array([0.7, 0.2, 0.1])

    def size(free):
        q = np.exp(free - free.max())
        q = q / q.sum()
        a, b = (q, p) if kind == "kl" else (p, q)
        return float((a * np.log(a / b)).sum())

    best = minimize(
        size, np.log([0.4, 0.4, 0.2]), method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        constraints={"type": "ineq", "fun": lambda free: free[1] - free[0]},
    ).fun  # fmt: skip
    assert abs(best - simplex.flip_radius(p, kind).item()) < 1e-7


def test_pinsker_is_smaller_and_without_bound():
    sure = torch.tensor([[1 - t, t] for t in (1e-2, 1e-6, 1e-12)], dtype=torch.float64)
    margin = sure[:, 0] - sure[:, 1]
    ratio = simplex.flip_radius(sure, "kl") / (margin**2 / 2)
    assert_close(ratio[0].item(), 3.3621, rtol=1e-4, atol=0)
    assert (ratio.diff() > 5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_near_a_tie_and_near_a_vertex_nothing_cancels(kind):
    """Float32 against the exact values of the numbers that were passed."""
    tie = torch.tensor([0.5 + 2**-20, 0.5 - 2**-20])
    vertex = torch.tensor([1 - 2**-22, 2**-22])
    for p in (tie, vertex):
        a, b = (float(v) for v in p)
        exact = {
            "tv": (a - b) / 2,
            "kl": -math.log1p(-(((a - b) / (math.sqrt(a) + math.sqrt(b))) ** 2))
            if a < 0.9
            else -math.log(2 * math.sqrt(a * b)),
            "reverse_kl": (a - b) ** 2 / 2
            if a < 0.9
            else a * math.log(2 * a) + b * math.log(2 * b),
            "logit": math.log(a / b),
        }[kind]
        assert_close(simplex.flip_radius(p, kind).item(), exact, rtol=1e-6, atol=0)


def test_the_radius_is_batched_and_has_no_gradient():
    p = torch.softmax(torch.randn(3, 4, 5), -1).requires_grad_()
    radius = simplex.flip_radius(p, "kl")
    assert radius.shape == (3, 4)
    assert radius.dtype == torch.float32
    assert not radius.requires_grad
    assert_close(radius[1, 2], simplex.flip_radius(p[1, 2], "kl"))


def test_an_unknown_kind_names_those_that_exist():
    with pytest.raises(InvalidInputError, match="tv, kl, reverse_kl, logit"):
        simplex.flip_radius([0.5, 0.5], "hellinger")
