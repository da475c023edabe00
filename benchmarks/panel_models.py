"""Models of the panel: small ones with random weights, the bundled one in all its states, others.

Every subject is audited by ``flowscope.audit`` itself, with the sweeps and controls left out that
no verdict reads.
"""

import copy
import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

import flowscope
from benchmarks.scored_pieces import ScoredPieces
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import packaged_texts
from flowscope.models.twin import fresh_twin
from flowscope.nets import bundled_path
from flowscope.records import Verdict

__all__ = [
    "audited",
    "deep_model",
    "opened",
    "random_model",
    "shuffled_blocks",
    "story_texts",
    "untrained",
]

_QUIET = {"temperatures": [], "key_norms": [], "evi_positions": 0, "controls": False}
_LLAMAS = ((5, 64), (8, 128), (14, 96), (10, 192))


class Bytes:
    """A tokenizer that gives the bytes of a text."""

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        """Token numbers of a text."""
        return {"input_ids": list(text.encode())}

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of some tokens; control characters by their number, which tables can hold."""
        return "".join(chr(t) if 31 < t < 127 else f"<{t}>" for t in tokens)


def audited(
    loaded: Loaded, texts: Sequence[str], *, tokens: int, seed: int = 0, **settings: object
) -> list[Verdict]:
    """Verdicts of an audit of a model on some texts."""
    with tempfile.TemporaryDirectory() as folder:
        result = flowscope.audit(
            loaded, list(texts), out=f"{folder}/run", progress=False, prompts=len(texts),
            tokens=tokens, seed=seed, **_QUIET, **settings,
        )  # fmt: skip
        return list(result.verdicts)


def random_model(seed: int) -> tuple[str, Loaded]:
    """A small network with random weights, and the name of its kind; seeds go through the kinds.

    Four Llamas (5 to 14 layers) at the initial size of the library, the same with weights of
    variance 1 / width, two networks in the manner of GPT-2, and the bundled architecture; the last
    two read the tokens of the bundled model, the Llamas read bytes.
    """
    torch.manual_seed(seed)
    kind = seed % 8
    if kind >= 5:
        bundled = load(bundled_path())
        if kind == 7:
            return "bundled architecture", untrained(bundled, seed)
        torch.manual_seed(seed)
        layers, size = (6, 12)[kind - 5], int(bundled.model.config.vocab_size)
        model = _gpt2(layers, width=96, size=size)
        return f"GPT-2, {layers} layers", load(model, tokenizer=bundled.tokenizer)
    layers, width = _LLAMAS[(seed // 8 + kind) % 4]
    spread = 0.02 if kind < 3 else width**-0.5
    name = "Llama" if kind < 3 else "Llama, weights of variance 1 / width"
    return name, load(_llama(layers, width, spread), tokenizer=Bytes())


def deep_model(seed: int) -> Loaded:
    """A Llama of 42 layers with random weights."""
    torch.manual_seed(seed)
    return load(_llama(42, 64, 0.02), tokenizer=Bytes())


def _llama(layers: int, width: int, spread: float) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=4, vocab_size=256, initializer_range=spread,
        max_position_embeddings=256,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def _gpt2(layers: int, width: int, size: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=width, n_layer=layers, n_head=4, vocab_size=size, n_positions=256, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def opened(path: str) -> Loaded:
    """A model of a folder or file, or ``bundled``; a list of scored pieces may be its tokenizer."""
    if path == "bundled":
        return load(bundled_path())
    folder = Path(path)
    pieces = next(iter(folder.glob("tok*.json")), None) if folder.is_dir() else None
    scored = pieces is not None and not (folder / "tokenizer.json").exists()
    return load(path, tokenizer=ScoredPieces(pieces) if pieces and scored else None)


def untrained(loaded: Loaded, seed: int) -> Loaded:
    """The same architecture and tokenizer with random weights."""
    twin = fresh_twin(loaded.model, seed)
    assert isinstance(twin, nn.Module)
    return load(twin, tokenizer=loaded.tokenizer)


def shuffled_blocks(loaded: Loaded, seed: int) -> Loaded:
    """The same model with its blocks in random order."""
    model = copy.deepcopy(loaded.model)
    body = model.get_submodule("model")
    blocks = list(body.get_submodule("layers").children())
    order = np.random.default_rng(seed).permutation(len(blocks))
    body.layers = nn.ModuleList([blocks[place] for place in order])
    return load(model, tokenizer=loaded.tokenizer)


def story_texts(file: Path | None, count: int = 64) -> list[str]:
    """Passages of a text file (.gz and .jsonl too), evenly spaced; without a file the packaged."""
    if file is None:
        return list(packaged_texts())[:count]
    raw = file.read_bytes()
    content = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    if ".jsonl" in file.name:
        return [json.loads(line)["text"] for line in content.splitlines()[:count]]
    starts = [content.find(" ", k * (len(content) - 900) // count) for k in range(count)]
    return [content[start : start + 800] for start in starts]
