"""Statistics of states and steps, against closed forms."""

import math

import pytest
import torch
from torch.testing import assert_close

from flowscope import flows
from flowscope.errors import InvalidInputError


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("gap", [-3.0, 0.0, 0.7, 12.0])
def test_a_state_of_two_outcomes_in_closed_form(gap):
    found = flows.state_statistics(vector(gap, 0.0))
    p = 1 / (1 + math.exp(-abs(gap)))
    q = math.exp(-abs(gap)) * p
    assert_close(found.state_sq.item(), gap**2 / 2)
    assert_close(found.entropy.item(), -p * math.log(p) - q * math.log(q))
    assert_close(found.p_max.item(), p)
    assert_close(found.tail_mass.item(), q)
    assert_close(found.margin.item(), math.tanh(abs(gap) / 2))
    assert_close(found.mobility_trace.item(), 2 * p * q)
    assert_close(found.mobility_frobenius.item(), 2 * p * q)
    assert found.argmax.item() == int(gap < 0)


def test_a_uniform_state_in_closed_form():
    found = flows.state_statistics(torch.full((3, 50), -7.5))
    assert_close(found.state_sq, torch.zeros(3).double())
    assert_close(found.entropy, torch.full((3,), math.log(50)).double())
    assert_close(found.tail_mass, torch.full((3,), 1 - 1 / 50).double())
    assert_close(found.margin, torch.zeros(3).double())
    assert_close(found.mobility_trace, torch.full((3,), 1 - 1 / 50).double())
    assert_close(found.mobility_frobenius, torch.full((3,), 7 / 50).double())


@pytest.mark.parametrize("gap", [10.0, 40.0, 200.0])
def test_a_state_near_a_vertex_in_closed_form(gap):
    """z = (g, 0, …, 0) over V outcomes: δ = (V−1)e^{−g}/Z and ‖J‖_F² from its two eigenvalues."""
    V = 101
    z = torch.zeros(V).double()
    z[17] = gap
    found = flows.state_statistics(z)
    e = math.exp(-gap)
    Z = 1 + (V - 1) * e
    delta = (V - 1) * e / Z
    once = delta / Z * V / (V - 1)  # on (1, −1/(V−1), …): p₁ δ V/(V−1)
    often = e / Z  # V − 2 times, on the tail
    frobenius = math.hypot(once, math.sqrt(V - 2) * often)
    assert_close(found.tail_mass.item(), delta, rtol=1e-12, atol=0)
    assert_close(found.margin.item(), (1 - e) / Z, rtol=1e-12, atol=0)
    assert_close(found.mobility_trace.item(), once + (V - 2) * often, rtol=1e-12, atol=0)
    assert_close(found.mobility_frobenius.item(), frobenius, rtol=1e-12, atol=0)
    assert_close(found.entropy.item(), math.log1p((V - 1) * e) + gap * delta, rtol=1e-12, atol=0)
    assert found.argmax.item() == 17


@pytest.mark.parametrize(("gap", "step"), [(0.0, 1.5), (2.0, -0.3), (-4.0, 6.0), (30.0, 2.0)])
def test_a_step_of_two_outcomes_in_closed_form(gap, step):
    found = flows.step_statistics(vector(gap, 0.0), vector(gap + step + 9.0, 9.0))
    p, q = 1 / (1 + math.exp(-gap)), 1 / (1 + math.exp(-gap - step))
    p_not, q_not = 1 / (1 + math.exp(gap)), 1 / (1 + math.exp(gap + step))
    assert_close(found.step_sq.item(), step**2 / 2)
    assert_close(found.oscillation.item(), abs(step))
    assert_close(found.total_variation.item(), abs(q_not - p_not), rtol=1e-9, atol=0)
    oracle = q * math.log1p((p_not - q_not) / p) + q_not * math.log(q_not / p_not)
    assert_close(found.kl_divergence.item(), oracle, rtol=1e-9, atol=0)
    assert_close(found.first_order.item(), p * p_not * abs(step), rtol=1e-9, atol=0)


