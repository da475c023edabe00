"""Twins with random weights: made where they fit, refused before memory is taken elsewhere."""

import pytest
import torch
from tests import networks

from flowscope.models import twin
from flowscope.models.twin import fresh_twin
from flowscope.records import Unavailable


@pytest.fixture
def no_copy(monkeypatch):
    """A model whose class fails when a second one is built; returns how to arm it."""

    def arm(model):
        def refuse(self, *args, **kwargs):
            raise AssertionError("a copy was built")

        monkeypatch.setattr(type(model), "__init__", refuse)

    return arm


def test_twin_has_the_shapes_and_other_weights():
    model, _ = networks.llama()
    copy = fresh_twin(model, 7)
    pairs = list(zip(model.parameters(), copy.parameters(), strict=True))
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_twin_of_a_partly_off_loaded_model_is_refused_before_it_is_built(no_copy):
    from accelerate import cpu_offload

    model, _ = networks.llama()
    cpu_offload(model.model.layers[1], execution_device=torch.device("cpu"))
    assert not next(model.parameters()).is_meta
    no_copy(model)
    reply = fresh_twin(model, 0)
    assert isinstance(reply, Unavailable)
    assert "off-loaded" in reply.reason


def test_twin_larger_than_the_free_memory_is_refused_before_it_is_built(no_copy, monkeypatch):
    model, _ = networks.llama()
    size = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "_free_memory", lambda: size - 1)
    no_copy(model)
    reply = fresh_twin(model, 0)
    assert isinstance(reply, Unavailable)
    assert "memory" in reply.reason


@pytest.mark.parametrize("free", ["enough", "unknown"])
def test_twin_is_made_when_memory_is_enough_or_unknown(free, monkeypatch):
    model, _ = networks.llama()
    size = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "_free_memory", lambda: size if free == "enough" else None)
    assert isinstance(fresh_twin(model, 0), type(model))


def test_half_precision_model_is_counted_as_it_is_built(monkeypatch):
    model, _ = networks.llama()
    model = model.to(torch.bfloat16)
    size = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "_free_memory", lambda: size - 1)
    assert isinstance(fresh_twin(model, 0), Unavailable)


def test_free_memory_counts_what_the_system_can_give_back(tmp_path):
    table = tmp_path / "meminfo"
    table.write_text("MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:   700 kB\n")
    assert twin._free_memory(table) == 700 * 1024
    assert twin._free_memory(tmp_path / "absent") is None
    table.write_text("MemTotal: 900 kB\n")
    assert twin._free_memory(table) is None
