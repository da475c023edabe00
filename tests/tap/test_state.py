"""Copies of tapped models are bare; the probing pass leaves the model's own state alone."""

import copy
import io
import pickle

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap, doctor
from flowscope.errors import UnsupportedModelError
from flowscope.tap.state import State


@torch.no_grad()
def _output(model, batch):
    return models.first_tensor(model(**batch))


def _pickled(model):
    file = io.BytesIO()
    pickle.dump(model, file)
    file.seek(0)
    return pickle.load(file)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, _pickled])
@pytest.mark.parametrize("name", ["gpt2", "gemma2", "encoder"])
def test_a_copy_of_a_tapped_model_is_bare(name, copied):
    model, batch = getattr(models, name)()
    expected, calls = _output(model, batch), []
    with Tap(model) as tap:
        tap.on_attention(lambda call: calls.append(call.site))
        tap.on_block(lambda event: None)
        _output(model, batch)
        calls.clear()
        double = copied(model)
        if copied is not copy.copy:  # a shallow copy shares its blocks, and these are tapped
            assert torch.equal(_output(double, batch), expected)
        assert calls == []
    assert torch.equal(_output(double, batch), expected)
    assert all(not m._forward_hooks and m._compiled_call_impl is None for m in double.modules())


def test_a_copy_made_of_all_attributes_is_bare():
    class Copied(nn.Linear):
        def __deepcopy__(self, memo):
            double = Copied(3, 3)
            double.__dict__ = {n: copy.deepcopy(v, memo) for n, v in vars(self).items()}
            return double

        def __getstate__(self):
            return dict(vars(self))

    model, _ = models.gpt2()
    model.head = Copied(3, 3)
    with Tap(model.head) as tap:
        tap.on_attention(lambda call: None)
        assert copy.deepcopy(model.head)._compiled_call_impl is None
        assert copy.copy(model.head)._compiled_call_impl is not None  # shared, and leaves by itself
        assert pickle.loads(pickle.dumps(vars(model.head)["_compiled_call_impl"])) is None


class Counting(nn.Module):
    """An encoder that keeps books of its own."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside
        self.norm = nn.BatchNorm1d(12)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("longest", torch.zeros(1))
        self.calls, self.lengths, self.sizes = 0, [], {}

    def forward(self, src):
        self.passes += 1
        self.calls += 1
        self.lengths.append(src.shape[1])
        self.sizes[len(self.sizes)] = src.shape
        if src.shape[1] > len(self.longest):  # as rotary tables that grow
            self.register_buffer("longest", torch.ones(src.shape[1]))
            self.register_buffer("lazy", torch.ones(1))
            self.stretched = True
        return self.inside(self.norm(src))


def _counting():
    model, batch = models.encoder()
    return Counting(model).train(), batch


def _books(model):
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return buffers, (
        model.calls,
        list(model.lengths),
        dict(model.sizes),
        hasattr(model, "stretched"),
    )


def test_the_probing_pass_does_not_advance_what_a_model_counts():
    model, batch = _counting()
    model.inside.eval()
    bare, _ = _counting()
    bare.inside.eval()
    _output(bare, batch)
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        _output(model, batch)
    (buffers, attributes), (expected, others) = _books(model), _books(bare)
    assert attributes == others == (1, [12], {0: batch["src"].shape}, True)
    assert buffers.keys() == expected.keys()
    for name in expected:
        assert torch.equal(buffers[name], expected[name]), name


def test_a_state_names_what_changed_and_puts_it_back():
    model, batch = _counting()
    before, state = _books(model), State(model)
    held = model.longest
    assert state.changes() == ()
    _output(model, batch)
    assert {"passes", "longest", "calls", "lengths", "sizes", "stretched"} <= set(state.changes())
    assert {"norm.running_mean", "norm.num_batches_tracked"} <= set(state.changes())
    state.restore()
    assert state.changes() == ()
    assert model.longest is held
    assert _books(model)[0].keys() == before[0].keys()
    assert _books(model)[1] == before[1]


def test_an_unchanged_buffer_is_not_written_to():
    model, batch = models.encoder()
    model = Counting(model).eval()
    version = model.norm.running_mean._version
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        _output(model, batch)
    assert model.norm.running_mean._version == version


def test_a_module_that_builds_itself_in_the_probing_pass_stays_built():
    inside, batch = models.encoder()
    width = batch["src"].shape[-1]
    model = nn.Sequential(nn.LazyLinear(width), inside).eval()
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        output = model(batch["src"])
        assert torch.equal(output, model(batch["src"]))
    assert type(model[0]) is nn.Linear
    assert model[0].in_features == width


def test_weights_without_values_get_a_sentence():
    model, batch = models.gpt2()
    empty = model.to("meta")
    on_meta = {name: value.to("meta") for name, value in batch.items()}
    for inputs, words in ((on_meta, "was given 1 tensors"), (batch, "weights of GPT2LMHeadModel")):
        with Tap(empty) as tap:
            tap.on_attention(lambda call: None)
            with pytest.raises(UnsupportedModelError, match=f"{words}.* meta"):
                _output(empty, inputs)


def test_the_doctor_says_what_a_pass_changes():
    model, batch = _counting()
    words = {o.what: o.because for o in doctor(model, inputs=batch).cannot}
    assert "changes passes, longest, lazy and" in words["passes that leave the model as it was"]
    model, batch = models.gpt2()
    what = [o.what for o in doctor(model, inputs=batch).cannot]
    assert "passes that leave the model as it was" not in what


def test_the_doctor_refuses_weights_without_values():
    model, batch = models.gpt2()
    findings = doctor(model.to("meta"), inputs=batch)
    assert findings.refused
    assert "meta device" in findings.cannot[0].because
