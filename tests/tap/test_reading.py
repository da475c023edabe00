"""What the tap reads on every family, against the models' own code."""

from itertools import pairwise

import pytest
import torch
from tests import networks as models

from flowscope import Tap

LAYERS = {"gemma2": 4, "gemma3": 6, "albert": 4, "t5": 2}
CALLS = {"t5": 7, "pixart": 6}
PRE_NORM = ["attention", "feed_forward"]
CROSSED = ["attention", "cross_attention", "feed_forward"]
WRITES = {"bert": [], "albert": [], "neox": ["mixed"], "pixart": CROSSED, "t5": CROSSED}


def _calls(name):
    return CALLS.get(name, LAYERS.get(name, 3))


def _read(model, batch):
    calls, passes = [], []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(
            lambda call: calls.append((call, call.probabilities(), call.output())) and None
        )
        tap.on_block(passes.append)
        output = models.first_tensor(model(**batch))
        return output, calls, passes, tap.anatomy


@pytest.fixture(params=models.READABLE)
def family(request):
    model, batch = models.READABLE[request.param]()
    with torch.no_grad():
        expected = models.first_tensor(model(**batch))
    return request.param, model, batch, expected


def test_without_a_listener_the_output_is_bitwise_equal(family):
    _, model, batch, expected = family
    with Tap(model), torch.no_grad():
        assert torch.equal(models.first_tensor(model(**batch)), expected)


def test_reading_leaves_the_output_as_promised(family):
    name, model, batch, expected = family
    output, _, _, anatomy = _read(model, batch)
    if name == "encoder" or anatomy.seam == "interface":  # fast path off, or backend switched
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(output, expected)
    with torch.no_grad():
        assert torch.equal(models.first_tensor(model(**batch)), expected)


def test_each_attention_call_is_told_once_and_rows_sum_to_one(family):
    name, model, batch, _ = family
    _, calls, _, anatomy = _read(model, batch)
    assert len(calls) == _calls(name) == len(anatomy.attentions)
    assert len({call.site for call, _, _ in calls}) == len(calls)
    for call, probabilities, output in calls:
        torch.testing.assert_close(probabilities.sum(-1), torch.ones_like(probabilities[..., 0]))
        values = call.v.repeat_interleave(call.q.shape[1] // call.v.shape[1], 1)
        torch.testing.assert_close(probabilities @ values, output, rtol=1e-4, atol=1e-6)


def test_depth_is_the_blocks_in_call_order(family):
    name, model, batch, _ = family
    _, _, passes, anatomy = _read(model, batch)
    assert len(anatomy.depth) == LAYERS.get(name, 3)
    stream = anatomy.depth.streams[0]
    along = [p for p in passes if p.site.chain == anatomy.depth.name and p.site.stream == stream]
    assert [p.site.index for p in along] == list(range(len(anatomy.depth)))
    for previous, following in pairwise(along):
        assert torch.equal(previous.hidden_out, following.hidden_in)


def test_writes_add_up_to_the_blocks_output(family):
    name, model, batch, _ = family
    _, _, passes, anatomy = _read(model, batch)
    depth = [p for p in passes if p.site.chain == anatomy.depth.name]
    for event in depth:
        assert [w.kind for w in event.writes] == WRITES.get(name, PRE_NORM)
        if event.writes:
            total = event.hidden_in + sum(w.tensor for w in event.writes)
            torch.testing.assert_close(total, event.hidden_out, rtol=1e-5, atol=2e-6)


GROUPS = {"llama": 2, "qwen3": 2, "gemma2": 2, "gemma3": 2}


def test_head_groups_are_found_also_when_keys_come_repeated(family):
    name, model, batch, _ = family
    _, calls, _, _ = _read(model, batch)
    assert {call.groups for call, _, _ in calls} == {GROUPS.get(name, 1)}


def test_cross_attention_is_told_apart():
    crossed = {}
    for name in ("t5", "pixart", "sd3", "gpt2"):
        model, batch = models.READABLE[name]()
        _, calls, _, _ = _read(model, batch)
        crossed[name] = [call.cross for call, _, _ in calls]
    assert crossed["t5"] == [False] * 3 + [False, True] * 2
    assert crossed["pixart"] == [False, True] * 3
    assert not any(crossed["sd3"] + crossed["gpt2"])


def test_joint_attention_names_both_streams_and_each_stream_passes():
    model, batch = models.sd3()
    _, calls, passes, anatomy = _read(model, batch)
    assert anatomy.depth.streams == ("hidden_states", "encoder_hidden_states")
    assert {call.site.stream for call, _, _ in calls} == {"hidden_states+encoder_hidden_states"}
    # The last block of SD3 drops its text stream: it is told for all blocks but that one.
    text = [p.site.index for p in passes if p.site.stream == "encoder_hidden_states"]
    assert text == [0, 1]


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "qwen3", "gemma2", "gemma3", "bert", "albert", "t5"]
)
def test_probabilities_agree_with_the_models_own_eager_attention(name):
    model, batch = models.READABLE[name]()
    _, calls, _, _ = _read(model, batch)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    if name == "t5":
        crossed = zip(output.decoder_attentions, output.cross_attentions, strict=True)
        own = [*output.encoder_attentions, *(a for pair in crossed for a in pair)]
    else:
        own = list(output.attentions)
    if not own:
        pytest.skip("this release of transformers returns no attention for this family")
    assert len(own) == len(calls)
    for (_, probabilities, _), expected in zip(calls, own, strict=True):
        torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-6)


def test_padding_is_masked_in_what_is_read():
    model, batch = models.llama()
    mask = torch.ones_like(batch["input_ids"])
    mask[1, :4] = 0
    _, calls, _, _ = _read(model, {**batch, "attention_mask": mask})
    for _, probabilities, _ in calls:
        assert probabilities[1, :, 4:, :4].abs().max() == 0
        assert probabilities[0, :, 4:, :4].min() > 0


def test_sliding_windows_are_masked_in_what_is_read():
    model, batch = models.gemma3()
    _, calls, _, _ = _read(model, batch)
    local = [
        p
        for (_, p, _), kind in zip(calls, model.config.layer_types, strict=True)
        if "sliding" in kind
    ]
    assert local
    for probabilities in local:
        assert probabilities[..., 8, :5].abs().max() == 0
        assert probabilities[..., 8, 5:9].min() > 0


@pytest.mark.parametrize("name", ["llama", "gemma2", "t5"])
def test_logits_without_mask_are_the_scaled_and_capped_scores(name):
    model, batch = models.READABLE[name]()
    found = []
    with Tap(model) as tap, torch.no_grad():

        def listen(call):
            bare, z = call.logits(masked=False), call.logits()
            plain = call.mask is None or call.mask.dtype == torch.bool or name != "t5"
            if plain:  # an additive bias is part of the mask
                torch.testing.assert_close(bare[z > -1e4], z[z > -1e4])
            assert bare.isfinite().all()
            torch.testing.assert_close(call.logits(slice(1, 3), masked=False), bare[..., 1:3, :])
            found.append(call.causal or bool((z < -1e4).any()))

        tap.on_attention(listen)
        model(**batch)
    assert any(found)
