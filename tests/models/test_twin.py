"""Twins with random weights: made where they fit, refused before memory is taken elsewhere."""

import pytest
import torch
from tests import networks

from flowscope.models import twin
from flowscope.models.twin import fresh_twin, shuffled_twin
from flowscope.records import Unavailable

CPU = torch.device("cpu")
FAMILIES = networks.READABLE | networks.FURTHER


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
    monkeypatch.setattr(twin, "free_memory", lambda device: size - 1)
    no_copy(model)
    reply = fresh_twin(model, 0)
    assert isinstance(reply, Unavailable)
    assert "memory" in reply.reason


@pytest.mark.parametrize("free", ["enough", "unknown"])
def test_twin_is_made_when_memory_is_enough_or_unknown(free, monkeypatch):
    model, _ = networks.llama()
    size = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "free_memory", lambda device: size if free == "enough" else None)
    assert isinstance(fresh_twin(model, 0), type(model))


def test_half_precision_model_is_counted_as_it_is_built(monkeypatch):
    model, _ = networks.llama()
    model = model.to(torch.bfloat16)
    size = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "free_memory", lambda device: size - 1)
    assert isinstance(fresh_twin(model, 0), Unavailable)


def test_free_memory_counts_what_the_system_can_give_back(tmp_path):
    table = tmp_path / "meminfo"
    table.write_text("MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:   700 kB\n")
    assert twin.free_memory(CPU, table) == 700 * 1024
    assert twin.free_memory(CPU, tmp_path / "absent") is None
    table.write_text("MemTotal: 900 kB\n")
    assert twin.free_memory(CPU, table) is None


def test_a_small_twin_is_what_its_class_builds_from_the_seed():
    model, _ = networks.llama()
    made = fresh_twin(model, 7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = type(model)(model.config)
    for mine, theirs in zip(made.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "encoder"])
def test_a_twin_drawn_in_place_has_the_law_of_one_built_by_its_class(name, monkeypatch):
    model, _ = FAMILIES[name]()
    built = fresh_twin(model, 0)
    monkeypatch.setattr(twin, "LARGE", 0)
    before = torch.get_rng_state()
    drawn = fresh_twin(model, 0)
    assert torch.equal(torch.get_rng_state(), before)
    for (path, mine), (_, theirs) in zip(
        drawn.named_parameters(), built.named_parameters(), strict=True
    ):
        assert mine.shape == theirs.shape, path
        assert mine.isfinite().all(), path
        if mine.numel() < 16:
            continue
        scale, size = float(theirs.detach().std()), mine.numel()
        # Eight standard errors of a normal or uniform sample; equal where nothing is drawn.
        assert abs(float(mine.detach().std()) - scale) <= 8 * scale / (2 * size) ** 0.5 + 1e-7, path
        apart = float(mine.detach().mean() - theirs.detach().mean())
        assert abs(apart) <= 8 * scale * (2 / size) ** 0.5 + 1e-7, path
    for (path, mine), (_, theirs) in zip(drawn.named_buffers(), built.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), path


def test_a_twin_drawn_in_place_follows_its_seed_and_keeps_ties_and_dtypes(monkeypatch):
    monkeypatch.setattr(twin, "LARGE", 0)
    model, batch = networks.gpt2()
    model = model.to(torch.bfloat16)
    first, second, other = fresh_twin(model, 1), fresh_twin(model, 1), fresh_twin(model, 2)
    assert first.lm_head.weight is first.transformer.wte.weight
    assert {weight.dtype for weight in first.parameters()} == {torch.bfloat16}
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    with torch.no_grad():
        assert first(**batch).logits.isfinite().all()


def test_a_twin_drawn_in_place_asks_for_the_models_own_bytes_and_no_more(no_copy, monkeypatch):
    monkeypatch.setattr(twin, "LARGE", 0)
    model, _ = networks.llama()
    model = model.to(torch.bfloat16)
    size = 2 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(twin, "free_memory", lambda device: size)
    assert isinstance(fresh_twin(model, 0), type(model))
    assert isinstance(shuffled_twin(model, 0), type(model))
    monkeypatch.setattr(twin, "free_memory", lambda device: size - 1)
    assert "memory" in shuffled_twin(model, 0).reason
    no_copy(model)
    assert "memory" in fresh_twin(model, 0).reason


@pytest.mark.parametrize("large", [False, True])
def test_a_half_precision_twin_keeps_the_dtype_of_every_buffer(large, monkeypatch):
    monkeypatch.setattr(twin, "LARGE", 0 if large else twin.LARGE)
    model, _ = networks.llama()
    for parameter in model.parameters():  # as loaded in half precision: tables of angles stay
        parameter.data = parameter.data.to(torch.bfloat16)
    copied = fresh_twin(model, 0)
    kinds = {name: buffer.dtype for name, buffer in model.named_buffers()}
    assert torch.float32 in kinds.values()
    assert {name: buffer.dtype for name, buffer in copied.named_buffers()} == kinds
    assert {weight.dtype for weight in copied.parameters()} == {torch.bfloat16}


def test_a_weight_that_only_the_constructor_draws_needs_one_device(monkeypatch):
    monkeypatch.setattr(twin, "LARGE", 0)
    model, _ = networks.pixart()
    made = fresh_twin(model, 0)
    assert made.scale_shift_table.isfinite().all()
    # On several devices it would have to be held whole on one: refused.
    monkeypatch.setattr(twin, "_lay_out", lambda model, twin: twin.to_empty(device="cpu"))
    monkeypatch.setattr(twin, "_drawn", lambda twin: "scale_shift_table")
    model.proj_out.weight = torch.nn.Parameter(model.proj_out.weight.to("meta"))
    assert isinstance(twin._drawn_in_place(model, type(model).from_config), Unavailable)
