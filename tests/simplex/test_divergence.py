"""Entropy, total variation and Kullback–Leibler divergence against closed forms and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.testing import assert_close

from flowscope import simplex

P = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64)
Q = torch.tensor([0.25, 0.25, 0.25, 0.25], dtype=torch.float64)


def rows(n=50, v=12, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(n, v, generator=generator, dtype=torch.float64), -1).to(
        dtype
    )


def peaked(delta, v=1000):
    """Float32 rows with tail mass delta, and the same numbers in float64."""
    generator = torch.Generator().manual_seed(1)
    tail = torch.rand(v - 1, generator=generator, dtype=torch.float64)
    tail = (delta * tail / tail.sum()).float()
    p = torch.cat([(1 - tail.double().sum()).float()[None], tail])
    exact = p.double()
    exact[0] = 1 - exact[1:].sum()
    return p, exact


def test_entropy_matches_scipy():
    p = rows()
    assert_close(simplex.entropy(p), torch.from_numpy(stats.entropy(p.numpy(), axis=-1)))


def test_entropy_of_a_vertex_is_zero_and_of_the_centre_is_log_v():
    assert_close(simplex.entropy([1, 0, 0]), torch.tensor(0.0).double())
    assert_close(simplex.entropy([0.25] * 4), torch.tensor(math.log(4)).double())


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_entropy_keeps_its_relative_accuracy_near_a_vertex(delta):
    p, exact = peaked(delta)
    tail = exact[1:].numpy()
    oracle = special.entr(tail).sum() - (1 - tail.sum()) * np.log1p(-tail.sum())
    assert_close(simplex.entropy(p).double().item(), oracle, rtol=2e-6, atol=0)


def test_entropy_rate_along_the_replicator_is_minus_the_covariance():
    # 000 L.1 eq 14 says entropy can only fall; with b = −log p it rises.
    p = torch.softmax(torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64), -1)
    b = -p.log()
    t = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    (rate,) = torch.autograd.grad(simplex.entropy(simplex.replicator_flow(p, b, t)), t)
    covariance = (p * b * p.log()).sum() - (p * b).sum() * (p * p.log()).sum()
    assert_close(rate, -covariance)
    assert_close(rate.item(), 0.424405, rtol=0, atol=5e-7)


def test_total_variation_is_half_the_one_norm():
    p, q = rows(seed=0), rows(seed=1)
    assert_close(simplex.total_variation(p, q), 0.5 * (p - q).abs().sum(-1))
    assert_close(simplex.total_variation([1, 0], [0, 1]), torch.tensor(1.0).double())


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_total_variation_near_a_vertex_is_read_from_the_tail(delta):
    p, exact_p = peaked(delta)
    q, exact_q = peaked(3 * delta)
    oracle = 0.5 * (exact_p - exact_q).abs().sum()
    assert_close(simplex.total_variation(p, q).double(), oracle, rtol=1e-5, atol=0)


def test_kl_divergence_matches_scipy():
    p, q = rows(seed=0), rows(seed=1)
    oracle = torch.from_numpy(special.rel_entr(p.numpy(), q.numpy()).sum(-1))
    assert_close(simplex.kl_divergence(p, q), oracle)


def test_kl_divergence_counts_nothing_where_p_is_zero():
    assert_close(simplex.kl_divergence(P, Q), P[0] * math.log(2))


def test_kl_divergence_is_infinite_where_q_alone_is_zero():
    assert simplex.kl_divergence(Q, P).item() == math.inf
    assert simplex.kl_divergence(P, P).item() == 0.0


def test_kl_divergence_of_close_vectors_keeps_digits_in_float32():
    p = rows(1, 5000, dtype=torch.float32)[0]
    noise = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    q = simplex.replicator_flow(p, noise, 1e-3)
    p64, q64 = p.double() / p.double().sum(), q.double() / q.double().sum()
    oracle = special.rel_entr(p64.numpy(), q64.numpy()).sum()
    assert_close(simplex.kl_divergence(p, q).item(), oracle, rtol=1e-3, atol=0)
    naive = (p * (p / q).log()).sum().item()
    assert abs(naive / oracle - 1) > 1e-2


def test_kl_divergence_holds_where_the_ratio_overflows():
    p = torch.tensor([0.5, 0.5])
    q = torch.tensor([1.0, 1e-44])
    oracle = 0.5 * math.log(0.5) + 0.5 * (math.log(0.5) - math.log(q[1].double().item()))
    assert_close(simplex.kl_divergence(p, q).item(), oracle, rtol=1e-6, atol=0)


def test_pinsker():
    p, q = rows(seed=4), rows(seed=5)
    slack = simplex.kl_divergence(p, q) - 2 * simplex.total_variation(p, q) ** 2
    assert slack.min() >= 0


@pytest.mark.parametrize(
    "function",
    [
        simplex.entropy,
        lambda p: simplex.kl_divergence(p, torch.softmax(torch.tensor([1.0, 0, 2]).double(), -1)),
        lambda p: simplex.kl_divergence([0.5, 0.5, 0.0], p),
        lambda p: simplex.total_variation(p, [0.2, 0.3, 0.5]),
    ],
    ids=["entropy", "kl in p", "kl in q", "total variation"],
)
def test_a_masked_outcome_gets_the_gradient_of_the_face(function):
    z = torch.tensor([0.3, -0.4, -math.inf], dtype=torch.float64, requires_grad=True)
    (masked,) = torch.autograd.grad(function(torch.softmax(z, -1)), z)
    nearly = torch.tensor([0.3, -0.4, -60.0], dtype=torch.float64, requires_grad=True)
    (limit,) = torch.autograd.grad(function(torch.softmax(nearly, -1)), nearly)
    assert_close(masked, limit, rtol=1e-10, atol=1e-10)
