"""The forecast of a change: its closed form, small changes, and neutral ones."""

import numpy as np
import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.probes import model_anatomy
from flowscope.probes.field.changes import Quantise, Scale, Skip, rounded_weights
from flowscope.probes.field.forecast import forecast_changes, measured_divergence
from flowscope.simplex import apply_mobility

READ = {"logits": lambda output: output}


class Reader(nn.Module):
    """One block of attention over a bare state, and a linear output."""

    def __init__(self, width=4, outcomes=6):
        super().__init__()
        self.blocks = nn.ModuleList([_Block(width) for _ in range(2)])
        self.output = nn.Linear(width, outcomes, bias=False)

    def forward(self, state):
        for block in self.blocks:
            state = block(state)
        return self.output(state)


class _Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.values = nn.Linear(width, width, bias=False)

    def forward(self, hidden):
        x = hidden[:, None]
        read = nn.functional.scaled_dot_product_attention(x, x, self.values(x), is_causal=True)
        return hidden + read[:, 0]


def reader():
    torch.manual_seed(0)
    model = Reader().double().eval()
    inputs = {"state": torch.randn(3, 5, 4, dtype=torch.float64)}
    return model, inputs, model_anatomy(model, inputs).depth


def test_the_last_block_has_its_closed_form():
    """½ δᵀWᵀJ(p)Wδ summed over tokens: the mean over draws tends to it."""
    model, inputs, chain = reader()
    found = forecast_changes(model, inputs, chain, [(1, Scale(amount=1.1))], draws=3000, **READ)
    with torch.no_grad():
        before = model.blocks[0](inputs["state"])
        after = model.blocks[1](before)
        moved = model.output(0.1 * (after - before))
        p = torch.softmax(model.output(after), -1)
        exact = 0.5 * (moved * apply_mobility(p, moved)).sum((-1, -2)) / 5
    squares = 0.5 * np.square(found.slopes[0]) / 5
    error = squares.std(-1, ddof=1) / np.sqrt(3000)
    assert (np.abs(found.divergence[0] - exact.numpy()) < 4 * error).all()
    assert (error < 0.1 * exact.numpy()).all()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_small_changes_cost_what_is_forecast(name):
    model, batch = models.READABLE[name]()
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    changes = [(layer, Scale(amount=1.03)) for layer in range(3)]
    found = forecast_changes(model, batch, chain, changes, draws=600)
    for number, change in enumerate(changes):
        measured = measured_divergence(model, batch, chain, change).mean()
        assert measured == pytest.approx(found.divergence[number].mean(), rel=0.25)


def test_the_forecast_grows_with_the_square_of_the_change():
    model, inputs, chain = reader()
    changes = [(0, Scale(amount=1.1)), (0, Scale(amount=1.2)), (0, Scale(amount=1.0))]
    found = forecast_changes(model, inputs, chain, changes, draws=5, **READ)
    np.testing.assert_allclose(found.divergence[1], 4 * found.divergence[0], rtol=1e-5)
    assert not found.divergence[2].any()
    assert not measured_divergence(model, inputs, chain, changes[2], **READ).any()


def test_skipping_is_scaling_by_nothing():
    model, batch = models.gpt2()
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    found = forecast_changes(model, batch, chain, [(1, Skip()), (1, Scale(amount=0.0))], draws=3)
    np.testing.assert_allclose(found.slopes[0], found.slopes[1], rtol=1e-4, atol=1e-5)
    first, second = (
        measured_divergence(model, batch, chain, (1, change))
        for change in (Skip(), Scale(amount=0.0))
    )
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-6)
    assert (first > 0).all()


def test_rounding_is_to_the_nearest_level_and_many_bits_cost_nothing():
    torch.manual_seed(0)
    layer = nn.Linear(128, 3)
    for bits in (2, 4, 8):
        rounded = rounded_weights(layer, bits, 64)
        assert set(rounded) == {"weight"}
        parts = layer.weight.detach().reshape(3, 2, 64)
        step = (parts.amax(-1) - parts.amin(-1)) / (2**bits - 1)
        apart = (rounded["weight"] - layer.weight).detach().abs().reshape(3, 2, 64)
        assert (apart <= 0.5 * step[..., None] * (1 + 1e-4)).all()
        assert len(rounded["weight"].reshape(3, 2, 64)[0, 0].unique()) <= 2**bits
    model, batch = models.llama()
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    costs = [
        measured_divergence(model, batch, chain, (1, Quantise(bits=bits, group=16))).mean()
        for bits in (2, 4, 12)
    ]
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] < 1e-6


