"""Analytic scores against autograd of the log density, Stein's identities and the oracles."""

import math

import numpy as np
import pytest
import torch
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.score import (
    gaussian_score,
    mixture_log_density,
    mixture_score,
    noised_moments,
    student_t_score,
)


def spd(d, seed):
    root = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T / d + 0.3 * torch.eye(d, dtype=torch.float64)


def mixture(d):
    means = torch.stack([torch.ones(d), -torch.ones(d), torch.linspace(-2, 2, d)]).double()
    w = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    return w, means, torch.stack([spd(d, k) for k in range(3)])


def slope(log_density, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(log_density(x).sum(), x)[0]


@pytest.mark.parametrize("d", [1, 3, 8])
def test_gaussian_score_is_the_slope_of_the_log_density(d):
    x, mean, C = torch.randn(50, d).double(), torch.randn(d).double(), spd(d, 7)
    law = torch.distributions.MultivariateNormal(mean, C)
    assert_close(gaussian_score(x, mean, C), slope(law.log_prob, x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_mixture_score_is_the_slope_of_the_log_density(d):
    w, m, C = mixture(d)
    law = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(w), torch.distributions.MultivariateNormal(m, C)
    )
    x = 2 * torch.randn(50, d).double()
    assert_close(mixture_log_density(x, w, m, C), law.log_prob(x))
    assert_close(mixture_score(x, w, m, C), slope(law.log_prob, x), rtol=1e-8, atol=1e-9)


def test_mixture_score_stays_exact_where_every_density_underflows():
    """At x = 300 a density is e^{-45000}; the score is that of the nearer component."""
    out = mixture_score([[300.0]], [0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]])
    assert_close(out, torch.tensor([[-299.0]]).double())


def test_an_empty_component_has_no_say():
    x = torch.randn(9, 1).double()
    full = mixture_score(x, [1.0, 0.0], [[0.3], [5.0]], [[[2.0]], [[1.0]]])
    assert_close(full, gaussian_score(x, [0.3], 2.0))


@pytest.mark.parametrize("nu", [1.0, 3.0, 30.0])
def test_student_score_is_the_slope_of_the_log_density(nu):
    x, C = torch.randn(20, 3).double(), spd(3, 2)

    def log_density(y):
        return -0.5 * (nu + 3) * torch.log1p(((y - 1) @ torch.linalg.inv(C) * (y - 1)).sum(-1) / nu)

    found = student_t_score(x, torch.ones(3).double(), C, freedom=nu)
    assert_close(found, slope(log_density, x), rtol=1e-9, atol=1e-10)


def test_stein_identities_hold_for_the_mixture_by_quadrature():
    x = torch.linspace(-30, 30, 40_001, dtype=torch.float64)[:, None]
    w, m, C = mixture(1)
    mass = mixture_log_density(x, w, m, C).exp() * (x[1, 0] - x[0, 0])
    s = mixture_score(x, w, m, C)[:, 0]
    assert_close((mass * s).sum(), torch.zeros(()).double(), atol=1e-10, rtol=0)
    assert_close((mass * s * x[:, 0]).sum(), -torch.ones(()).double(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("t", [0.0, 0.3, 2.0])
def test_unit_clock_gives_the_noised_mixture(t):
    at = noised_moments([[2.0], [-2.0]], [[[0.25]], [[0.25]]], t)
    x = np.linspace(-4, 4, 17)
    found = mixture_score(x[:, None], [0.5, 0.5], *at[:2])[:, 0]
    assert_close(found, torch.from_numpy(oracles.mixture_score(x, t, 2.0, 0.25)))
    assert at.signal == pytest.approx(math.exp(-t))


@pytest.mark.parametrize("beta_integral", [0.0, 0.7, 4.0])
def test_schedule_clock_gives_the_oracle_moments(beta_integral):
    at = noised_moments([1.5], [[0.3]], beta_integral, clock="schedule")
    mean, variance = oracles.ou_marginal(1.5, 0.3, beta_integral)
    assert (at.means.item(), at.covariances.item()) == pytest.approx((mean, variance))


def test_the_two_clocks_are_one_process():
    C = spd(3, 0)
    unit = noised_moments(torch.ones(3).double(), C, 0.4)
    schedule = noised_moments(torch.ones(3).double(), C, 0.8, clock="schedule")
    assert_close(unit.covariances, schedule.covariances)
    assert_close(unit.means, schedule.means)


def test_noised_law_is_the_law_of_noised_samples():
    """Fokker–Planck: ∂_t log p = d + x·s + ‖s‖² + ∇·s for dX = −X dt + √2 dW (d = 1)."""
    x = torch.linspace(-3, 3, 13).double()[:, None].requires_grad_()

    def law(t):
        return (torch.tensor([0.3, 0.7]).double(),
                *noised_moments([[2.0], [-1.0]], [[[0.25]], [[0.5]]], t)[:2])  # fmt: skip

    t, h = 0.5, 1e-5
    rate = (mixture_log_density(x, *law(t + h)) - mixture_log_density(x, *law(t - h))) / (2 * h)
    s = mixture_score(x, *law(t))
    curvature = torch.autograd.grad(s.sum(), x)[0][:, 0]
    assert_close(rate, 1 + (x * s + s**2).sum(-1) + curvature, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian_score([[1.0, 2.0]], [0.0], 1.0), "mean must have shape"),
        (lambda: gaussian_score([[1.0, 2.0]], [0.0, 0.0], [1.0, 0.0]), "positive definite"),
        (lambda: gaussian_score([[1.0]], [0.0], -1.0), "positive definite"),
        (lambda: gaussian_score([[math.nan]], [0.0], 1.0), "finite"),
        (lambda: gaussian_score([[0.0, 0.0]], [0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "asymmetry"),
        (lambda: mixture_score([[1.0]], [0.5, 0.6], [[0.0]] * 2, [[[1.0]]] * 2), "sum one"),
        (lambda: mixture_score([[1.0]], [0.5, 0.5], [[0.0]], [[[1.0]]] * 2), "means must have"),
        (lambda: mixture_score([[1.0]], [0.5, 0.5], [[0.0]] * 2, [[[1.0]]]), "covariances must"),
        (lambda: student_t_score([[1.0]], [0.0], 1.0, freedom=0.0), "freedom must be > 0"),
        (lambda: noised_moments([1.0], [[1.0]], -1.0), "t must be finite"),
        (lambda: noised_moments([1.0], [[1.0]], 1.0, clock="wall"), "clock must be"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()
