"""A model that was changed is probed anew; one that was not is not."""

import copy

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.tap import tap as tap_module
from flowscope.tap.stamp import Stamp


@pytest.fixture
def probes(monkeypatch):
    """One entry for every time a model is probed."""
    made, probe = [], tap_module.probe
    monkeypatch.setattr(tap_module, "probe", lambda *given: made.append(1) or probe(*given))
    return made


def _layer(model):
    return copy.deepcopy(model.model.layers[0])


def _renamed(model):
    layers = model.model.layers._modules
    layers["9"] = layers.pop("2")


CHANGES = {
    "a layer is taken out": lambda m: m.model.layers.__delitem__(1),
    "a layer is put in": lambda m: m.model.layers.insert(1, _layer(m)),
    "a layer is appended": lambda m: m.model.layers.append(_layer(m)),
    "a layer is swapped": lambda m: m.model.layers.__setitem__(1, _layer(m)),
    "layers change places": lambda m: m.model.layers._modules.update(
        {"0": m.model.layers[1], "1": m.model.layers[0]}
    ),
    "a module inside a layer is swapped": lambda m: setattr(
        m.model.layers[1].self_attn, "q_proj", nn.Linear(32, 32, bias=False)
    ),
    "a place is emptied": lambda m: setattr(m.model.layers[1].mlp, "act_fn", nn.Identity()),
    "the list gets another dictionary": lambda m: setattr(
        m.model.layers, "_modules", dict(reversed(m.model.layers._modules.items()))
    ),
    "training mode": lambda m: m.train(),
    "training mode of a layer": lambda m: m.model.layers[1].train(),
    "another dtype": lambda m: m.double(),
    "another dtype of a layer's values": lambda m: _recast(m.model.layers[1]),
    "another output matrix": lambda m: setattr(
        m.lm_head, "weight", nn.Parameter(m.lm_head.weight.detach().clone())
    ),
    "another output matrix by its place": lambda m: m.lm_head._parameters.update(
        weight=nn.Parameter(m.lm_head.weight.detach().clone())
    ),
    "another norm": lambda m: setattr(m.model, "norm", copy.deepcopy(m.model.norm)),
}
NO_CHANGES = {
    "nothing": lambda m: None,
    "values of a weight": lambda m: m.lm_head.weight.data.mul_(2),
    "values swapped by data": lambda m: setattr(
        m.lm_head.weight, "data", m.lm_head.weight.data.clone()
    ),
    "a weight inside a layer": lambda m: setattr(
        m.model.layers[1].mlp.up_proj,
        "weight",
        nn.Parameter(m.model.layers[1].mlp.up_proj.weight.detach().clone()),
    ),
    "gradients switched off": lambda m: m.requires_grad_(False),
    "the same mode": lambda m: m.eval(),
}


def _recast(layer):
    for parameter in layer.parameters():
        parameter.data = parameter.data.double()


def _passes(model, batch, change, *, new_tap):
    """Two passes with a change between them; the tail of the second on its last state."""
    states = []

    def listened(tap):
        tap.on_attention(lambda call: None)
        tap.on_block(lambda event: states.append(event.hidden_out), writes=False)

    with torch.no_grad():
        with Tap(model) as tap:
            listened(tap)
            model(**batch)
            if not new_tap:
                change(model)
                logits = model(**batch).logits
        if new_tap:
            change(model)
            with Tap(model) as tap:
                listened(tap)
                logits = model(**batch).logits
        return tap.anatomy.tail(states[-1]), logits, len(states)


@pytest.mark.parametrize("new_tap", [False, True])
@pytest.mark.parametrize("change", [c for c in CHANGES if c != "another dtype of a layer's values"])
def test_a_changed_model_is_probed_anew(change, new_tap, probes):
    model, batch = models.llama()
    found, logits, _ = _passes(model, batch, CHANGES[change], new_tap=new_tap)
    assert len(probes) == 2
    torch.testing.assert_close(found, logits)


@pytest.mark.parametrize("new_tap", [False, True])
@pytest.mark.parametrize("change", NO_CHANGES)
def test_a_model_with_other_values_is_not_probed_anew(change, new_tap, probes):
    model, batch = models.llama()
    found, logits, _ = _passes(model, batch, NO_CHANGES[change], new_tap=new_tap)
    assert len(probes) == 1
    torch.testing.assert_close(found, logits)


@pytest.mark.parametrize("change", CHANGES)
def test_a_stamp_and_what_an_anatomy_rests_on_see_every_change(change):
    model, batch = models.llama()
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        model(**batch)
        stamp, (known,) = tap._stamp, tap._found.values()
        assert stamp.holds()
        assert known.holds()
        CHANGES[change](model)
        assert not (stamp.holds() and known.holds())
        assert not known.is_of(Stamp(model), known._key)


def test_a_buffer_of_the_tail_is_looked_at(probes):
    class Scaled(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, input_ids):
            return {"logits": self.inside(input_ids=input_ids).logits * self.scale}

    inside, batch = models.llama()
    model, states = Scaled(inside).eval(), []
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: states.append(event.hidden_out), writes=False)
        for scale in (2.0, 3.0):
            model.scale = torch.tensor(scale)
            logits = model(**batch)["logits"]
            torch.testing.assert_close(tap.anatomy.tail(states[-1]), logits)
    assert len(probes) == 2


def test_an_off_loaded_model_is_probed_once(probes):
    from accelerate import cpu_offload

    model, batch = models.llama()
    cpu_offload(model, execution_device=torch.device("cpu"))
    with torch.no_grad():
        for _ in range(2):
            with Tap(model) as tap:
                tap.on_attention(lambda call: None)
                for _ in range(2):
                    model(**batch)
                assert tap.anatomy.listening == "name"
    assert len(probes) == 1


def test_a_renamed_layer_is_probed_anew(probes):
    model, batch = models.llama()
    sites = []
    with torch.no_grad():
        for change in (_renamed, lambda m: None):
            with Tap(model) as tap:
                tap.on_attention(lambda call: sites.append(call.site.path))
                model(**batch)
            change(model)
    assert len(probes) == 2
    assert sites[2::3] == ["model.layers.2.self_attn", "model.layers.9.self_attn"]


def test_a_scripted_module_inside_is_no_obstacle(probes):
    model, batch = models.llama()
    model.model.extra = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        for _ in range(2):
            model(**batch)
    assert len(probes) == 1
