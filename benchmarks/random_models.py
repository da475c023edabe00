"""Models of the shapes of known ones with random weights, made where they are to run, and texts."""

import random
from dataclasses import dataclass

import torch
from torch import nn

from flowscope.nets import bundled_path

__all__ = ["SHAPES", "Shape", "built", "random_texts", "tokenizer"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama, and how much it reads in a benchmark."""

    layers: int
    width: int
    inner: int
    heads: int
    keys: int
    vocabulary: int
    prompts: int
    tokens: int
    tied: bool = False


SHAPES = {
    "135M": Shape(30, 576, 1536, 9, 3, 49_152, prompts=64, tokens=256, tied=True),
    "8B": Shape(32, 4096, 14_336, 32, 8, 128_256, prompts=16, tokens=256),
    "tiny": Shape(5, 32, 64, 4, 2, 4096, prompts=16, tokens=24, tied=True),
}
"""SmolLM2-135M, Llama-3 8B, and one to try a benchmark with."""


def built(shape: Shape, device: str, dtype: torch.dtype) -> nn.Module:
    """A Llama of this shape with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.keys,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=2048,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def tokenizer() -> object:
    """The tokenizer of the bundled model: its words are in every vocabulary above."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(bundled_path()))


def random_texts(shape: Shape, words: list[str]) -> list[str]:
    """Texts of random words, each of at least the tokens that are read of it."""
    rng = random.Random(0)
    return [" ".join(rng.choices(words, k=shape.tokens)) for _ in range(shape.prompts)]
