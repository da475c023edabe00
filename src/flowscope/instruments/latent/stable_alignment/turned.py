r"""The same function in other coordinates: every state $h$ of the residual stream becomes $hQ$.

With the gains of the norms moved into the matrices that follow them, a Llama is invariant under

$$ E \to EQ, \qquad W_{\rm in} \to W_{\rm in}Q, \qquad W_{\rm out} \to Q^\top W_{\rm out} $$

for every orthogonal Q, because an RMS norm without gain commutes with it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.lab.bench import seeded_generator
from flowscope.records import Unavailable

__all__ = ["turned_twin"]

_KNOWN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
_READS = ("q_proj", "k_proj", "v_proj")
_KEY = 73  # of random numbers


@torch.no_grad()
def turned_twin(model: nn.Module, *, seed: int) -> nn.Module | Unavailable:
    """A model of the same function whose states are turned by a random orthogonal matrix.

    Unavailable for architectures whose reading and writing matrices are not known.
    """
    if type(model).__name__ not in _KNOWN:
        return Unavailable(
            f"states of {type(model).__name__} cannot be turned: known are {', '.join(_KNOWN)}"
        )
    twin: Any = copy.deepcopy(model).eval()
    width = twin.model.embed_tokens.weight.shape[1]
    draw = torch.randn(width, width, generator=seeded_generator(seed, _KEY), dtype=torch.float64)
    turn = torch.linalg.qr(draw).Q.to(twin.model.embed_tokens.weight.device)
    head = twin.lm_head.weight.clone()
    twin.config.tie_word_embeddings = False
    twin.lm_head.weight = nn.Parameter(_reading(head, twin.model.norm, turn))
    twin.model.embed_tokens.weight.copy_(twin.model.embed_tokens.weight.double() @ turn)
    for block in twin.model.layers:
        for name in _READS:
            _turn_reader(getattr(block.self_attn, name), block.input_layernorm, turn)
        for name in ("gate_proj", "up_proj"):
            _turn_reader(getattr(block.mlp, name), block.post_attention_layernorm, turn)
        for writer in (block.self_attn.o_proj, block.mlp.down_proj):
            writer.weight.copy_(turn.mT @ writer.weight.double())
            if writer.bias is not None:
                writer.bias.copy_(writer.bias.double() @ turn)
        for norm in (block.input_layernorm, block.post_attention_layernorm):
            norm.weight.fill_(1.0)
    twin.model.norm.weight.fill_(1.0)
    return twin  # type: ignore[no-any-return]


def _reading(weight: Tensor, norm: Any, turn: Tensor) -> Tensor:
    turned: Tensor = ((weight.double() * norm.weight.double()) @ turn).to(weight.dtype)
    return turned


def _turn_reader(reader: Any, norm: Any, turn: Tensor) -> None:
    reader.weight.copy_(_reading(reader.weight, norm, turn))
