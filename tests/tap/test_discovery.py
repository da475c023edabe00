"""What is found, what is refused, and the reasons given."""

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError, UnsupportedModelError
from flowscope.records import Unavailable
from flowscope.tap import probe


def _anatomy(model, batch, **options):
    with Tap(model, **options) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        model(**batch)
        return tap.anatomy


CHAINS = {
    "gpt2": ["transformer.h"],
    "llama": ["model.layers"],
    "bert": ["bert.encoder.layer"],
    "albert": ["albert.encoder.albert_layer_groups"],
    "t5": ["encoder.block", "decoder.block"],
    "dit": ["transformer_blocks"],
    "encoder": ["layers"],
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_found_without_being_named(name):
    anatomy = _anatomy(*models.READABLE[name]())
    assert [chain.name for chain in anatomy.chains] == CHAINS[name]
    assert anatomy.depth is anatomy.chains[-1]
    assert anatomy.outside == ()


def test_a_shared_layer_gives_one_site_per_call():
    anatomy = _anatomy(*models.albert())
    assert len({block.path for block in anatomy.depth.blocks}) == 1
    assert [block.index for block in anatomy.depth.blocks] == [0, 1, 2, 3]


def test_a_model_of_one_layer_has_a_depth_of_one():
    anatomy = _anatomy(*models.gpt2(layers=1))
    assert (anatomy.depth.name, len(anatomy.depth)) == ("transformer.h", 1)
    assert anatomy.depth.blocks[0].writes == {"hidden_states": ("attention", "feed_forward")}
    assert anatomy.tail.positionwise


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bloom", r"computes attention by hand: 3 softmax calls.*BloomAttention"),
        ("gptj", r"computes attention by hand: 3 softmax calls.*GPTJAttention"),
    ],
)
def test_hand_written_attention_is_refused_with_the_reason(name, words):
    model, batch = models.REFUSED[name]()
    before = model.config._attn_implementation
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        with pytest.raises(UnsupportedModelError, match=words):
            model(**batch)
        assert torch.overrides._get_current_function_mode() is None
    assert model.config._attn_implementation == before
    with torch.no_grad():
        model(**batch)


def test_a_model_without_attention_is_refused_with_the_reason():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with pytest.raises(UnsupportedModelError, match="not an attention model"):
        _anatomy(model, {"input": torch.ones(2, 4)})


