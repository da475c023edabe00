"""A refined model: n = 1 is the model, and its states are Euler steps of the block's branch."""

import pytest
import torch
from tests import networks as models
from torch.testing import assert_close

from flowscope import Tap
from flowscope.errors import InvalidInputError
from flowscope.levers import refined


def _chain(model, batch):
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: None)
        model(**batch)
        return tap.anatomy.depth


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3", "neox"])
@torch.no_grad()
def test_one_step_is_the_model_and_nothing_stays_behind(name):
    model, batch = models.READABLE[name]()
    chain, plain = _chain(model, batch), model(**batch).logits
    with refined(model, chain, 1):
        assert_close(model(**batch, use_cache=False).logits, plain)
    with refined(model, chain, 3):
        assert not torch.allclose(model(**batch, use_cache=False).logits, plain)
    assert torch.equal(model(**batch).logits, plain)
    assert not any("forward" in module.__dict__ for module in model.modules())


@torch.no_grad()
def test_states_are_steps_of_the_residual_branch():
    model, batch = models.llama()
    chain, states = _chain(model, batch), []
    with refined(model, chain, 2, states.append):
        model(**batch, use_cache=False)
    assert len(states) == 2 * len(chain) + 1
    rotary = model.model.rotary_emb(states[0], torch.arange(states[0].shape[1])[None])
    branch = model.model.layers[0](states[0], position_embeddings=rotary) - states[0]
    assert_close(states[1], states[0] + branch / 2)


@torch.no_grad()
def test_only_the_named_blocks_are_refined():
    model, batch = models.llama()
    chain, whole, part = _chain(model, batch), [], []
    with refined(model, chain, 1, whole.append):
        model(**batch, use_cache=False)
    with refined(model, chain, 3, part.append, blocks=[1]):
        model(**batch, use_cache=False)
    assert len(part) == len(whole) + 2
    assert_close(part[1], whole[1])
    assert_close(part[2], whole[1] + (whole[2] - whole[1]) / 3)


@torch.no_grad()
def test_an_error_inside_puts_the_blocks_back():
    model, batch = models.llama()
    chain = _chain(model, batch)
    with pytest.raises(RuntimeError, match="stop"), refined(model, chain, 2):
        raise RuntimeError("stop")
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_a_post_norm_block_has_no_branch():
    model, batch = models.bert()
    chain = _chain(model, batch)
    with pytest.raises(InvalidInputError, match="no residual branch"), refined(model, chain, 2):
        pass


def test_a_block_is_run_at_least_once():
    model, batch = models.llama()
    with pytest.raises(InvalidInputError, match="positive number"):
        refined(model, _chain(model, batch), 0).__enter__()
