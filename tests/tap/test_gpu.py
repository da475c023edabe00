"""The promises of the tap on a CUDA device; run by hand with ``pytest -m gpu``."""

import gc

import pytest
import torch
from tests import networks as models

from flowscope import Tap

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