def test_divergence_runs_from_the_new_state_to_the_old():
    """KL(p′‖p), not KL(p‖p′): new (½, ½) from old (.9, .1)."""
    before, after = vector(0.9, 0.1).log(), vector(0.5, 0.5).log()
    found = flows.step_statistics(before, after).kl_divergence.item()
    assert_close(found, 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))


def test_first_order_uses_the_start_of_the_step():
    before, after = vector(3.0, 0.0), vector(0.0, 0.0)
    p = 1 / (1 + math.exp(-3.0))
    assert_close(flows.step_statistics(before, after).first_order.item(), 3 * p * (1 - p))


def test_divergence_is_finite_where_a_probability_underflows():
    """The old state gives the new peak e^{−900}: zero in float64, and a divergence of 900."""
    before, after = vector(0.0, -900.0), vector(-900.0, 0.0)
    assert_close(flows.step_statistics(before, after).kl_divergence.item(), 900.0)


def test_first_order_error_is_of_second_order_in_the_step():
    z, v = 2 * random(0, 6, 40), random(1, 6, 40)
    sizes = vector(1e-2, 3e-3, 1e-3, 3e-4)
    errors = []
    for size in sizes:
        found = flows.step_statistics(z, z + size * v)
        errors.append((found.total_variation - found.first_order).abs().mean())
    x, y = sizes.log(), torch.stack(errors).log()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    assert_close(slope.item(), 2.0, atol=0.05, rtol=0)


def test_divergence_of_a_small_step_is_half_the_variance():
    z, v = 2 * random(2, 5, 30), random(3, 5, 30)
    p = torch.softmax(z, -1)
    variance = (p * v.square()).sum(-1) - (p * v).sum(-1).square()
    found = flows.step_statistics(z, z + 1e-5 * v).kl_divergence
    assert_close(found, 0.5e-10 * variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_logits_are_read_as_they_stand(dtype):
    z, y = (3 * random(4, 4, 60)).to(dtype), (3 * random(5, 4, 60)).to(dtype)
    for narrow, wide in [
        (flows.state_statistics(z), flows.state_statistics(z.double())),
        (flows.step_statistics(z, y), flows.step_statistics(z.double(), y.double())),
    ]:
        for name, value in vars(narrow).items():
            assert_close(value, vars(wide)[name], rtol=0, atol=0)


def test_mass_residual_is_a_rounding_of_float64():
    z = 3 * random(6, 8, 50_257)
    residual = flows.mass_residual(z.float())
    assert residual.dtype == torch.float64
    assert residual.max() <= math.sqrt(50_257) * torch.finfo(torch.float64).eps


def test_joined_parts_are_the_whole():
    z, y = random(7, 5, 9), random(8, 5, 9)
    whole = flows.step_statistics(z, y)
    parts = flows.joined([flows.step_statistics(z[s], y[s]) for s in (slice(0, 2), slice(2, 5))])
    for name, value in vars(whole).items():
        assert_close(vars(parts)[name], value, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ([0.0, math.nan], [0.0, 1.0], "before must be finite; found nan"),
        ([0.0, 1.0], [0.0, math.inf], "after must be finite; found inf"),
        ([0.0], [0.0], "at least two outcomes"),
        ([0.0, 1.0], [0.0, 1.0, 2.0], "the same shape"),
        ([[0.0, 1.0]], [[0.0, 1.0]] * 2, "the same shape"),
    ],
)
def test_bad_steps_get_a_sentence(before, after, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        flows.step_statistics(before, after)


def test_bad_states_get_a_sentence():
    with pytest.raises(InvalidInputError, match="logits must be finite; found -inf"):
        flows.state_statistics([0.0, -math.inf])
    with pytest.raises(InvalidInputError, match="at least two outcomes"):
        flows.mass_residual([[1.0]])
    with pytest.raises(InvalidInputError, match="at least one part"):
        flows.joined([])
