"""Scaled writes, frozen and removed norms: closed forms, laws, and nothing left behind."""

import threading

import pytest
import torch
from tests import networks as models
from torch import nn
from torch.testing import assert_close

from flowscope import Tap
from flowscope.errors import InvalidInputError
from flowscope.levers import intervene

FAMILIES = ["gpt2", "llama", "gemma3", "qwen3"]


class Known(nn.Module):
    """A pre-norm block whose writes can be made by hand."""

    def __init__(self, width=6):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.RMSNorm(width)
        self.values = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(width, width)

    def attend(self, x):
        v = self.values(x)
        return nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], v[:, None])[:, 0]

    def forward(self, hidden):
        hidden = hidden + self.attend(self.first(hidden))
        return hidden + torch.tanh(self.mix(self.second(hidden)))


def stack(depth=3):
    torch.manual_seed(0)
    return nn.Sequential(*(Known() for _ in range(depth))).double().eval()


def points():
    return torch.randn((2, 5, 6), generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_neutral_settings_leave_the_model_bitwise_itself(name):
    model, batch = models.READABLE[name]()
    plain = model(**batch).logits
    with intervene(model):
        assert torch.equal(model(**batch).logits, plain)
    states = []
    with intervene(model, watch=lambda layer, hidden: states.append(layer)):
        assert torch.equal(model(**batch).logits, plain)
    assert states == list(range(len(states)))
    assert len(states) >= 3
    with intervene(model, attention=0.5):
        assert not torch.allclose(model(**batch).logits, plain)
    assert torch.equal(model(**batch).logits, plain)


@torch.no_grad()
def test_scales_are_those_of_the_equation():
    model, x = stack(), points()
    with intervene(model, residual=0.9, attention=0.5, feed_forward=2.0):
        found = model(x)
    h = x
    for block in model:
        h = 0.9 * h + 0.5 * block.attend(block.first(h))
        h = 0.9 * h + 2.0 * torch.tanh(block.mix(block.second(h)))
    assert_close(found, h, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_only_the_named_blocks_are_changed():
    model, x = stack(), points()
    with intervene(model, attention=0.0, feed_forward=0.0, layers=[1]):
        found = model(x)
    assert_close(found, model[2](model[0](x)), rtol=0, atol=0)


@torch.no_grad()
def test_removed_and_frozen_norms_are_their_closed_forms():
    model, x = stack(1), points()
    block = model[0]
    block.first.eps = block.second.eps = 0.0
    with torch.no_grad():
        block.first.weight.mul_(1.3)
        block.first.bias.add_(0.2)
        block.second.weight.mul_(0.7)

    plain = x + block.attend(block.first(x))  # what the second norm reads in the model as it is

    def changed(h, as_it_is, norm, centre, divisor):
        def centred(states):
            return states - states.mean(-1, keepdim=True) if centre else states

        scale = centred(as_it_is).square().mean(-1).sqrt().median() if divisor == "frozen" else 1
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else 0
        return centred(h) / scale * norm.weight + bias

    for kind in ("removed", "frozen"):
        with intervene(model, norm=kind):
            found = model(x)
            again = model(x)
        h = x + block.attend(changed(x, x, block.first, True, kind))
        h = h + torch.tanh(block.mix(changed(h, plain, block.second, False, kind)))
        assert_close(found, h, rtol=1e-10, atol=1e-10)
        assert torch.equal(found, again)


@torch.no_grad()
def test_a_frozen_norm_does_not_follow_the_stream():
    """Its divisor is of the model as it is: a stream ten times as long leaves it ten times too."""
    model, x = stack(1), points()
    for norm in (model[0].first, model[0].second):
        norm.eps = 0.0
    read = {"keep": [], "frozen": []}
    model[0].mix.register_forward_pre_hook(lambda module, args: read[kind].append(args[0]))
    for kind in read:
        with intervene(model, norm=kind, residual=10.0, attention=0.0):
            model(x)
    second = model[0].second
    plain = x + model[0].attend(model[0].first(x))
    scale = plain.square().mean(-1).sqrt().median()
    assert_close(read["keep"][-1], second(x))
    assert_close(read["frozen"][-1], 10 * x / scale * second.weight)


@torch.no_grad()
def test_a_tap_hears_one_pass_of_a_model_with_frozen_norms():
    model, batch = models.llama()
    heard = []
    with intervene(model, norm="frozen"), Tap(model) as tap:
        tap.on_block(lambda event: heard.append(event.site.index))
        model(**batch)
    assert heard == list(range(len(model.model.layers)))


@torch.no_grad()
def test_a_common_scale_of_embedding_and_writes_changes_nothing():
    """A pre-norm model: the output's KL stays below 1e-6, from the norm's ε."""
    model, batch = models.llama()
    model = model.double()
    plain = torch.log_softmax(model(**batch).logits, -1)
    kept = model.get_input_embeddings().weight.clone()
    model.get_input_embeddings().weight.mul_(4.0)
    with intervene(model, attention=4.0, feed_forward=4.0):
        scaled = torch.log_softmax(model(**batch).logits, -1)
    with intervene(model, attention=4.0):
        other = torch.log_softmax(model(**batch).logits, -1)
    model.get_input_embeddings().weight.copy_(kept)
    kl = (plain.exp() * (plain - scaled)).sum(-1).max()
    assert kl.item() < 1e-6
    assert (plain.exp() * (plain - other)).sum(-1).max().item() > 1e-4


@torch.no_grad()
def test_a_tap_hears_the_scaled_writes():
    model, x = stack(), points()
    writes = []
    with Tap(model) as tap:
        tap.on_block(lambda event: writes.append(event.writes[0].tensor))
        model(x)
        plain = writes[0]
        writes.clear()
        with intervene(model, attention=0.5):
            model(x)
    assert_close(writes[0], 0.5 * plain, rtol=0, atol=0)


@torch.no_grad()
def test_other_threads_run_the_model_untouched():
    model, x = stack(), points()
    plain, heard = model(x), []

    def bare():
        with torch.no_grad():
            heard.append(torch.equal(model(x), plain))

    with intervene(model, attention=0.0):
        changed = model(x)
        thread = threading.Thread(target=bare)
        thread.start()
        thread.join()
    assert heard == [True]
    assert not torch.equal(changed, plain)


@torch.no_grad()
def test_an_error_inside_leaves_the_model_itself():
    model, x = stack(), points()
    plain = model(x)

    def fail(layer, hidden):
        raise KeyError(layer)

    with pytest.raises(KeyError), intervene(model, residual=0.5, watch=fail):
        model(x)
    assert torch.equal(model(x), plain)


def test_gradients_flow_through_scaled_writes():
    model, x = stack(1), points().requires_grad_()
    with intervene(model, attention=0.0, feed_forward=0.0, residual=0.5):
        model(x).sum().backward()
    assert_close(x.grad, torch.full_like(x, 0.25))


@torch.no_grad()
def test_bad_settings_are_refused():
    model, x = stack(), points()
    for wrong in (
        {"residual": float("nan")},
        {"attention": "a"},
        {"norm": "half"},
        {"layers": [-1]},
    ):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            intervene(model, **wrong)
    with (
        pytest.raises(InvalidInputError, match="0 to 2"),
        intervene(model, attention=2.0, layers=[7]),
    ):
        model(x)
    squashed = nn.Sequential(*(Squashed() for _ in range(3))).double().eval()
    with pytest.raises(InvalidInputError, match="additions"), intervene(squashed, attention=0.5):
        squashed(x)
    neox, batch = models.READABLE["neox"]()
    with pytest.raises(InvalidInputError, match="one write"), intervene(neox, attention=0.5):
        neox(**batch)


class Squashed(Known):
    """A block whose output is no sum, and not the norm of one either."""

    def forward(self, hidden):
        return torch.tanh(super().forward(hidden))


class PostNorm(Known):
    """The same branches with the norm behind each addition."""

    def forward(self, hidden):
        hidden = self.first(hidden + self.attend(hidden))
        return self.second(hidden + torch.tanh(self.mix(hidden)))


def post_norm_stack(depth=3):
    torch.manual_seed(0)
    return nn.Sequential(*(PostNorm() for _ in range(depth))).double().eval()


@torch.no_grad()
def test_additions_of_post_norm_blocks_are_scaled_in_front_of_their_norm():
    model, x = post_norm_stack(), points()
    with intervene(model, residual=0.9, attention=0.5, feed_forward=2.0, layers=[0, 2]):
        found = model(x)
    h = x
    for number, block in enumerate(model):
        r, a, f = (1.0, 1.0, 1.0) if number == 1 else (0.9, 0.5, 2.0)
        h = block.first(r * h + a * block.attend(h))
        h = block.second(r * h + f * torch.tanh(block.mix(h)))
    assert_close(found, h, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_norms_of_post_norm_blocks_are_removed_in_closed_form():
    model, x = post_norm_stack(1), points()
    block = model[0]
    block.first.eps = block.second.eps = 0.0
    with intervene(model, norm="removed", attention=0.5):
        found = model(x)
    h = x + 0.5 * block.attend(x)
    h = h - h.mean(-1, keepdim=True)  # LayerNorm centres; the gain is 1
    h = h + torch.tanh(block.mix(h))
    assert_close(found, h, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["bert", "albert"])
@torch.no_grad()
def test_a_common_scale_of_stream_and_writes_leaves_a_post_norm_model_unchanged(name):
    model, batch = models.READABLE[name]()
    plain = model(**batch).logits.log_softmax(-1)

    def cost(**change):
        with intervene(model, **change):
            other = model(**batch).logits.log_softmax(-1)
        return (plain.exp() * (plain - other)).sum(-1).mean()

    assert cost(residual=3.0, attention=3.0, feed_forward=3.0).abs() < 1e-6
    assert cost(attention=3.0) > 1e-3
    assert cost().abs() == 0
