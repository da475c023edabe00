"""A live block cut open at its attention, against differences of the model's own coupled block."""

import pytest
import torch
import torch.nn.functional as F
from tests import networks as models
from torch.overrides import TorchFunctionMode

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.probes.block_callable import live_block
from flowscope.replica import Propagator, coupled_attention

COUPLINGS = [0.0, 0.3, 1.0]


def double(made):
    model, batch = made
    wide = {
        name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in batch.items()
    }
    return model.double(), wide


class Coupled(TorchFunctionMode):
    """Self-attention of [A; B] by the reference; cross-attention as it is."""

    def __init__(self, g):
        super().__init__()
        self.g = g

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = args[:3] if args else (kwargs[name] for name in ("query", "key", "value"))
        if k.shape[-2] != q.shape[-2]:
            return func(*args, **kwargs)
        return coupled_attention(q, k, v, self.g, scale=q.shape[-1] ** -0.5)


def given_to(model, batch, path):
    """What the model itself gave to a block, and what the block made of it."""
    seen = []
    handle = model.get_submodule(path).register_forward_hook(
        lambda module, args, kwargs, output: seen.append((args, kwargs, output)), with_kwargs=True
    )
    with torch.no_grad():
        model(**batch)
    handle.remove()
    return seen[0]


def twice(x, rows):
    return torch.cat([x, x]) if isinstance(x, torch.Tensor) and len(x) == rows else x


def difference(model, batch, path, h, g, step=1e-4):
    """Central difference of (A − B)/√2 for the model's own block run on [H + th; H − th]/√2."""
    args, kwargs, _ = given_to(model, batch, path)
    H, rest = args[0], args[1:]
    rows = len(H)
    rest = [twice(x, rows) for x in rest]
    kwargs = {name: twice(x, rows) for name, x in kwargs.items()}

    def image(t):
        pair = torch.cat([H + t * h / 2**0.5, H - t * h / 2**0.5])
        with torch.no_grad(), Coupled(g):
            out = model.get_submodule(path)(pair, *rest, **kwargs)
        A, B = out.chunk(2)
        return (A - B) / 2**0.5

    return (image(step) - image(-step)) / (2 * step)


def direction(like, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)


@pytest.mark.parametrize("g", COUPLINGS)
@pytest.mark.parametrize("name", ["dit", "pixart"])
def test_channels_are_the_difference_quotient_of_the_coupled_block(name, g):
    """Relative to ‖K_g h − h‖, so that the identity hides nothing; PixArt has cross-attention."""
    model, batch = double(models.READABLE[name]())
    live = live_block(model, batch, 1)
    assert live.path == "transformer_blocks.1"
    h = direction(live.H0)
    expected = difference(model, batch, live.path, h, g)
    channels = Propagator(live.block, live.H0).channels(h, g)
    assert float((channels.total - expected).norm() / (expected - h).norm()) < 1e-7
    # The gates are open: attention does something, or the test would say nothing.
    assert float(channels.query.norm()) > 0.05 * float((expected - h).norm())


@pytest.mark.parametrize("name", ["dit", "pixart", "encoder", "vit", "bert", "gpt2", "llama"])
def test_cut_and_joined_the_block_is_itself(name):
    """Masks, causality and shared key heads included."""
    model, batch = double(models.READABLE[name]())
    if name in ("gpt2", "llama"):
        batch["use_cache"] = False
    if name == "bert":
        batch["attention_mask"] = (torch.arange(12) < 9).long().expand(2, 12)
    live = live_block(model, batch, 1)
    args, kwargs, output = given_to(model, batch, live.path)
    expected = output[0] if isinstance(output, tuple) else output
    found = Propagator(live.block, live.H0).next_state
    assert torch.equal(live.H0, (args or list(kwargs.values()))[0])
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["dit", "gpt2"])
def test_uncoupled_it_is_the_jacobian_of_the_models_block(name):
    model, batch = double(models.READABLE[name]())
    if name == "gpt2":
        batch["use_cache"] = False
    live = live_block(model, batch, 0)
    args, kwargs, _ = given_to(model, batch, live.path)
    h, step = direction(live.H0), 1e-5

    def image(t):
        with torch.no_grad():
            out = model.get_submodule(live.path)(live.H0 + t * h, *args[1:], **kwargs)
        return out[0] if isinstance(out, tuple) else out

    expected = (image(step) - image(-step)) / (2 * step)
    found = Propagator(live.block, live.H0).apply(h, 0.0)
    assert float((found - expected).norm() / (expected - h).norm()) < 1e-6