class _Weighing(nn.Module):
    """Asks for attention weights, which never reach the fused kernel."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return x


def test_need_weights_is_refused_with_what_to_do():
    with pytest.raises(UnsupportedModelError, match="need_weights=False"):
        _anatomy(_Weighing(), {"x": torch.ones(5, 2, 8)})


class _Mixer(nn.Module):
    def __init__(self, attends):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True) if attends else None
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        if self.attend is not None:
            x = x + self.attend(x, x, x, need_weights=False)[0]
        return x + self.linear(x)


class _Stack(nn.Module):
    def __init__(self, *attends):
        super().__init__()
        self.blocks = nn.ModuleList(_Mixer(a) for a in attends)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_a_hybrid_is_refused_and_its_silent_block_named():
    with pytest.raises(UnsupportedModelError, match=r"1 of 3 blocks .*blocks\.1"):
        _anatomy(_Stack(True, False, True), {"x": torch.ones(1, 5, 8)})


def test_blocks_can_be_named_by_hand():
    model, batch = _Stack(True, True, True), {"x": torch.ones(1, 5, 8)}
    whole = _anatomy(model, batch, blocks="blocks")
    assert [block.path for block in whole.depth.blocks] == ["blocks.0", "blocks.1", "blocks.2"]
    some = _anatomy(model, batch, blocks=["blocks.1", "blocks.2"])
    assert [block.path for block in some.depth.blocks] == ["blocks.1", "blocks.2"]
    assert [a.site.chain for a in some.outside] == ["outside"]


def test_wrong_names_are_refused_in_a_sentence():
    model, batch = _Stack(True, True), {"x": torch.ones(1, 5, 8)}
    with pytest.raises(InvalidInputError, match="is no module of _Stack"):
        Tap(model, blocks="layers")
    with pytest.raises(TapError, match="which the model did not call"):
        _anatomy(model, batch, blocks=["blocks.0", "blocks.7"])


def test_a_u_net_has_attention_but_no_depth():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=4,
        transformer_layers_per_block=2,
    ).eval()
    batch = {
        "sample": torch.randn(1, 4, 8, 8),
        "timestep": torch.tensor(3),
        "encoder_hidden_states": torch.randn(1, 5, 16),
    }
    anatomy = _anatomy(model, batch)
    assert isinstance(anatomy.depth, Unavailable)
    assert "U-Net" in anatomy.depth.reason
    assert isinstance(anatomy.tail, Unavailable)


def test_two_streams_and_two_kinds_of_block_are_one_chain_in_flux():
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    ).eval()
    batch = {
        "hidden_states": torch.randn(2, 16, 4),
        "encoder_hidden_states": torch.randn(2, 5, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.randn(16, 3),
        "txt_ids": torch.randn(5, 3),
    }
    depth = _anatomy(model, batch).depth
    assert len(depth) == 5
    assert depth.streams == ("hidden_states", "encoder_hidden_states")
    assert depth.blocks[0].writes["hidden_states"] == ("attention", "feed_forward")
    assert isinstance(depth.blocks[-1].writes["hidden_states"], Unavailable)


def test_a_folded_residual_stream_is_followed_through_its_reshapes():
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=61,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        word_embed_proj_dim=16,
        max_position_embeddings=40,
    )
    model, passes = OPTForCausalLM(config).eval(), []
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(passes.append)
        model(input_ids=torch.arange(12)[None])
    for event in passes:
        assert [w.kind for w in event.writes] == ["attention", "feed_forward"]
        total = event.hidden_in + sum(w.tensor for w in event.writes)
        torch.testing.assert_close(total, event.hidden_out)


class _InPlace(nn.Module):
    """Adds to its stream in place, and once with a factor."""

    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        x += self.attend(x, x, x, need_weights=False)[0]
        return torch.add(x, self.linear(x), alpha=0.5)


def test_in_place_and_scaled_additions_are_followed():
    model, x = nn.Sequential(_InPlace(), _InPlace()), torch.randn(2, 5, 8)
    kinds, seen = [], []

    def listener(event):  # here and now: the next block writes into this one's output
        total = event.hidden_in + sum(w.tensor for w in event.writes)
        torch.testing.assert_close(total, event.hidden_out)
        kinds.append([w.kind for w in event.writes])
        seen.append(event.hidden_in.clone())

    with Tap(model) as tap, torch.no_grad():
        tap.on_block(listener)
        model(x.clone())
    assert kinds == [["attention", "feed_forward"]] * 2
    torch.testing.assert_close(seen[0], x)


class _Looped(nn.Module):
    """Runs its blocks as often as it is told."""

    def __init__(self):
        super().__init__()
        self.block = _Mixer(True)

    def forward(self, x, times):
        for _ in range(times):
            x = self.block(x)
        return x


def test_a_depth_that_changes_with_the_input_is_refused_in_a_sentence():
    model = _Looped()
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: None)
        model(torch.ones(1, 5, 8), 2)
        with pytest.raises(TapError, match="depth depends on its input"):
            model(torch.ones(1, 5, 8), 3)


def test_probe_is_a_function_of_model_and_batch():
    model, batch = models.llama()
    anatomy = probe(model, (), batch)
    assert len(anatomy.depth) == 3
    assert anatomy.chain("model.layers") is anatomy.depth
    with pytest.raises(TapError, match=r"has 'model\.layers'"):
        anatomy.chain("transformer.h")