def test_the_model_is_left_as_it_was():
    model, batch = models.llama()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    forecast_changes(model, batch, chain, [(0, Quantise(bits=2)), (2, Skip())], draws=2)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_positions_that_do_not_count_are_left_out():
    model, inputs, chain = reader()
    mask = torch.tensor([[1, 1, 0, 0, 0]] * 3)
    change = [(1, Scale(amount=1.1))]
    short = {"state": inputs["state"][:, :2]}
    whole = forecast_changes(model, inputs, chain, change, mask=mask, draws=2000, **READ)
    part = forecast_changes(model, short, chain, change, draws=2000, **READ)
    assert whole.tokens.tolist() == part.tokens.tolist() == [2, 2, 2]
    np.testing.assert_allclose(whole.divergence, part.divergence, rtol=0.2)


def test_bad_changes_are_refused():
    model, inputs, chain = reader()
    with pytest.raises(InvalidInputError, match="0 to 1"):
        forecast_changes(model, inputs, chain, [(2, Skip())], **READ)
    with pytest.raises(InvalidInputError, match="at least one change"):
        forecast_changes(model, inputs, chain, [], **READ)
    with pytest.raises(InvalidInputError, match="bits"):
        Quantise(bits=1)
    with pytest.raises(InvalidInputError, match="scale"):
        Scale(amount=float("nan"))
    for mask in (torch.zeros(3, 5), torch.ones(1, 3)):
        with pytest.raises(InvalidInputError, match="mask"):
            forecast_changes(model, inputs, chain, [(0, Skip())], mask=mask, draws=2, **READ)
    with pytest.raises(InvalidInputError, match="training"):
        forecast_changes(model.train(), inputs, chain, [(0, Skip())], **READ)


def test_costs_below_the_rounding_of_single_precision_are_measured():
    """Float32 logits of two models that differ by 1e-4: the cost is that of double precision."""
    model, batch = models.llama()
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    change = (1, Scale(amount=1 + 1e-4))
    single = measured_divergence(model, batch, chain, change)
    double = measured_divergence(model.double(), batch, chain, change)
    assert (double < 1e-9).all()  # the rounding of a sum of 61 outcomes in float32 is 1e-7
    np.testing.assert_allclose(single, double, rtol=0.05)


def test_the_model_as_it_is_runs_once_where_its_output_is_known():
    model, batch = models.llama()
    batch = {**batch, "use_cache": False}
    chain = model_anatomy(model, batch).depth
    passes = []
    model.model.norm.register_forward_hook(lambda *call: passes.append(1))
    with torch.no_grad():
        plain = model(**batch).logits
    whole = measured_divergence(model, batch, chain, (1, Skip()))
    again = measured_divergence(model, batch, chain, (1, Skip()), plain=plain)
    assert len(passes) == 1 + 2 + 1
    np.testing.assert_array_equal(whole, again)


def test_outcomes_are_drawn_from_the_law_of_the_output():
    """Mean of the gradients 0, covariance that of the law; an outcome of no mass is not drawn."""
    model, inputs, chain = reader()
    mass = torch.tensor([0.0, -torch.inf, 0.0, 0.0, -torch.inf, 0.0], dtype=torch.float64)

    def masked(output):
        return output + mass

    one = {"state": inputs["state"][:1, :1]}
    found = forecast_changes(model, one, chain, [(1, Scale(amount=1.1))], draws=4000, logits=masked)
    slopes = found.slopes[0, 0]
    assert np.isfinite(slopes).all()
    with torch.no_grad():
        before = model.blocks[0](one["state"])
        after = model.blocks[1](before)
        moved = model.output(0.1 * (after - before))[0, 0]
        p = torch.softmax(masked(model.output(after))[0, 0], -1)
        possible = torch.sort(moved - (p * moved).sum()).values.numpy()
        exact = float((p * (moved - (p * moved).sum()).square()).sum())
    drawn = np.unique(slopes.round(6))
    assert len(drawn) == 4  # four outcomes have mass
    assert np.abs(drawn[:, None] - possible).min(1).max() < 1e-5
    assert abs(slopes.mean()) < 4 * np.sqrt(exact / 4000)
    assert np.square(slopes).mean() == pytest.approx(exact, rel=0.1)
