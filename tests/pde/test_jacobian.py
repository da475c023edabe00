"""Bounds on Jacobians of writes against dense matrices and closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.pde import euler_limit, jacobian_bounds


def linear(J):
    return lambda x: (J @ x.reshape(-1)).reshape(x.shape)


def at(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_closed_forms_of_two_by_two():
    J = torch.tensor([[-1.0, 8.0], [0.0, -2.0]], dtype=torch.float64)
    found = jacobian_bounds(linear(J), torch.ones(1, 2).double(), metric="plain")
    assert found.log_norm.value == pytest.approx(2.5311289, abs=5e-8)
    assert found.sigma_max.value == pytest.approx(8.3031307, abs=5e-8)
    assert found.least.value == pytest.approx(-1.5 - math.sqrt(0.25 + 16), abs=1e-12)
    assert found.log_norm.residual < 1e-9
    assert found.sigma_max.residual < 1e-9
    assert euler_limit(J) == pytest.approx(1, abs=1e-12)
    spiral = torch.tensor([[-1.0, 10.0], [-10.0, -1.0]], dtype=torch.float64)
    assert euler_limit(spiral) == pytest.approx(0.0198020, abs=5e-8)
    assert euler_limit(torch.eye(2).double()) == math.inf


def test_root_mean_square_norm_at_three_four():
    def rms_norm(x):
        return x / x.square().mean(-1, keepdim=True).sqrt()

    found = jacobian_bounds(
        rms_norm, torch.tensor([[3.0, 4.0]], dtype=torch.float64), metric="plain"
    )
    assert found.log_norm.value == pytest.approx(0.2828427, abs=5e-8)
    assert found.sigma_max.value == pytest.approx(0.2828427, abs=5e-8)
    assert found.least.value == pytest.approx(0, abs=1e-12)
    assert found.mean_gain.value == pytest.approx(0.2, abs=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_bounds_are_those_of_the_dense_matrix(seed):
    J = at(12, 12, seed=seed).reshape(12, 12)
    found = jacobian_bounds(
        linear(J), at(3, 4, seed=seed + 1), metric="plain", products=30, tolerance=1e-12
    )
    symmetric = torch.linalg.eigvalsh((J + J.T) / 2)
    assert found.sigma_max.value == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=1e-8)
    assert found.log_norm.value == pytest.approx(symmetric[-1].item(), rel=1e-8)
    assert found.least.value == pytest.approx(symmetric[0].item(), rel=1e-8)


def test_the_relative_metric_scales_by_the_norms_of_tokens():
    state = at(3, 4) * torch.tensor([[1.0], [100.0], [0.1]])
    J = at(12, 12, seed=3)
    D = state.norm(dim=-1, keepdim=True).expand(3, 4).reshape(-1)
    scaled = J * D[None] / D[:, None]
    found = jacobian_bounds(linear(J), state, products=30, tolerance=1e-12)
    assert found.sigma_max.value == pytest.approx(
        torch.linalg.matrix_norm(scaled, 2).item(), rel=1e-8
    )
    top = torch.linalg.eigvalsh((scaled + scaled.T) / 2)[-1].item()
    assert found.log_norm.value == pytest.approx(top, rel=1e-8)


def test_a_common_scale_of_the_state_leaves_the_relative_metric_alone():
    def write(x):
        return torch.tanh(x / x.norm(dim=-1, keepdim=True)) * x.norm(dim=-1, keepdim=True)

    state = at(4, 3)
    first, second = (jacobian_bounds(write, c * state, products=40) for c in (1.0, 1000.0))
    assert first.sigma_max.value == pytest.approx(second.sigma_max.value, rel=1e-9)


def test_few_products_give_a_lower_bound_and_say_so():
    J = torch.diag(torch.linspace(0, 1, 400, dtype=torch.float64) ** 4)
    found = jacobian_bounds(linear(J), at(20, 20), metric="plain", products=6)
    assert found.sigma_max.value < 1
    assert not found.sigma_max.converged
    assert found.sigma_max.value + found.sigma_max.residual > found.sigma_max.value
    assert abs(found.sigma_max.value - 1) < 0.2


def test_residuals_bound_the_distance_to_an_eigenvalue():
    J = at(60, 60, seed=5)
    S = (J + J.T) / 2
    found = jacobian_bounds(linear(J), at(6, 10), metric="plain", products=12)
    apart = np.abs(torch.linalg.eigvalsh(S).numpy() - found.log_norm.value).min()
    assert 0 < apart <= found.log_norm.residual


def test_mean_gain_is_the_frobenius_norm_within_its_error():
    J = at(64, 64, seed=6)
    want = (J.square().sum() / 64).sqrt().item()
    found = jacobian_bounds(linear(J), at(8, 8), metric="plain", probes=40).mean_gain
    assert abs(found.value - want) < 4 * found.residual
    assert found.residual < 0.1 * want


def test_jacobians_refuse_half_precision_and_bad_functions():
    with pytest.raises(InvalidInputError, match="float32 or float64"):
        jacobian_bounds(lambda x: x, torch.ones(2, 2, dtype=torch.bfloat16))
    with pytest.raises(InvalidInputError, match="shape"):
        jacobian_bounds(lambda x: x[..., :1], torch.ones(2, 2))
    with pytest.raises(InvalidInputError, match="metric"):
        jacobian_bounds(lambda x: x, torch.ones(2, 2), metric="other")
    with pytest.raises(InvalidInputError, match="zero"):
        jacobian_bounds(lambda x: x, torch.zeros(2, 2))
    with pytest.raises(InvalidInputError, match="finite"):
        jacobian_bounds(lambda x: x / 0, torch.ones(2, 2))
    with pytest.raises(InvalidInputError, match="square"):
        euler_limit(torch.ones(2, 3))


def test_a_function_without_forward_derivative_is_refused_by_a_sentence():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, slope):
            return 2 * slope

    with pytest.raises(InvalidInputError, match="forward derivative"):
        jacobian_bounds(Twice.apply, torch.ones(2, 2).double())


def test_a_constant_write_has_no_gain():
    found = jacobian_bounds(lambda x: torch.ones_like(x), at(3, 4))
    assert found.sigma_max.value == found.log_norm.value == found.mean_gain.value == 0


def test_gradients_are_measured_inside_no_grad():
    with torch.no_grad():
        found = jacobian_bounds(lambda x: 3 * x, at(3, 4))
    assert found.sigma_max.value == pytest.approx(3)
    assert found.critical_leak == pytest.approx(3)
