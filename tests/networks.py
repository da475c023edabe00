"""Small random-weight models of many families, each with a batch it accepts.

Sizes are the smallest at which every mechanism is there: grouped heads, sliding windows shorter
than the sequence, soft-caps that bend, adaptive norms that are not zero.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Batch = dict[str, Any]
VOCAB, LENGTH, ROWS = 61, 12, 2


def _seeded(make: Callable[..., tuple[nn.Module, Batch]]) -> Callable[..., tuple[nn.Module, Batch]]:
    """The same weights at every call, whatever ran before."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> tuple[nn.Module, Batch]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return make(*args, **kwargs)

    return made


def _ids(rows: int = ROWS, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


def _shake(model: nn.Module) -> nn.Module:
    """Give every parameter a generic value: zero gates and unit norms hide mistakes."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@_seeded
def gpt2(layers: int = 3) -> tuple[nn.Module, Batch]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=layers, n_head=4)
    return _shake(GPT2LMHeadModel(config)), {"input_ids": _ids()}


@_seeded
def llama(layers: int = 3) -> tuple[nn.Module, Batch]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return _shake(LlamaForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def qwen3() -> tuple[nn.Module, Batch]:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    return _shake(Qwen3ForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def gemma2() -> tuple[nn.Module, Batch]:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        sliding_window=4,
    )
    model = Gemma2ForCausalLM(config)
    model.set_attn_implementation("eager")  # some releases would run it on sdpa, without its cap
    return _shake(model), {"input_ids": _ids()}


@_seeded
def gemma3() -> tuple[nn.Module, Batch]:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=4,
    )
    return _shake(Gemma3ForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def bert() -> tuple[nn.Module, Batch]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
    )
    return _shake(BertForMaskedLM(config)), {"input_ids": _ids()}


@_seeded
def albert() -> tuple[nn.Module, Batch]:
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(
        vocab_size=VOCAB,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
    )
    return _shake(AlbertForMaskedLM(config)), {"input_ids": _ids()}


@_seeded
def t5() -> tuple[nn.Module, Batch]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    batch = {"input_ids": _ids(), "decoder_input_ids": _ids(length=7)}
    return _shake(T5ForConditionalGeneration(config)), batch


@_seeded
def vit() -> tuple[nn.Module, Batch]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=16,
        patch_size=8,
        num_labels=5,
    )
    pixels = torch.randn(ROWS, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return _shake(ViTForImageClassification(config)), {"pixel_values": pixels}


@_seeded
def neox() -> tuple[nn.Module, Batch]:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        use_parallel_residual=True,
    )
    return _shake(GPTNeoXForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def dit() -> tuple[nn.Module, Batch]:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=3,
        num_layers=3,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
    )
    batch = {
        "hidden_states": torch.randn(ROWS, 3, 8, 8, generator=torch.Generator().manual_seed(1)),
        "timestep": torch.tensor([3, 700]),
        "class_labels": torch.tensor([1, 4]),
    }
    return _shake(model), batch


@_seeded
def sd3() -> tuple[nn.Module, Batch]:
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=2,
        caption_projection_dim=16,
        joint_attention_dim=24,
        pooled_projection_dim=12,
        out_channels=4,
        pos_embed_max_size=8,
    )
    generator = torch.Generator().manual_seed(1)
    batch = {
        "hidden_states": torch.randn(ROWS, 4, 8, 8, generator=generator),
        "encoder_hidden_states": torch.randn(ROWS, 5, 24, generator=generator),
        "pooled_projections": torch.randn(ROWS, 12, generator=generator),
        "timestep": torch.tensor([3.0, 700.0]),
    }
    return _shake(model), batch


@_seeded
def pixart() -> tuple[nn.Module, Batch]:
    from diffusers import PixArtTransformer2DModel

    model = PixArtTransformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        out_channels=8,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=2,
        cross_attention_dim=16,
        caption_channels=24,
        use_additional_conditions=False,
    )
    generator = torch.Generator().manual_seed(1)
    batch = {
        "hidden_states": torch.randn(ROWS, 4, 8, 8, generator=generator),
        "encoder_hidden_states": torch.randn(ROWS, 5, 24, generator=generator),
        "timestep": torch.tensor([3, 700]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    return _shake(model), batch


@_seeded
def encoder(norm_first: bool = True) -> tuple[nn.Module, Batch]:
    layer = nn.TransformerEncoderLayer(
        d_model=32, nhead=4, dim_feedforward=48, batch_first=True, norm_first=norm_first
    )
    model = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=not norm_first)
    source = torch.randn(ROWS, LENGTH, 32, generator=torch.Generator().manual_seed(1))
    return _shake(model), {"src": source}


@_seeded
def bloom() -> tuple[nn.Module, Batch]:
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=3, n_head=4)
    return _shake(BloomForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def gptj() -> tuple[nn.Module, Batch]:
    from transformers import GPTJConfig, GPTJForCausalLM

    config = GPTJConfig(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=3, n_head=4, rotary_dim=4
    )
    return _shake(GPTJForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def opt() -> tuple[nn.Module, Batch]:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        ffn_dim=48,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return _shake(OPTForCausalLM(config)), {"input_ids": _ids()}


@_seeded
def whisper() -> tuple[nn.Module, Batch]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCAB,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=20,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    sound = torch.randn(ROWS, 8, 40, generator=torch.Generator().manual_seed(1))
    batch = {"input_features": sound, "decoder_input_ids": _ids(length=7)}
    return _shake(WhisperForConditionalGeneration(config)), batch


@_seeded
def flux() -> tuple[nn.Module, Batch]:
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
    )
    generator = torch.Generator().manual_seed(1)
    batch = {
        "hidden_states": torch.randn(ROWS, 16, 4, generator=generator),
        "encoder_hidden_states": torch.randn(ROWS, 5, 32, generator=generator),
        "pooled_projections": torch.randn(ROWS, 32, generator=generator),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.rand(16, 3, generator=generator),
        "txt_ids": torch.zeros(5, 3),
    }
    return _shake(model), batch


@_seeded
def clip() -> tuple[nn.Module, Batch]:
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "eos_token_id": 2,
    }
    picture = {**text, "image_size": 16, "patch_size": 8, "num_hidden_layers": 2}
    pixels = torch.randn(ROWS, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    config = CLIPConfig(text_config=text, vision_config=picture, projection_dim=16)
    return _shake(CLIPModel(config)), {"input_ids": _ids(), "pixel_values": pixels}


Factory = Callable[[], tuple[nn.Module, Batch]]
READABLE: dict[str, Factory] = {
    f.__name__: f
    for f in (
        gpt2, llama, qwen3, gemma2, gemma3, bert, albert, t5, vit, neox, dit, sd3, pixart, encoder,
    )
}  # fmt: skip
FURTHER: dict[str, Factory] = {f.__name__: f for f in (opt, whisper, flux, clip)}
REFUSED: dict[str, Factory] = {f.__name__: f for f in (bloom, gptj)}


def first_tensor(output: Any) -> torch.Tensor:
    """The tensor a user compares: the output itself, or the first one in it."""
    if isinstance(output, torch.Tensor):
        return output
    values = output.values() if hasattr(output, "values") else output
    return next(first_tensor(v) for v in values if v is not None)
