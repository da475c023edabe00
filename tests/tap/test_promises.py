"""The promises of the tap that hold on any model: no trace left, nothing else seen."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from tests import networks as models
from torch import nn
from torch.testing import assert_close

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError, UnsupportedModelError


def _hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def _count(model, batch, **kwargs):
    seen = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: seen.append(call.site.index))
        output = models.first_tensor(model(**batch, **kwargs))
    return seen, output


def test_nothing_is_switched_until_a_listener_asks():
    model, batch = models.gemma2()
    with Tap(model) as tap:
        assert _hooks(model) == 0
        with torch.no_grad():
            model(**batch)
        assert model.config._attn_implementation == "eager"
        with pytest.raises(TapError, match="after the first forward pass"):
            _ = tap.anatomy


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_and_backend_are_restored(fails):
    model, batch = models.gemma2()

    def listener(call):
        assert model.config._attn_implementation == "flowscope"
        if fails and call.site.index == 1:
            raise ZeroDivisionError

    with torch.no_grad():
        expected = model(**batch).logits
        try:
            with Tap(model) as tap:
                tap.on_attention(listener)
                tap.on_block(lambda event: None)
                model(**batch)
        except ZeroDivisionError:
            assert fails
        assert _hooks(model) == 0
        assert model.config._attn_implementation == "eager"
        assert torch.equal(model(**batch).logits, expected)
    assert torch.overrides._get_current_function_mode() is None


def test_a_failing_model_leaves_no_mode_behind():
    model, batch = models.gpt2()
    seen, _ = _count(model, batch)
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        with pytest.raises(IndexError):
            model(input_ids=batch["input_ids"] + 1000)
        assert torch.overrides._get_current_function_mode() is None
        assert len(seen) == 3
        model(**batch)


def test_activations_are_gone_after_exit():
    model, batch = models.gpt2()
    alive = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: alive.extend(weakref.ref(x) for x in (call.q, call.output())))
        tap.on_block(
            lambda e: alive.extend(weakref.ref(x) for x in (e.hidden_in, e.writes[0].tensor))
        )
        model(**batch)
    gc.collect()
    assert len(alive) == 12
    assert not any(reference() is not None for reference in alive)


def test_the_model_is_collected_after_the_tap():
    model, batch = models.gpt2()
    _count(model, batch)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_other_models_in_the_block_are_not_seen():
    model, batch = models.gpt2()
    other, other_batch = models.bert()
    seen = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: seen.append(call.site.path))
        other(**other_batch)
        model(**batch)
        other(**other_batch)
    assert len(seen) == 3
    assert all(path.startswith("transformer.h") for path in seen)


def test_models_run_by_a_listener_are_not_seen():
    model, batch = models.gpt2()
    other, other_batch = models.bert()
    attentions, blocks = [], []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: attentions.append(other(**other_batch)) and None)
        tap.on_block(lambda event: blocks.append(model(**batch)) and None)
        model(**batch)
    assert (len(attentions), len(blocks)) == (3, 3)


def test_two_taps_at_once_both_listen():
    model, batch = models.llama()
    first, second = [], []
    with Tap(model) as a, Tap(model) as b, torch.no_grad():
        a.on_attention(lambda call: first.append(call.site.index))
        b.on_attention(lambda call: second.append(call.site.index))
        model(**batch)
    assert first == second == [0, 1, 2]


def test_a_tap_entered_twice_says_so():
    model, _ = models.gpt2()
    tap = Tap(model)
    with tap, pytest.raises(TapError, match="entered already"), tap:
        pass
    with tap:  # and it can be used again afterwards
        pass


def test_a_listener_outside_the_block_says_so():
    model, _ = models.gpt2()
    with pytest.raises(TapError, match="inside the `with` block"):
        Tap(model).on_attention(print)


def test_a_listener_that_cannot_be_called_says_so():
    model, _ = models.gpt2()
    with Tap(model) as tap, pytest.raises(InvalidInputError, match="callable; got int"):
        tap.on_block(3)


@pytest.mark.parametrize("wrong", ["gpt2", None, 3])
def test_what_is_no_model_says_so(wrong):
    with pytest.raises(InvalidInputError, match=r"expects a loaded torch\.nn\.Module"):
        Tap(wrong)


def test_wrappers_that_hide_calls_are_refused():
    model, _ = models.encoder()
    with pytest.raises(UnsupportedModelError, match=r"model\.module"):
        Tap(nn.DataParallel(model))
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        Tap(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma2", "bert", "dit"])
def test_half_precision_models_are_read_without_change(name, dtype):
    model, batch = models.READABLE[name]()
    model = model.to(dtype)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    with torch.no_grad():
        expected = models.first_tensor(model(**batch))
    _, output = _count(model, batch)
    if name == "gemma2":  # the backend was switched; eager repeats the same operations
        torch.testing.assert_close(output, expected)
    else:
        assert torch.equal(output, expected)


@pytest.mark.parametrize("context", ["inference", "autocast", "grad"])
def test_reading_is_bitwise_neutral_under(context):
    model, batch = models.llama()
    contexts = {
        "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "grad": torch.enable_grad,
    }
    with contexts[context]():
        expected = model(**batch).logits
        with Tap(model) as tap:
            tap.on_attention(lambda call: None)
            tap.on_block(lambda event: None)
            assert torch.equal(model(**batch).logits, expected)


def test_gradients_are_the_same_under_a_reading_tap():
    model, batch = models.gpt2()

    def gradient(listens):
        model.zero_grad()
        with Tap(model) as tap:
            if listens:
                tap.on_attention(lambda call: None)
                tap.on_block(lambda event: None)
            model(**batch).logits.square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    for bare, tapped in zip(gradient(False), gradient(True), strict=True):
        assert torch.equal(bare, tapped)


def test_probing_leaves_the_random_state_alone():
    model, batch = models.gpt2()
    model.train()  # dropout is on
    torch.manual_seed(5)
    expected = model(**batch).logits
    torch.manual_seed(5)
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        assert torch.equal(model(**batch).logits, expected)


def test_generation_with_a_cache_is_unchanged_and_every_step_is_seen():
    model, batch = models.llama()
    expected = model.generate(**batch, max_new_tokens=4, do_sample=False)
    seen = []
    with Tap(model) as tap:
        tap.on_attention(
            lambda call: seen.append((call.forward, call.q.shape[-2], call.k.shape[-2]))
        )
        found = model.generate(**batch, max_new_tokens=4, do_sample=False)
    assert torch.equal(found, expected)
    assert seen[::3] == [(0, 12, 12), (1, 1, 13), (2, 1, 14), (3, 1, 15)]


def test_a_cache_of_the_user_is_filled_once():
    from transformers import DynamicCache

    model, batch = models.llama()
    cache = DynamicCache(config=model.config)
    _count(model, batch, past_key_values=cache)
    assert cache.get_seq_length() == 12


def test_encoder_decoder_generation_keeps_its_sites():
    model, batch = models.t5()
    sites = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: sites.append((call.site.chain, call.site.index, call.cross)))
        model.generate(input_ids=batch["input_ids"], max_new_tokens=3, do_sample=False)
        with torch.no_grad():
            model(**batch)
    step = [("decoder.block", i, cross) for i in (0, 1) for cross in (False, True)]
    encoder = [("encoder.block", i, False) for i in range(3)]
    assert sites[-7:] == encoder + step
    assert sites[:4] == step


def test_guidance_batches_are_read_whole():
    model, batch = models.dit()
    doubled = {k: torch.cat([v, v]) for k, v in batch.items()}
    shapes = set()
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: shapes.add(tuple(call.q.shape)))
        model(**doubled)
    assert shapes == {(4, 2, 16, 8)}


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_models_are_read_eagerly_and_stay_compiled(in_place):
    model, batch = models.gpt2()
    with torch.no_grad():
        expected = model(**batch).logits
    if in_place:
        model.compile(backend="eager")
        compiled = model
    else:
        compiled = torch.compile(model, backend="eager")
    kept = compiled._compiled_call_impl
    seen, output = _count(compiled, batch)
    assert seen == [0, 1, 2]
    assert torch.equal(output, expected)
    assert compiled._compiled_call_impl is kept


def test_off_loaded_weights_are_read_and_their_tail_too():
    from accelerate import cpu_offload

    model, batch = models.llama()
    with torch.no_grad():
        expected = model(**batch).logits
    cpu_offload(model, execution_device=torch.device("cpu"))
    seen = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: seen.append(call.site.index))
        assert torch.equal(model(**batch).logits, expected)
        assert tap.anatomy.tail.target == "logits"
    assert seen == [0, 1, 2]


def _with_layer_on_disk(model, folder, *names):
    """The model with these modules off-loaded to files and everything else loaded."""
    from accelerate import dispatch_model

    layers = [f"model.layers.{index}" for index in range(len(model.model.layers))]
    places = ["model.embed_tokens", "model.rotary_emb", *layers, "model.norm", "lm_head"]
    device_map = {name: "disk" if name in names else "cpu" for name in places}
    return dispatch_model(model, device_map, offload_dir=folder)


def _last_hidden(model, batch):
    """What the last block gave, and the output of the model."""
    hidden = []
    handle = model.model.layers[-1].register_forward_hook(
        lambda module, args, output: hidden.append(
            output if isinstance(output, torch.Tensor) else output[0]
        )
    )
    logits = model(**batch).logits
    handle.remove()
    return hidden[-1], logits


def test_tail_is_read_when_only_a_layer_is_off_loaded(tmp_path):
    model, batch = models.llama()
    with torch.no_grad():
        expected = model(**batch).logits
    model = _with_layer_on_disk(model, tmp_path, "model.layers.1")
    assert any(weight.is_meta for weight in model.parameters())
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        hidden, logits = _last_hidden(model, batch)
        assert torch.equal(logits, expected)
        assert torch.equal(tap.anatomy.tail(hidden), expected)


@pytest.mark.parametrize("name", ["model.norm", "lm_head"])
def test_tail_with_an_off_loaded_part_reads_it_and_lets_go(tmp_path, name):
    """The weight is fetched once, for all wider tails; widened, it is that of float32."""
    model, batch = models.llama()
    wide, model = copy.deepcopy(model.bfloat16()).float(), model.bfloat16()
    model = _with_layer_on_disk(model, tmp_path, name)
    fetched = []
    with Tap(model) as tap, Tap(wide) as wide_tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        wide_tap.on_attention(lambda call: None)
        hidden, expected = _last_hidden(model, batch)
        wide(**batch)
        hook = model.get_submodule(name)._hf_hook
        before, hook.pre_forward = hook.pre_forward, lambda *a: (fetched.append(1), before(*a))[1]
        tail = tap.anatomy.tail
        assert torch.equal(tail(hidden), expected)
        seen = tail.widened()(hidden.float()), tail.widened()(hidden.float())
        assert_close(seen[0], wide_tap.anatomy.tail(hidden.float()), rtol=1e-5, atol=1e-6)
        assert len(fetched) == 2  # as it is, and widened
        assert model.get_submodule(name).weight.is_meta
        tail.release()
        assert torch.equal(tail(hidden), expected)
        assert len(fetched) == 3


def test_another_thread_running_the_same_function_is_not_seen():
    model, batch = models.encoder()
    other = copy.deepcopy(model)
    seen, stop = [], threading.Event()

    def run():
        while not stop.is_set():
            with torch.no_grad():
                other(**batch)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        seen.extend(len(_count(model, batch)[0]) for _ in range(20))
    finally:
        stop.set()
        thread.join()
    assert set(seen) == {3}
    assert (
        torch.nn.functional.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
    )


def test_a_second_tap_on_the_same_model_does_not_probe_again(monkeypatch):
    from flowscope.tap import tap as tap_module

    model, batch = models.gpt2()
    probes = []
    original = tap_module.probe
    monkeypatch.setattr(tap_module, "probe", lambda *a: probes.append(1) or original(*a))
    _count(model, batch)
    _count(model, batch)
    assert len(probes) == 1
    model.lm_head = nn.Linear(32, 7, bias=False)  # a changed model is probed anew
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        model(**batch)
        assert tap.anatomy.tail.width == 7
    assert len(probes) == 2
