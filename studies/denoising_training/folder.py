"""A model folder of transformers from trained weights: configuration and tokenizer.

The rotary periods are written as ``longrope`` factors, the only kind of positions of transformers
that takes any list of periods; short and long factors are equal, so that nothing depends on the
length of a text.
"""

import json
import math
from pathlib import Path
from typing import Any

from studies.denoising_training.network import Sizes
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from flowscope.nets.sudoku import CHARACTERS, MASK, PAD

__all__ = ["configuration", "recorded_sizes", "write_folder"]

LONGEST = 128  # positions; the longest text has 100
_BASE = 10000.0


def recorded_sizes(record: dict[str, Any]) -> Sizes:
    """The shape of the network of a ``training.json``."""
    names = ("layers", "width", "heads", "feed_forward")
    options = {name: record["options"][name] for name in names}
    return Sizes(vocabulary=len(CHARACTERS), periods=tuple(record["periods"]), **options)


def configuration(sizes: Sizes) -> dict[str, Any]:
    """``config.json`` of a ``LlamaForCausalLM`` that sees both ways."""
    half = sizes.head // 2
    factors = [
        period / (2 * math.pi * _BASE ** (i / half)) for i, period in enumerate(sizes.periods)
    ]
    rope = {
        "rope_type": "longrope",
        "rope_theta": _BASE,
        "short_factor": factors,
        "long_factor": factors,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": LONGEST,
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "is_causal": False,
        "mask_token_id": CHARACTERS.index(MASK),
        "pad_token_id": CHARACTERS.index(PAD),
        "bos_token_id": None,
        "eos_token_id": None,
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "head_dim": sizes.head,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.epsilon,
        "max_position_embeddings": LONGEST,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": False,
        "dtype": "bfloat16",
    }


def tokenizer() -> Tokenizer:
    """One token a character; characters of no task are padding."""
    found = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token=PAD))
    found.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    found.decoder = decoders.Fuse()
    return found


def write_folder(sizes: Sizes, folder: Path) -> None:
    """Write ``config.json`` and the tokenizer; the weights lie beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "mask_token": MASK,
        "pad_token": PAD,
        "unk_token": PAD,
        "model_max_length": LONGEST,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    contents = {"config.json": configuration(sizes), "tokenizer_config.json": settings}
    for name, content in contents.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    tokenizer().save(str(folder / "tokenizer.json"))
