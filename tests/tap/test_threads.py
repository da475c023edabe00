"""A pass belongs to the thread that made it, and the model is itself after every tap."""

import threading

import pytest
import torch
import torch.nn.functional as F
from benchmarks.attack.threads import COUNTS, attacked
from tests import networks as models

from flowscope import Tap
from flowscope.tap.dispatch import routed_calls

_ATTENTION = F.scaled_dot_product_attention


def _in_thread(job):
    """Run a job in another thread and return its value, or raise its error."""
    values, errors = [], []

    def run():
        try:
            values.append(job())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]


@torch.no_grad()
def _output(model, batch):
    return models.first_tensor(model(**batch))


def _attributes(model):
    return [(sorted(vars(module)), module._compiled_call_impl) for module in model.modules()]


def test_ten_trials_of_threads_break_and_miscount_nothing():
    counts = attacked(10)
    assert sum(count["trials"] for count in counts.values()) == 10
    wrong = {kind: {n: c[n] for n in COUNTS if c[n]} for kind, c in counts.items()}
    assert wrong == {kind: {} for kind in counts}


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "encoder"])
def test_another_thread_gets_the_bare_output_and_is_not_heard(name):
    model, batch = getattr(models, name)()
    expected = _output(model, batch)
    calls = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: calls.append(call.site))
        _output(model, batch)
        heard = len(calls)
        assert torch.equal(_in_thread(lambda: _output(model, batch)), expected)
        assert len(calls) == heard > 0


def test_another_thread_inside_a_pass_gets_the_bare_output():
    model, batch = models.gemma2()
    expected = _output(model, batch)
    outputs, backends = [], []

    def listener(call):
        outputs.append(_in_thread(lambda: _output(model, batch)))
        backends.append(
            (
                model.config._attn_implementation,
                _in_thread(lambda: model.config._attn_implementation),
            )
        )

    with Tap(model) as tap:
        tap.on_attention(listener)
        _output(model, batch)
    assert len(outputs) == model.config.num_hidden_layers
    assert all(torch.equal(output, expected) for output in outputs)
    assert set(backends) == {("flowscope", "eager")}


def test_a_listener_may_wait_for_a_tapped_pass_of_another_thread():
    model, batch = models.encoder()
    calls, foreign = [], []

    def tapped():
        with Tap(model) as tap:
            tap.on_attention(lambda call: foreign.append(call.site.index))
            return _output(model, batch)

    with Tap(model) as tap:
        tap.on_attention(lambda call: calls.append(_in_thread(tapped)) and None)
        _output(model, batch)
    assert len(calls) == 3
    assert foreign == 3 * [0, 1, 2]
    assert F.scaled_dot_product_attention is _ATTENTION


def test_a_tap_that_another_thread_closes_leaves_nothing():
    model, batch = models.gemma2()
    expected, before = _output(model, batch), _attributes(model)
    tap = Tap(model).__enter__()
    tap.on_attention(lambda call: None)
    tap.on_block(lambda event: None)
    _output(model, batch)
    _in_thread(lambda: tap.__exit__(None, None, None))
    assert _attributes(model) == before
    assert torch.equal(_output(model, batch), expected)
    with tap:  # and it can be used again
        pass


@pytest.mark.parametrize("site", [0, 2])
def test_a_tap_closed_inside_its_pass_is_silent_from_then_on(site):
    model, batch = models.gpt2()
    before, calls = _attributes(model), []
    tap = Tap(model).__enter__()

    def listener(call):
        calls.append(call.site.index)
        if call.site.index == site:
            tap.__exit__(None, None, None)

    tap.on_attention(listener)
    tap.on_block(lambda event: calls.append("block"))
    _output(model, batch)
    assert calls == [0, "block", 1, "block", 2][: 1 + 2 * site]
    assert torch.overrides._get_current_function_mode() is None
    assert _attributes(model) == before


