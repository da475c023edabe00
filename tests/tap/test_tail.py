"""The tail is the model's own code after the last block, replayed."""

import pytest
import torch
from tests import networks as models

from flowscope import Tap
from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

LANGUAGE = ["gpt2", "llama", "qwen3", "gemma2", "gemma3", "bert", "albert", "t5", "neox"]


def _tapped(model, batch):
    hidden = {}
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(
            lambda event: hidden.update({(event.site.chain, event.site.index): event.hidden_out})
        )
        output = model(**batch)
        depth = tap.anatomy.depth.name
        along = [h for (chain, _), h in sorted(hidden.items()) if chain == depth]
        return output, along, tap.anatomy.tail


@pytest.mark.parametrize("name", LANGUAGE)
@torch.no_grad()
def test_replaying_the_last_hidden_state_gives_the_logits(name):
    output, hidden, tail = _tapped(*models.READABLE[name]())
    assert tail.target == "logits"
    assert tail.positionwise
    assert torch.equal(tail(hidden[-1]), output.logits)
    torch.testing.assert_close(tail.rows(hidden[-1]), output.logits, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", LANGUAGE)
@torch.no_grad()
def test_a_tail_takes_other_batches_than_the_one_it_was_found_on(name):
    model, batch = models.READABLE[name]()
    _, _, tail = _tapped(model, batch)
    shorter = {key: ids[:1, :5].flip(-1) for key, ids in batch.items()}
    output, hidden, _ = _tapped(model, shorter)
    torch.testing.assert_close(tail(hidden[-1]), output.logits)


@torch.no_grad()
def test_the_lens_of_an_early_layer_is_norm_and_unembedding():
    model, batch = models.gpt2()
    _, hidden, tail = _tapped(model, batch)
    for h in hidden:
        expected = model.lm_head(model.transformer.ln_f(h))
        torch.testing.assert_close(tail.rows(h), expected)


@torch.no_grad()
def test_the_soft_cap_of_the_output_is_part_of_the_tail():
    model, batch = models.gemma2()
    _, hidden, tail = _tapped(model, batch)
    assert tail.rows(1e3 * hidden[0]).abs().max() <= model.config.final_logit_softcapping
    assert tail.operations[-3:] == ("div", "tanh", "mul")


@torch.no_grad()
def test_a_pooled_output_replays_whole_and_refuses_rows():
    model, batch = models.vit()
    output, hidden, tail = _tapped(model, batch)
    torch.testing.assert_close(tail(hidden[-1]), output.logits)
    assert not tail.positionwise
    with pytest.raises(InvalidInputError, match="mixes positions"):
        tail.rows(hidden[-1])


@pytest.mark.parametrize("name", ["dit", "sd3", "pixart"])
def test_a_conditioned_output_has_no_tail_of_its_own(name):
    _, _, tail = _tapped(*models.READABLE[name]())
    assert isinstance(tail, Unavailable)
    assert "depends on the inputs" in tail.reason


def test_a_stochastic_tail_is_refused_with_the_difference():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, _ = models.encoder()
            self.out = torch.nn.Linear(32, 7)

        def forward(self, src):
            return self.out(torch.nn.functional.dropout(self.inner(src), 0.5, training=True))

    _, batch = models.encoder()
    _, _, tail = _tapped(Noisy(), batch)
    assert isinstance(tail, Unavailable)
    assert "misses the model's output by" in tail.reason


@torch.no_grad()
def test_half_precision_tails_replay_in_their_own_dtype():
    model, batch = models.llama()
    model = model.to(torch.bfloat16)
    output, hidden, tail = _tapped(model, batch)
    assert torch.equal(tail(hidden[-1]), output.logits)
    assert tail.error == 0.0


@torch.no_grad()
def test_a_tail_follows_training():
    model, batch = models.llama()
    _, _, tail = _tapped(model, batch)
    model.lm_head.weight.mul_(2.0)
    output, hidden, _ = _tapped(model, batch)
    torch.testing.assert_close(tail(hidden[-1]), output.logits)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "bert"])
@torch.no_grad()
def test_a_widened_tail_reads_half_precision_states_in_float32(name):
    model, batch = models.READABLE[name]()
    _, hidden, exact = _tapped(model, batch)
    expected = exact.rows(hidden[-1].bfloat16().float())
    _, _, tail = _tapped(model.to(torch.bfloat16), batch)
    found = tail.widened().rows(hidden[-1].bfloat16().float())
    assert found.dtype == torch.float32
    for parameter in model.parameters():  # the float32 model with the rounded weights
        parameter.data = parameter.data.float()
    rounded = _tapped(model, batch)[2].rows(hidden[-1].bfloat16().float())
    torch.testing.assert_close(found, rounded, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
    assert torch.equal(exact.widened().rows(hidden[-1]), exact.rows(hidden[-1]))


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@torch.no_grad()
def test_a_linear_output_is_the_tail_in_two_parts(name):
    _, hidden, tail = _tapped(*models.READABLE[name]())
    output = tail.linear_output()
    logits = output.states(hidden[-1]) @ output.weight.mT + output.bias
    torch.testing.assert_close(logits, tail.rows(hidden[-1]), rtol=1e-5, atol=2e-6)


def test_a_soft_capped_output_is_not_linear():
    _, _, tail = _tapped(*models.READABLE["gemma2"]())
    assert "not a product" in tail.linear_output().reason