def test_several_directions_at_once_are_those_one_by_one():
    model, batch = double(models.dit())
    live = live_block(model, batch, 2)
    propagator = Propagator(live.block, live.H0)
    h = torch.stack([direction(live.H0, seed) for seed in range(3)])
    found = propagator.channels(h, 0.3)
    for i in range(3):
        one = propagator.channels(h[i], 0.3)
        torch.testing.assert_close(found.key[i], one.key, atol=1e-12, rtol=0)
        torch.testing.assert_close(found.total[i], one.total, atol=1e-12, rtol=0)


def test_items_of_a_batch_do_not_meet():
    """A direction in one item stays there, and its image is that of the item alone."""
    model, batch = double(models.dit())
    both = live_block(model, batch, 1)
    alone = live_block(model, {name: x[1:] for name, x in batch.items()}, 1)
    h = direction(both.H0)
    h[0] = 0
    found = Propagator(both.block, both.H0).apply(h, 0.3)
    assert not bool(found[0].any())
    expected = Propagator(alone.block, alone.H0).apply(h[1:], 0.3)
    torch.testing.assert_close(found[1:], expected, atol=1e-10, rtol=0)


def test_the_model_is_left_as_it_was():
    model, batch = double(models.dit())
    with torch.no_grad():
        before = models.first_tensor(model(**batch))
        live = live_block(model, batch, 1)
        Propagator(live.block, live.H0).apply(direction(live.H0), 0.3)
        assert torch.equal(models.first_tensor(model(**batch)), before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_joint_attention_is_refused():
    with pytest.raises(UnsupportedModelError, match="2 streams"):
        live_block(*double(models.sd3()), 1)


def test_a_block_without_torchs_own_attention_is_refused():
    with pytest.raises(UnsupportedModelError, match="soft-capped"):
        live_block(*double(models.gemma2()), 1)


def test_a_cache_is_refused():
    model, batch = double(models.gpt2())
    with pytest.raises(UnsupportedModelError, match="use_cache=False"):
        live_block(model, {**batch, "use_cache": True}, 1)


def test_a_block_that_answers_otherwise_alone_is_refused():
    """A block with a memory: its MLP grows with every run."""
    model, batch = double(models.dit())
    layer = model.transformer_blocks[1].ff
    original, calls = layer.forward, []

    def forward(hidden_states):
        calls.append(1)
        return original(hidden_states) * (1 + 0.1 * len(calls))

    layer.forward = forward
    with pytest.raises(UnsupportedModelError, match="alone"):
        live_block(model, batch, 1)


@pytest.mark.parametrize("layer", [3, -1, 1.0])
def test_a_layer_that_is_not_there_is_refused(layer):
    model, batch = double(models.dit())
    with pytest.raises(InvalidInputError, match="layer"):
        live_block(model, batch, layer)


def test_training_mode_and_half_precision_are_refused():
    model, batch = double(models.dit())
    with pytest.raises(InvalidInputError, match="eval"):
        live_block(model.train(), batch, 1)
    half = {n: x.bfloat16() if x.is_floating_point() else x for n, x in batch.items()}
    with pytest.raises(InvalidInputError, match="bfloat16"):
        live_block(model.eval().bfloat16(), half, 1)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_module_that_is_called_by_several_layers_is_read_at_the_call_of_the_layer(layer):
    """ALBERT: every layer is the same module with another state."""
    model, batch = double(models.READABLE["albert"]())
    live = live_block(model, batch, layer)
    states = []
    handle = model.get_submodule(live.path).register_forward_pre_hook(
        lambda module, args, kwargs: states.append((args or list(kwargs.values()))[0]),
        with_kwargs=True,
    )
    with torch.no_grad():
        model(**batch)
    handle.remove()
    assert len(states) > layer
    assert not torch.equal(states[0], states[1])
    assert torch.equal(live.H0, states[layer])
