"""The promises of the tap on a CUDA device; run by hand with ``pytest -m gpu``."""

import gc
from dataclasses import replace

import pytest
import torch
from tests import networks as models

from flowscope import Tap
from flowscope.tap import tap as tap_module
from flowscope.tap.dispatch import ATTENTION

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def _on_gpu(name, dtype):
    model, batch = models.READABLE[name]()
    moved = {
        k: (v.to("cuda", dtype) if v.is_floating_point() else v.to("cuda"))
        if isinstance(v, torch.Tensor)
        else v
        for k, v in batch.items()
    }
    return model.to("cuda", dtype), moved


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", models.READABLE)
@torch.no_grad()
def test_reading_on_the_gpu_is_neutral_and_moves_nothing(name, dtype):
    model, batch = _on_gpu(name, dtype)
    expected = models.first_tensor(model(**batch))
    places, sums = set(), []
    with Tap(model) as tap:
        tap.on_attention(
            lambda call: sums.append(float((call.probabilities().sum(-1) - 1).abs().max()))
        )
        tap.on_block(lambda e: places.update(t.device.type for t in (e.hidden_in, e.hidden_out)))
        output = models.first_tensor(model(**batch))
        seam = tap.anatomy.seam
    assert places == {"cuda"}
    assert max(sums) < 1e-5
    if name == "encoder" or seam == "interface":
        tolerance = 4 * torch.finfo(dtype).eps * float(expected.abs().max())
        torch.testing.assert_close(output, expected, rtol=0, atol=tolerance)
    else:
        assert torch.equal(output, expected)


@torch.no_grad()
def test_gpu_memory_returns_to_where_it_was():
    model, batch = _on_gpu("llama", torch.bfloat16)
    model(**batch)
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    with Tap(model) as tap:
        tap.on_attention(lambda call: call.probabilities() is None or None)
        tap.on_block(lambda event: None)
        model(**batch)
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_probing_leaves_the_gpus_random_state_alone():
    model, batch = _on_gpu("gpt2", torch.float32)
    model.train()
    torch.manual_seed(3)
    expected = model(**batch).logits
    torch.manual_seed(3)
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        assert torch.equal(model(**batch).logits, expected)


@torch.no_grad()
def test_a_model_spread_over_devices_is_read_where_it_is():
    from accelerate import dispatch_model

    model, batch = models.llama()
    expected = model.to("cuda")(input_ids=batch["input_ids"].cuda()).logits
    places = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 0, "lm_head": 0}
    places |= {f"model.layers.{i}": "cpu" if i == 1 else 0 for i in range(3)}
    model = dispatch_model(model, places, main_device=0, force_hooks=True)
    seen = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append((call.site.index, call.q.device.type)))
        output = model(input_ids=batch["input_ids"].cuda()).logits
    assert [index for index, _ in seen] == [0, 1, 2]
    torch.testing.assert_close(output, expected)


@torch.no_grad()
def test_a_compiled_model_on_the_gpu_is_read_and_stays_compiled():
    model, batch = _on_gpu("gpt2", torch.float32)
    compiled = torch.compile(model)
    expected = compiled(**batch).logits
    seen = []
    with Tap(compiled) as tap:
        tap.on_attention(lambda call: seen.append(call.site.index))
        output = compiled(**batch).logits
    assert seen == [0, 1, 2]
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled(**batch).logits, expected)


def _heard(model, batch):
    """Names and bits of the events of one pass, and its output."""
    events = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: events.append((call.site, call.groups, call.q.clone())))
        tap.on_block(
            lambda e: events.append((e.site, e.hidden_in.clone(), e.hidden_out.clone())),
            writes=False,
        )
        output = models.first_tensor(model(**batch))
        return events, output, tap.anatomy.listening


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "dit", "sd3", "vit"])
def test_name_and_mode_give_the_same_events_on_the_gpu(name, monkeypatch):
    model, batch = _on_gpu(name, torch.bfloat16)
    twin, _ = _on_gpu(name, torch.bfloat16)
    by_name, output, listening = _heard(model, batch)
    assert listening == "name"
    probe = tap_module.probe
    monkeypatch.setattr(tap_module, "probe", lambda *a: replace(probe(*a), listening="mode"))
    by_mode, other, listening = _heard(twin, batch)
    assert listening == "mode"
    assert torch.equal(output, other)
    assert len(by_name) == len(by_mode) > 0
    for mine, theirs in zip(by_name, by_mode, strict=True):
        pairs = zip(mine, theirs, strict=True)
        assert all(torch.equal(a, b) if torch.is_tensor(a) else a == b for a, b in pairs)


@torch.no_grad()
def test_a_model_moved_between_passes_is_probed_anew():
    model, batch = models.llama()
    devices, replies = [], []
    with Tap(model) as tap:
        tap.on_attention(lambda call: devices.append(call.q.device.type))
        tap.on_block(lambda e: replies.append(e.hidden_out), writes=False)
        for device in ("cpu", "cuda", "cpu"):
            model.to(device)
            logits = model(input_ids=batch["input_ids"].to(device)).logits
            tail = tap.anatomy.tail
            assert tail.device.type == device
            torch.testing.assert_close(tail(replies[-1]), logits)
    assert devices == 3 * ["cpu"] + 3 * ["cuda"] + 3 * ["cpu"]


@torch.no_grad()
def test_inputs_on_another_device_than_the_model_are_the_models_own_error():
    model, batch = _on_gpu("gpt2", torch.float32)
    on_cpu = {name: value.cpu() for name, value in batch.items()}
    seen = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append(call.site))
        with pytest.raises(RuntimeError, match="device"):
            model(**on_cpu)
        assert seen == []
        assert torch.nn.functional.scaled_dot_product_attention is ATTENTION
        model(**batch)
    assert len(seen) == 3
