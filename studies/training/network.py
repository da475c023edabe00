"""The network of the bundled model: a plain Llama, and what is put around it while it learns."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

__all__ = ["averaged", "dropped_out", "fresh_model", "parameter_groups"]


def fresh_model(sizes: dict[str, Any], seed: int) -> LlamaForCausalLM:
    """A Llama with random weights; what each block writes starts smaller the deeper the model."""
    config = LlamaConfig(
        **sizes,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        attn_implementation="sdpa",
        use_cache=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            for write in (layer.self_attn.o_proj, layer.mlp.down_proj):
                write.weight.mul_(1 / math.sqrt(2 * config.num_hidden_layers))
    return model


def dropped_out(model: LlamaForCausalLM, p: float) -> Callable[[], None]:
    """Drop entries of the embeddings and of every write while training; returns the undoing."""

    def hook(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        return F.dropout(output, p, training=module.training)

    layers = model.model.layers
    places = [model.model.embed_tokens]
    places += [m for layer in layers for m in (layer.self_attn.o_proj, layer.mlp.down_proj)]
    handles = [place.register_forward_hook(hook) for place in places if p > 0]
    return lambda: [handle.remove() for handle in handles] and None


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay, gains do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]


def averaged(shadow: nn.Module, model: nn.Module, step: int, memory: float) -> None:
    """Move the shadow towards the model: a mean over about 1/(1 − memory) steps, fewer at first."""
    share = 1 - min(memory, (1 + step) / (10 + step))
    with torch.no_grad():
        torch._foreach_lerp_(list(shadow.parameters()), list(model.parameters()), share)
