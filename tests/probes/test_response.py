"""Altered attention: what a temperature and a key-norm setting do to a call, exactly."""

import pytest
import torch
from tests import networks as models

from flowscope import Tap
from flowscope.errors import InvalidInputError
from flowscope.probes import Setting, altered, attention_output

COUNTED = torch.ones(2, 12, dtype=torch.bool)


def heard(name, change):
    """What ``change`` makes of every self-attention call of a model."""
    model, batch = models.READABLE[name]()
    found = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None if call.cross else found.append(change(call)))
        model(**batch)
    assert found
    return found


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "t5", "bert"])
def test_a_temperature_divides_every_logit(name):
    """Soft-caps (Gemma-2) and additive biases (T5) included."""

    def change(call):
        hot = altered(call, Setting(kind="temperature", value=1.6), COUNTED)
        return call.logits(), hot.logits()

    for plain, hot in heard(name, change):
        torch.testing.assert_close(hot, plain / 1.6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "t5"])
def test_the_output_from_its_own_probabilities_is_the_kernels(name):
    for own, kernel in heard(name, lambda c: (attention_output(c, chunk=5), c.output().clone())):
        torch.testing.assert_close(own, kernel, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_key_norms_deviate_by_the_power_and_keep_their_mean_logarithm(power):
    def change(call):
        spread = altered(call, Setting(kind="key_norm", value=power), COUNTED)
        return call.k.norm(dim=-1).log(), spread.k.norm(dim=-1).log()

    for before, after in heard("llama", change):
        mean = before.mean(-1, keepdim=True)
        torch.testing.assert_close(after, mean + power * (before - mean), rtol=1e-4, atol=1e-5)


def test_scaling_all_keys_alike_is_a_temperature():
    """So a sweep of key norms must change them relative to each other to say anything else."""
    from dataclasses import replace

    def change(call):
        cold = altered(call, Setting(kind="temperature", value=0.5), COUNTED)
        return replace(call, k=2.0 * call.k).probabilities(), cold.probabilities()

    for scaled, cold in heard("llama", change):
        torch.testing.assert_close(scaled, cold, rtol=1e-4, atol=1e-6)


def test_padding_does_not_enter_the_mean_key_norm():
    counted = COUNTED.clone()
    counted[:, 8:] = False

    def change(call):
        spread = altered(call, Setting(kind="key_norm", value=0.0), counted)
        return call.k.norm(dim=-1).log()[..., :8], spread.k.norm(dim=-1).log()[..., :8]

    for before, after in heard("llama", change):
        torch.testing.assert_close(after, before.mean(-1, keepdim=True).expand_as(after))


def test_a_temperature_of_zero_is_refused():
    with pytest.raises(InvalidInputError, match="above 0"):
        Setting(kind="temperature", value=0.0)
