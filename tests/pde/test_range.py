"""Numbers near the ends of the range: squares that overflow or vanish, differences that do."""

import math

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.pde import (
    advection_diffusion,
    decodable_information,
    energy_balance,
    euler_limit,
    graph_spectrum,
    jacobian_bounds,
    path_alignment,
    persistence,
    straight_line,
    token_spectrum,
)
from flowscope.pde.states import scale_of

SMALL, LARGE = 2.0**-100, 2.0**100  # their squares are beyond float32


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_is_a_power_of_two_that_brings_every_size_near_one(dtype):
    limits = torch.finfo(dtype)
    sizes = torch.tensor([limits.tiny / 2**10, limits.tiny, 0.3, 1.0, 6.5, limits.max], dtype=dtype)
    scale = scale_of(sizes[:, None], -1)[:, 0]
    assert (torch.frexp(scale).mantissa == 0.5).all()
    assert ((sizes * scale)[1:] >= 0.5).all()
    assert ((sizes * scale) <= 4).all()
    assert (sizes * scale)[0] >= 2**-12
    assert scale_of(torch.zeros(1, 1, dtype=dtype), -1).isfinite().all()


def test_a_key_that_nobody_looks_at_counts_nothing_however_far_it_is():
    P = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    far = advection_diffusion(P, torch.tensor([0.0, 1.0, 1e30]))
    assert far.diffusion.tolist() == [0.25, 0.25, 0.0]
    with pytest.raises(InvalidInputError, match="pass float64"):
        advection_diffusion(torch.eye(3).roll(1, 0), torch.tensor([0.0, 1.0, 1e30]))


def test_a_large_later_write_leaves_no_rounding_in_the_state_before_it():
    h = torch.tensor([[1.0, 0.0]])
    balance = energy_balance(h, [torch.tensor([[0.0, 1e12]]), torch.tensor([[0.0, -1e12]])])
    assert balance.angular[0].item() == pytest.approx(1e12)
    assert balance.radial[0].item() == 0


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e-38])
def test_radial_and_angular_parts_of_a_small_write(size):
    write = torch.tensor([[3.0, 4.0]]) * size
    balance = energy_balance(torch.tensor([[1.0, 0.0]]), [write])
    assert balance.radial.item() == pytest.approx(0.6)
    assert balance.angular.item() / size == pytest.approx(4.0)


@pytest.mark.parametrize("scale", [SMALL, LARGE])
def test_spectra_do_not_depend_on_the_unit(scale):
    x, P = normal(6, 3), normal(6, 6).softmax(-1)
    for spectrum in (token_spectrum, lambda y: graph_spectrum(P, y)):
        assert torch.equal(spectrum(x).shares, spectrum(x * scale).shares)


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-130, 2.0**120, 2.0**900])
def test_alignment_does_not_depend_on_the_unit(scale):
    path, reference = normal(2, 3, 2, 4, 3, dtype=torch.float64)
    one, other = path_alignment(path, reference), path_alignment(path * scale, reference * scale)
    for name in ("mse", "cosine", "spectral", "cka", "skill"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_alignment_with_a_reference_of_zero():
    zero, one = torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2)
    assert path_alignment(zero, zero).mse.item() == 0
    assert path_alignment(one, zero).mse.item() == math.inf
    assert path_alignment(one, zero).skill.isnan().all()


def test_a_straight_line_between_the_ends_of_the_range():
    ends = torch.tensor([-3e38, 0.0, 3e38]).reshape(3, 1, 1, 1)
    assert straight_line(ends).flatten().tolist() == ends.flatten().tolist()


@pytest.mark.parametrize("null", [straight_line, persistence])
@pytest.mark.parametrize(
    "reference",
    [torch.full((2, 1, 1, 1), math.nan), torch.ones(2, 2), torch.ones(0, 1, 1, 1)],
    ids=["NaN", "shape", "no state"],
)
def test_nulls_refuse_what_is_no_path(null, reference):
    with pytest.raises(InvalidInputError, match="reference"):
        null(reference)


def test_the_gain_of_a_small_jacobian_in_float32():
    J = normal(3, 3) * 1e-28
    bounds = jacobian_bounds(lambda h: h @ J.T, torch.ones(1, 3), metric="plain")
    assert bounds.sigma_max.value == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=1e-5)


def test_the_euler_limit_of_a_slow_mode():
    assert euler_limit([[-1e-200]]) == pytest.approx(2e200)


def test_information_refuses_states_whose_variance_overflows():
    labels = torch.arange(20) % 2
    with pytest.raises(InvalidInputError, match="below 1e"):
        decodable_information(normal(20, 2).double() * 1e160, labels, torch.arange(20) // 4)
