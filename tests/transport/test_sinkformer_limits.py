"""What Sinkhorn attention is in the limit: a Wasserstein gradient flow, and the heat equation.

Sander, Ablin, Blondel, Peyré (Sinkformers, 2022), Proposition 2 and the heat limit, with the factor
that the kernel e^{−r²/2ε} has: ½Δρ.
"""

import itertools

import numpy as np
import pytest
import torch

from flowscope.transport.iterations import sinkhorn_attention


def symmetric_value_matrix(d, seed=0):
    half = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (half + half.T) / 2  # indefinite on purpose: nothing is asked of its signs


def particles(n=9, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def velocity(x, value, iterations):
    """ẋ_i = Σ_j Π_ij W_V x_j, with W_QᵀW_K = W_KᵀW_Q = −W_V."""
    return sinkhorn_attention(-x @ value @ x.T, iterations) @ x @ value


def functional(x, value, iterations):
    """F = −½ ∫ k log(k/k⁰) dμ⊗dμ for n particles of mass 1/n; k = nΠ is a density."""
    n, logits = len(x), -x @ value @ x.T
    k = n * sinkhorn_attention(logits, iterations)
    return -0.5 * (k * (k.log() - logits)).sum() / n**2


def descent(x, value, iterations):
    """Minus the Wasserstein gradient at each particle: −n ∂F/∂x_i."""
    x = x.detach().requires_grad_(True)
    return -len(x) * torch.autograd.grad(functional(x, value, iterations), x)[0]


def test_the_sinkhorn_flow_descends_its_functional():
    """Proposition 2; the gradient goes through every iteration, the velocity through none."""
    x, value = particles(), symmetric_value_matrix(3)
    expected = descent(x, value, 400)
    assert expected.norm() > 1
    torch.testing.assert_close(velocity(x, value, 400), expected, rtol=0, atol=1e-12)


def test_softmax_fails_the_same_test():
    x, value = particles(), symmetric_value_matrix(3)
    gap = (velocity(x, value, 0) - descent(x, value, 0)).norm() / velocity(x, value, 0).norm()
    assert gap > 0.1


def asymmetry(iterations):
    x, value = particles(6, 2), symmetric_value_matrix(2)
    jacobian = torch.autograd.functional.jacobian(lambda y: velocity(y, value, iterations), x)
    square = jacobian.reshape(12, 12)
    return ((square - square.T).norm() / square.norm()).item()


def test_the_sinkhorn_velocity_is_a_gradient_and_that_of_softmax_is_not():
    """A field of n equal particles is a gradient when its Jacobian is symmetric."""
    assert asymmetry(600) < 1e-9
    assert asymmetry(0) > 0.05


def test_the_gap_to_the_gradient_closes_with_the_iterations():
    x, value = particles(), symmetric_value_matrix(3)
    gaps = [
        (velocity(x, value, k) - descent(x, value, k)).norm().item() for k in (0, 2, 16, 32, 64)
    ]
    assert all(later < earlier / 2 for earlier, later in itertools.pairwise(gaps))


# The heat limit: particles at the quantiles of ρ(x) = 1 + a cos 2πx on the circle.
AMPLITUDE, POINTS = 0.4, 300


def quantiles():
    u = (np.arange(POINTS) + 0.5) / POINTS
    x = u.copy()
    for _ in range(50):
        x -= (x + AMPLITUDE * np.sin(2 * np.pi * x) / (2 * np.pi) - u) / (
            1 + AMPLITUDE * np.cos(2 * np.pi * x)
        )
    return torch.tensor(x)


def score(x):
    """∂ log ρ."""
    wave = 2 * np.pi * x
    return -2 * np.pi * AMPLITUDE * wave.sin() / (1 + AMPLITUDE * wave.cos())


def flow(x, epsilon, spread, iterations):
    """−(1/ε) Σ_j Π_ij (x_j − x_i) with the kernel e^{−r²/(2·spread·ε)}, over the shortest arc.

    The kernel is below e^{−15} at half the circle, so one image is enough.
    """
    arc = torch.remainder(x - x[:, None] + 0.5, 1.0) - 0.5
    kernel = sinkhorn_attention(-(arc**2) / (2 * spread * epsilon), iterations)
    return -(kernel * arc).sum(-1) / epsilon


EPSILONS = np.array([2e-3, 1e-3, 5e-4])


def errors(spread, factor, iterations=1000):
    """Largest distance to −factor·∂log ρ, whose continuity equation is ∂_tρ = factor·Δρ."""
    x = quantiles()
    return np.array(
        [
            (flow(x, eps, spread, iterations) + factor * score(x)).abs().max().item()
            for eps in EPSILONS
        ]
    )


@pytest.mark.parametrize(("spread", "factor"), [(1.0, 0.5), (2.0, 1.0)])
def test_the_flow_tends_to_the_heat_equation_with_order_one(spread, factor):
    """e^{−r²/2ε} gives ½Δρ, e^{−r²/4ε} gives Δρ."""
    found = errors(spread, factor)
    order = np.polyfit(np.log(EPSILONS), np.log(found), 1)[0]
    assert order == pytest.approx(1.0, abs=0.1)
    assert found[-1] < 0.02 * factor * score(quantiles()).abs().max()


def test_the_factor_of_the_other_kernel_does_not_fit():
    assert errors(1.0, 1.0).min() > 0.4 * score(quantiles()).abs().max()


def test_softmax_has_the_whole_score_where_sinkhorn_has_half():
    """Normalising rows alone weighs keys by ρ, both sides by √ρ: drift ε∂log ρ, not half of it."""
    found = errors(1.0, 1.0, iterations=0)
    order = np.polyfit(np.log(EPSILONS), np.log(found), 1)[0]
    assert order == pytest.approx(1.0, abs=0.1)