@pytest.mark.parametrize("name", ["gemma2", "encoder", "gpt2"])
def test_taps_may_be_closed_in_the_order_they_were_opened(name):
    model, batch = getattr(models, name)()
    expected, before = _output(model, batch), _attributes(model)
    first, second = Tap(model), Tap(model)
    calls = []
    for number, tap in enumerate((first, second)):
        tap.__enter__()
        tap.on_attention(lambda call, number=number: calls.append(number))
        tap.on_block(lambda event: None)
    _output(model, batch)
    both = len(calls)
    first.__exit__(None, None, None)
    _output(model, batch)
    assert calls[both:] == [1] * (both // 2)
    second.__exit__(None, None, None)
    assert _attributes(model) == before
    assert torch.equal(_output(model, batch), expected)


def test_a_second_tap_that_probes_is_not_heard_by_the_first():
    model, batch = models.gpt2()
    calls = []
    with Tap(model) as first, Tap(model, blocks="transformer.h") as second:
        first.on_attention(lambda call: calls.append(call.site.index))
        first.on_block(lambda event: calls.append("block"))
        second.on_attention(lambda call: None)
        _output(model, batch)
    assert calls == [0, "block", 1, "block", 2, "block"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("event", ["on_attention", "on_block"])
def test_a_pass_that_ends_in_an_exception_is_over(error, event):
    model, batch = models.gemma2()
    fails = True

    def listener(event):
        if fails and event.site.index == 1:
            raise error
        indices.append(event.site.index)

    indices = []
    with Tap(model) as tap:
        getattr(tap, event)(listener)
        with pytest.raises(error):
            _output(model, batch)
        assert torch.overrides._get_current_function_mode() is None
        assert model.config._attn_implementation == "eager"
        fails = False
        indices.clear()
        _output(model, batch)  # the tap goes on listening
    assert indices == list(range(model.config.num_hidden_layers))


def test_an_exit_that_fails_leaves_nothing_either():
    model, batch = models.gpt2()
    before = _attributes(model)
    tap = Tap(model).__enter__()
    tap.on_block(lambda event: None)
    _output(model, batch)
    tap._undo.callback(lambda: 1 / 0)  # whatever a foreign clean-up may do
    with pytest.raises(ZeroDivisionError):
        tap.__exit__(None, None, None)
    assert _attributes(model) == before
    with tap:
        pass


def test_a_tap_that_heard_only_foreign_passes_says_so():
    model, batch = models.gpt2()
    tap = Tap(model).__enter__()
    tap.on_attention(lambda call: None)
    _in_thread(lambda: [_output(model, batch) for _ in range(2)])
    with pytest.warns(UserWarning, match="ran 2 times in other threads"):
        tap.__exit__(None, None, None)


def test_compiled_code_runs_eagerly_in_the_tapped_thread_only():
    model, batch = models.gpt2()
    runners, calls = [], []

    def backend(graph, inputs):
        def run(*args):
            runners.append(threading.get_ident())
            return graph.forward(*args)

        return run

    torch.compiler.reset()
    model.compile(backend=backend)
    expected = _output(model, batch)
    runners.clear()

    def listener(call):
        calls.append(call.site.index)
        assert torch.equal(_in_thread(lambda: _output(model, batch)), expected)

    with Tap(model) as tap:
        tap.on_attention(listener)
        _output(model, batch)
    assert calls == [0, 1, 2]
    assert len(runners) >= 3
    assert threading.get_ident() not in runners
    _output(model, batch)
    assert runners[-1] == threading.get_ident()
    assert type(torch._dynamo.eval_frame._stance).__name__ == "DynamoStance"


def test_a_name_that_someone_else_took_while_it_was_routed_is_left_to_them():
    def wrapped(*args, **kwargs):
        return beneath(*args, **kwargs)

    x = torch.randn(1, 1, 4, 8)
    expected = _ATTENTION(x, x, x)
    try:
        with routed_calls(lambda *args: F.scaled_dot_product_attention(*args)):
            beneath, F.scaled_dot_product_attention = F.scaled_dot_product_attention, wrapped
        assert F.scaled_dot_product_attention is wrapped
        assert torch.equal(F.scaled_dot_product_attention(x, x, x), expected)
        with routed_calls(lambda *args: F.scaled_dot_product_attention(*args)):
            assert torch.equal(F.scaled_dot_product_attention(x, x, x), expected)
    finally:
        F.scaled_dot_product_attention = _ATTENTION


def test_a_module_compiled_under_a_tap_keeps_what_the_user_made():
    model, batch = models.gpt2()
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        _output(model, batch)
        model.compile(backend="eager")
        compiled = model._compiled_call_impl
    assert model._compiled_call_impl is compiled
