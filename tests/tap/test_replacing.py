"""Replacing attention: it takes effect, it is checked, it is undone."""

import pytest
import torch
from tests import networks as models

from flowscope import Tap
from flowscope.errors import TapError


@pytest.fixture(params=models.READABLE)
def family(request):
    model, batch = models.READABLE[request.param]()
    with torch.no_grad():
        return model, batch, models.first_tensor(model(**batch))


@torch.no_grad()
def test_handing_the_output_back_changes_nothing(family):
    model, batch, expected = family
    with Tap(model) as tap:
        tap.on_attention(lambda call: call.output())
        torch.testing.assert_close(
            models.first_tensor(model(**batch)), expected, rtol=1e-5, atol=1e-6
        )


@torch.no_grad()
def test_uniform_attention_changes_the_output_and_is_undone(family):
    model, batch, expected = family

    def uniform(call):
        return (
            call.v.mean(-2, keepdim=True)
            .repeat_interleave(call.q.shape[1] // call.v.shape[1], 1)
            .expand(*call.q.shape[:-1], -1)
            .contiguous()
        )

    with Tap(model) as tap:
        tap.on_attention(uniform)
        assert not torch.allclose(models.first_tensor(model(**batch)), expected, atol=1e-4)
    assert torch.equal(models.first_tensor(model(**batch)), expected)


@torch.no_grad()
def test_a_temperature_through_the_tap_equals_a_temperature_in_the_weights():
    model, batch = models.gpt2()

    def warm(call):
        p = torch.softmax(call.logits() / 2.0, -1)
        return p @ call.v

    with Tap(model) as tap:
        tap.on_attention(warm)
        steered = model(**batch).logits
    for block in model.transformer.h:
        width = model.config.n_embd
        block.attn.c_attn.weight[:, :width] /= 2.0
        block.attn.c_attn.bias[:width] /= 2.0
    torch.testing.assert_close(steered, model(**batch).logits, rtol=1e-5, atol=1e-6)


def test_gradients_flow_through_a_replacement():
    model, batch = models.gpt2()
    scale = torch.tensor(1.0, requires_grad=True)
    with Tap(model) as tap:
        tap.on_attention(lambda call: scale * call.output())
        model(**batch).logits.square().sum().backward()

    def loss(value):
        with Tap(model) as tap, torch.no_grad():
            tap.on_attention(lambda call: value * call.output())
            return model.double()(**batch).logits.square().sum()

    step = 1e-5
    slope = (loss(1 + step) - loss(1 - step)) / (2 * step)
    torch.testing.assert_close(scale.grad.double(), slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("replacement", "words"),
    [
        (lambda call: call.output()[..., :-1], r"shape \(2, 4, 12, 8\).*got \(2, 4, 12, 7\)"),
        (lambda call: call.output().double(), "dtype torch.float32.*torch.float64"),
        (lambda call: 3.0, "returned float; return None to read"),
    ],
)
def test_a_wrong_replacement_is_refused_in_a_sentence(replacement, words):
    model, batch = models.gpt2()
    with torch.no_grad():
        expected = model(**batch).logits
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(replacement)
        with pytest.raises(TapError, match=words):
            model(**batch)
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, expected)


def test_two_replacements_of_one_call_are_refused():
    model, batch = models.gpt2()
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: call.output())
        tap.on_attention(lambda call: None)
        tap.on_attention(lambda call: call.output())
        with pytest.raises(TapError, match="2 listeners returned a replacement"):
            model(**batch)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_replacement_under_gradient_checkpointing_is_refused(reentrant):
    model, batch = models.llama()
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    with Tap(model) as tap:
        tap.on_attention(lambda call: 2 * call.output())
        with pytest.raises(TapError, match="gradient checkpointing"):
            model(**batch)


def test_reading_under_gradient_checkpointing_tells_each_call_once():
    model, batch = models.llama()
    model.train()
    model.gradient_checkpointing_enable()
    seen = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append(call.site.index))
        model(**batch).logits.sum().backward()
    assert seen == [0, 1, 2]
