"""Tiny models in folders, and ways to break them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tests.models.synthetic_pipelines import pixel_folder
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as kinds
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from flowscope.models.loading import load

__all__ = ["WORDS", "World", "changed_config", "changed_weights", "sentence_of"]

WORDS = [f"w{i}" for i in range(20)]
Change = Callable[[Path], object]


def sentence_of(length: int, seed: int = 0) -> str:
    """Words of the tiny vocabulary in a fixed random order."""
    numbers = torch.randint(0, 20, (length,), generator=torch.Generator().manual_seed(seed))
    return " ".join(WORDS[int(number)] for number in numbers)


def tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer of the tiny vocabulary; “[UNK]” is its special token."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    inner = Tokenizer(kinds.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


def language_model(layers: int = 2, outcomes: int = 21) -> GPT2LMHeadModel:
    """A language model of 16 positions."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=outcomes, n_positions=16, n_embd=8, n_layer=layers, n_head=2,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()


class World:
    """A folder with a language model, a pipeline, texts, and what cases write there."""

    def __init__(self, root: Path) -> None:
        self.root, self._made = root, 0
        self.language, self.pipeline = root / "gpt", root / "pipeline"
        language_model().save_pretrained(self.language)
        tokenizer().save_pretrained(self.language)
        pixel_folder(self.pipeline, names=["cat", "dog", "owl"])
        self.texts = [sentence_of(10, seed) for seed in range(4)]
        self.prompts = self.file("prompts.jsonl", "\n".join(map(_row, self.texts)))
        self.loaded = load(self.language)
        self.denoiser = load(self.pipeline)

    def file(self, name: str, content: str | bytes) -> Path:
        """A new file, in a folder of its own."""
        self._made += 1
        path = self.root / f"files{self._made}" / name
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def broken(self, change: Change, base: str = "language", name: str = "") -> Path:
        """A copy of a model's folder, after a change."""
        self._made += 1
        path = self.root / (name or f"broken{self._made}")
        shutil.copytree(getattr(self, base), path)
        change(path)
        return path

    @property
    def out(self) -> Path:
        """A new folder for runs."""
        self._made += 1
        return self.root / f"out{self._made}"


def _row(text: str) -> str:
    return json.dumps({"text": text})


def changed_config(file: str = "config.json", **values: Any) -> Change:
    """A change of entries of a JSON file."""

    def change(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def changed_weights(
    change: Callable[[dict[str, Any]], object], file: str = "model.safetensors"
) -> Change:
    """A change of the tensors of a file of weights."""

    def changed(folder: Path) -> None:
        tensors = dict(load_file(folder / file))
        change(tensors)
        save_file(tensors, folder / file, metadata={"format": "pt"})

    return changed
