"""Only the gradient part of a score's error moves marginals."""

import math

import pytest
import torch
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.score import gradient_part, mixture_score, score_error

TURN = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
MEANS = torch.tensor([[1.2, 0.0], [-1.2, 0.4]], dtype=torch.float64)
SPREADS = torch.tensor([[[0.5, 0.1], [0.1, 0.6]], [[0.8, 0.0], [0.0, 0.4]]], dtype=torch.float64)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=source(seed), dtype=torch.float64)


def arms(n, seed=0):
    k = torch.randint(2, (n,), generator=source(seed))
    return (
        MEANS[k] + (torch.linalg.cholesky(SPREADS)[k] @ normal(n, 2, seed + 1)[..., None])[..., 0]
    )


def arms_score(x):
    return mixture_score(x, [0.5, 0.5], MEANS, SPREADS)


def slope(x):
    """∇(½x₀² − sin x₁ + .3x₀x₁)."""
    return torch.stack([x[:, 0] + 0.3 * x[:, 1], -x[:, 1].cos() + 0.3 * x[:, 0]], 1)


def test_a_gradient_error_has_no_rotational_part():
    x = arms(4000)
    found = score_error(x, arms_score(x) + 0.3 * slope(x), arms_score(x), generator=source())
    assert found.status == "ok"
    assert abs(found.rotational) < 0.03 * found.total
    assert found.total == pytest.approx(float((0.3 * slope(x)).square().sum(1).mean()))


@pytest.mark.parametrize("law", ["gaussian", "mixture"])
def test_an_error_that_circulates_has_no_gradient_part(law):
    """∇·(μ Q∇log μ) = ∇·(Q∇μ) = 0 for antisymmetric Q; Qx under N(0, I) is the Gaussian case."""
    x = normal(4000, 2) if law == "gaussian" else arms(4000)
    s = -x if law == "gaussian" else arms_score(x)
    found = score_error(x, s + 0.5 * s @ TURN, s, generator=source())
    assert abs(found.gradient) < 0.03 * found.total
    assert found.relative == pytest.approx(0.5)


def test_parts_of_a_linear_error_are_those_of_the_oracle():
    """e = Mx under N(0, Σ), diffusion a: the field is aMx."""
    cov = torch.tensor([[1.0, 0.3], [0.3, 2.0]], dtype=torch.float64)
    a = torch.tensor([[1.0, 0.2], [0.2, 0.5]], dtype=torch.float64)
    M = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    x = normal(8000, 2) @ torch.linalg.cholesky(cov).T
    s = -x @ torch.linalg.inv(cov)
    found = score_error(x, s + x @ M.T, s, diffusion=a, generator=source())
    exact = oracles.gaussian_rotational_energy(a @ M, cov, a)
    assert found.rotational == pytest.approx(exact, rel=0.06)  # 8,000 points
    parts = found.gradient + found.rotational + found.unresolved
    assert parts == pytest.approx(found.total)
    assert abs(found.unresolved) < 0.01 * found.total
    assert found.total == pytest.approx(float(torch.trace(M.T @ a @ M @ cov)), rel=0.06)


def pushed(x, field, horizon=1.0, steps=20):
    """Flow of ẋ = −½·a·field (a = 2) by the classical Runge–Kutta scheme."""
    h = horizon / steps
    for _ in range(steps):
        k1 = -field(x)
        k2 = -field(x + h / 2 * k1)
        k3 = -field(x + h / 2 * k2)
        k4 = -field(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def characteristic(x):
    """E cos(k·x) and E sin(k·x) at a few k: a law is known by these."""
    k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [2.0, 0.5]]).double()
    return torch.cat([(x @ k.T).cos().mean(0), (x @ k.T).sin().mean(0)])


def test_the_rotational_error_moves_points_and_no_marginal_and_the_gradient_error_moves_both():
    """Unit clock, μ held still by the true score; a wrong one adds −e to the velocity.

    The same points before and after, 20,000 of them: a mean of a cosine is known to .007.
    """
    x = arms(20_000)
    size = 0.3

    def circulating(y):
        return size * arms_score(y) @ TURN

    def climbing(y):
        return size * arms_score(y)

    turned, climbed = pushed(x, circulating), pushed(x, climbing)
    assert (turned - x).norm(dim=1).mean() > 0.2
    assert_close(characteristic(turned), characteristic(x), atol=0.02, rtol=0)
    assert (characteristic(climbed) - characteristic(x)).abs().max() > 0.1
    part = [
        score_error(x[:4000], s + e, s, diffusion=2.0, generator=source())
        for s in [arms_score(x[:4000])]
        for e in (circulating(x[:4000]), climbing(x[:4000]))
    ]
    assert part[0].total == pytest.approx(part[1].total), "a denoising loss cannot tell them apart"
    assert part[0].relative_gradient < 0.25 * part[1].relative_gradient


def test_no_error_has_no_parts():
    x = normal(100, 2)
    found = score_error(x, -x, -x, generator=source())
    assert (found.total, found.gradient, found.rotational, found.relative) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: gradient_part(x, x[:, :1], generator=source()), "field must have shape"),
        (lambda x: gradient_part(x, x / 0, generator=source()), "finite"),
        (lambda x: gradient_part(x[:5], x[:5], generator=source()), "at least 8 points"),
        (lambda x: gradient_part(x, x, diffusion=0.0, generator=source()), "positive definite"),
        (lambda x: score_error(x, x[:9], x, generator=source()), "learned must have shape"),
        (lambda x: score_error(x, x, x * math.nan, generator=source()), "true must be finite"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call(normal(100, 2))
