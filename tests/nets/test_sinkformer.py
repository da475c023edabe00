"""Sinkformer layers: softmax at zero iterations, symmetric laws beyond, and they learn."""

import copy

import pytest
import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.nets.sinkformer import Sinkformer, SinkhornAttention


def tokens(batch=2, n=7, d=8, seed=1):
    return torch.randn(batch, n, d, generator=torch.Generator().manual_seed(seed))


def twin(layer, width, heads):
    """torch's own attention with the same weights."""
    other = nn.MultiheadAttention(width, heads, batch_first=True)
    with torch.no_grad():
        parts = (layer.queries, layer.keys, layer.values)
        other.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        other.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        other.out_proj.weight.copy_(layer.output.weight)
        other.out_proj.bias.copy_(layer.output.bias)
    return other


@pytest.mark.parametrize("padded", [False, True])
def test_zero_iterations_are_torch_multi_head_attention(padded):
    layer, x = SinkhornAttention(8, 2, 0), tokens()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = padded
    expected, weights = twin(layer, 8, 2)(
        x, x, x, key_padding_mask=padding, average_attn_weights=False
    )
    torch.testing.assert_close(layer(x, padding), expected)
    torch.testing.assert_close(layer.kernel(x, padding), weights)


def test_zero_iterations_are_a_pre_norm_transformer_block():
    block, x = Sinkformer(8, 2, 0, hidden=16), tokens()
    other = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    norm, first, _, second = block.feed_forward
    other.self_attn = twin(block.attention, 8, 2)
    other.norm1, other.norm2 = block.attention_norm, norm
    other.linear1, other.linear2 = first, second
    torch.testing.assert_close(block(x), other(x))


def test_columns_are_balanced_by_the_iterations():
    layer = SinkhornAttention(8, 2, 0)
    with torch.no_grad():
        layer.queries.weight.mul_(6)
    errors = []
    for layer.iterations in (0, 1, 3, 10, 100):
        kernel = layer.kernel(tokens())
        torch.testing.assert_close(kernel.sum(-1), torch.ones(2, 2, 7))
        errors.append((kernel.sum(-2) - 1).abs().mean().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.05
    assert errors[-1] < 1e-5


def test_padding_is_as_if_it_were_not_there():
    block, x = Sinkformer(8, 2, 3), tokens()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 4:] = True
    found = block(x, padding)
    torch.testing.assert_close(found[1:, :4], block(x[1:, :4]))
    torch.testing.assert_close(found[:1], block(x[:1]))


def test_permuted_tokens_give_permuted_tokens():
    block, x = Sinkformer(8, 2, 3), tokens()
    order = torch.tensor([3, 1, 0, 6, 2, 5, 4])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order], rtol=1e-4, atol=1e-5)


def test_doubly_stochastic_attention_keeps_the_mean():
    """Columns that sum to one: the mean over tokens passes through attention unchanged."""
    layer, x = SinkhornAttention(8, 2, 200).double(), tokens().double()
    mean = layer.output(layer.values(x)).mean(1)
    torch.testing.assert_close(layer(x).mean(1), mean, rtol=0, atol=1e-10)
    layer.iterations = 0
    assert (layer(x).mean(1) - mean).abs().max() > 1e-4


@pytest.mark.parametrize("hidden", [0, 6])
def test_gradients_are_those_of_finite_differences(hidden):
    block, x = Sinkformer(4, 2, 3, hidden=hidden).double(), tokens(1, 4, 4).double()
    padding = torch.tensor([[False, False, False, True]])
    names, values = zip(*block.named_parameters(), strict=True)
    values = tuple(v.detach().clone().requires_grad_(True) for v in values)

    def run(x, *weights):
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(block, named, (x, padding))

    assert torch.autograd.gradcheck(run, (x.requires_grad_(True), *values))


def test_it_learns_an_assignment_that_needs_attention():
    """Each token's goal is the mean of the others' first feature: the loss falls tenfold."""
    torch.manual_seed(0)
    model = nn.Sequential(Sinkformer(8, 2), nn.Linear(8, 1))
    x = tokens(64, 5)
    goal = (x[..., :1].sum(1, keepdim=True) - x[..., :1]) / 4
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        loss = (model(x) - goal).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_half_precision_is_widened_inside():
    layer, x = SinkhornAttention(8, 2, 5), tokens()
    expected = layer(x)
    half = copy.deepcopy(layer).bfloat16()
    assert half.kernel(x.bfloat16()).dtype == torch.float32
    torch.testing.assert_close(half(x.bfloat16()).float(), expected, rtol=0.05, atol=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.kernel(x).dtype == torch.float32
        torch.testing.assert_close(layer(x).float(), expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((8, 3), "multiple of heads, both positive; got 8 and 3"),
        ((8, 0), "got 8 and 0"),
        ((8, 2, -1), "zero or more; got -1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(InvalidInputError, match=words):
        Sinkformer(*arguments)
