"""Marks of a model: equal for equal models, other for other weights or another configuration."""

import torch
from tests import networks

import flowscope as fs
from flowscope.models.marks import configuration_marks, model_marks
from flowscope.records import Unavailable


def llama():
    model, _ = networks.READABLE["llama"]()
    return model


def test_equal_models_have_equal_marks():
    torch.manual_seed(0)
    first = model_marks(fs.load(llama()))
    torch.manual_seed(0)
    assert model_marks(fs.load(llama())) == first


def test_another_configuration_of_the_same_weights_has_other_marks():
    model = llama()
    before = model_marks(fs.load(model))
    model.config.rms_norm_eps = 0.5
    after = model_marks(fs.load(model))
    assert after["weights"] == before["weights"]
    assert after != before


def test_weights_without_a_hash_are_never_the_same(monkeypatch):
    reason = Unavailable("quantised")
    monkeypatch.setattr("flowscope.models.loading.weight_hash", lambda model: reason)
    loaded = fs.load(llama())
    assert loaded.weight_hash == reason
    assert model_marks(loaded) != model_marks(loaded)


def test_a_module_without_a_configuration_has_marks_that_stay():
    model = torch.nn.Linear(2, 2)
    for config in (None, "plain", object()):
        model.config = config
        marks = configuration_marks(model)
        assert marks == configuration_marks(model)
        assert marks["type"] == type(config).__qualname__


def test_addresses_of_objects_are_no_mark():
    model = torch.nn.Linear(2, 2)
    model.config = {"hook": object()}
    before = configuration_marks(model)
    model.config = {"hook": object()}
    assert configuration_marks(model) == before
