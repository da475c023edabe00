"""The chain of a head is what the model runs, or says that it is not."""

import pytest
import torch
from tests import networks as models

from flowscope.probes.heads.chains import head_logits
from flowscope.records import Unavailable
from flowscope.tap import Tap

FAMILIES = ["gpt2", "llama", "qwen3", "gemma2", "gemma3", "bert", "vit", "neox", "dit", "sd3"]


def calls_of(model, batch):
    seen = []

    def listen(call):
        if not call.cross and call.q.shape[-2] == call.k.shape[-2]:
            parts = list(head_logits(call, 1))
            seen.append((call.probabilities()[1].double(), parts, call.site.index))

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen)
        model(**batch)
    assert seen
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_the_own_kernel_is_the_models_attention(family):
    for probabilities, parts, _ in calls_of(*getattr(models, family)()):
        own = torch.cat([torch.softmax(part.own.double(), -1) for part in parts])
        torch.testing.assert_close(own, probabilities, atol=2e-6, rtol=0)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_an_unmasked_causal_chain_has_every_pair_and_agrees_below_the_diagonal(family):
    for _, parts, _ in calls_of(*getattr(models, family)()):
        for part in parts:
            assert not part.mutual
            logits = part.of_chain("unmasked")
            assert logits.isfinite().all()
            visible = part.visible.expand_as(logits)
            torch.testing.assert_close(logits[visible], part.own[visible])
            assert part.of_chain("damped").isneginf().any()


def test_a_bidirectional_model_has_its_own_chain_whatever_is_asked():
    for probabilities, parts, _ in calls_of(*models.bert()):
        own = torch.cat([torch.softmax(part.of_chain("unmasked").double(), -1) for part in parts])
        torch.testing.assert_close(own, probabilities, atol=2e-6, rtol=0)


def test_a_biased_causal_model_has_no_unmasked_chain():
    refused = [
        part.of_chain("unmasked")
        for _, parts, _ in calls_of(*models.t5())
        for part in parts
        if not part.mutual
    ]
    assert refused
    assert all(isinstance(found, Unavailable) for found in refused)
    assert all("bias" in found.reason for found in refused)


def test_padding_is_no_token_of_the_chain():
    model, batch = models.bert()
    ids = batch["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    found, alone = [], []

    def listen_padded(call):
        found.extend(head_logits(call, 1, torch.arange(7)))

    def listen_alone(call):
        alone.extend(head_logits(call, 0))

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen_padded)
        model(input_ids=ids, attention_mask=mask)
    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen_alone)
        model(input_ids=ids[1:, :7])
    assert len(found) == len(alone)
    for padded, plain in zip(found, alone, strict=True):
        assert padded.visible is None
        torch.testing.assert_close(padded.own, plain.own, atol=1e-5, rtol=1e-5)


def test_a_mutual_window_is_kept():
    model, batch = models.bert()

    def listen(call):
        from dataclasses import replace

        n = call.q.shape[-2]
        near = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= 2
        (part,) = head_logits(replace(call, mask=near[None, None]), 0)
        assert part.mutual
        assert torch.equal(part.of_chain("unmasked").isneginf()[0], ~near)

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen)
        model(**batch)


def test_long_sequences_are_formed_a_few_heads_at_a_time(monkeypatch):
    monkeypatch.setattr("flowscope.probes.heads.chains._HELD", 2 * 12 * 12)
    for probabilities, parts, _ in calls_of(*models.gpt2()):
        assert [part.heads for part in parts] == [slice(0, 2), slice(2, 4)]
        own = torch.cat([torch.softmax(part.own.double(), -1) for part in parts])
        torch.testing.assert_close(own, probabilities, atol=2e-6, rtol=0)
