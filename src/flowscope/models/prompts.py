"""From texts or images to batches: what goes into the model, and which rows count."""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.loading import Loaded
from flowscope.records import Unavailable

__all__ = [
    "Batch",
    "Prompts",
    "batches_of",
    "packaged_texts",
    "prompts_of",
    "read_texts",
    "token_text",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompts:
    """Tokenised prompts (or images), each no longer than asked, with the hash of what they are."""

    items: tuple[NDArray[np.generic], ...]
    source: str
    data_hash: str
    text_hash: str
    images: bool

    def __len__(self) -> int:
        return len(self.items)

    def first(self, count: int) -> "Prompts":
        """The first few of them."""
        return replace(self, items=self.items[:count])

    @property
    def tokens(self) -> int:
        """Tokens in all prompts; images count one each."""
        return len(self) if self.images else sum(len(item) for item in self.items)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A few prompts, padded on the right: inputs of the model, and the rows that count."""

    inputs: dict[str, Tensor]
    prompts: NDArray[np.int64]
    mask: Tensor


def packaged_texts() -> list[str]:
    """The prompts that ship with flowscope: public domain or MIT."""
    lines = files("flowscope.nets").joinpath("prompts.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["text"] for line in lines.splitlines()]


def read_texts(source: str | Path) -> tuple[list[str], bool]:
    """Texts of a file or of standard input (``-``), and whether they are one running text.

    A ``.jsonl`` file holds one prompt per line under ``"text"``; anything else is one running text.

    Raises
    ------
    InvalidInputError
        When the file is not there, is no text, or holds nothing.
    """
    name = "standard input" if str(source) == "-" else str(source)
    try:
        content = sys.stdin.read() if str(source) == "-" else Path(source).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The text {name} could not be read: {error}.") from error
    if not content.strip():
        raise InvalidInputError(f"{name} is empty. Give a file with at least two tokens of text.")
    if not name.endswith(".jsonl"):
        return [content], True
    try:
        rows = [json.loads(line) for line in content.splitlines() if line.strip()]
        return [str(row["text"]) for row in rows], False
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f'{name} must hold one JSON object with a "text" per line; found {error!r}.'
        ) from error


def prompts_of(
    loaded: Loaded,
    texts: Sequence[str] | Tensor,
    *,
    count: int,
    length: int,
    running: bool = False,
    source: str = "given",
) -> Prompts:
    """The first ``count`` prompts of at most ``length`` tokens.

    Parameters
    ----------
    loaded
        Supplies the tokenizer and the size of the vocabulary.
    texts
        Texts, or for a vision model a tensor of images ``[n, channels, height, width]``.
    count, length
        How many prompts, and how many tokens of each.
    running
        Whether a text is to be cut into consecutive windows instead of truncated.
    source
        Where the texts came from, for the manifest.

    Raises
    ------
    InvalidInputError
        For an empty list, a prompt of fewer than two tokens, a tokenizer that does not fit.
    """
    if isinstance(texts, Tensor):
        images = tuple(image.numpy() for image in texts[:count].cpu())
        return _hashed(images, source, [], images=True)
    if isinstance(loaded.tokenizer, Unavailable):
        raise InvalidInputError(
            f"{loaded.source} has no tokenizer ({loaded.tokenizer.reason}). Give one: "
            "flowscope.audit(model, texts, tokenizer=...)."
        )
    special = loaded.kind not in ("causal_lm", "seq2seq")
    found: list[NDArray[np.generic]] = []
    for number, text in enumerate(texts):
        ids = _tokens(loaded, text[: 16 * count * length] if running else text, special, number)
        windows = range(0, len(ids), length) if running else range(1)
        found.extend(ids[start : start + length] for start in windows)
        if len(found) >= count:
            break
    found = [ids for ids in found[:count] if len(ids) >= 2]
    if not found:
        raise InvalidInputError(
            "The text has fewer than two tokens, so that nothing can be measured. Give more text."
        )
    return _hashed(tuple(found), source, texts, images=False)


def _tokens(loaded: Loaded, text: str, special: bool, number: int) -> NDArray[np.int64]:
    tokenizer: Any = loaded.tokenizer
    encoded = tokenizer(text, add_special_tokens=special, verbose=False)
    ids = np.asarray(encoded["input_ids"], np.int64)
    config: Any = loaded.model.config
    size = int(getattr(getattr(config, "text_config", config), "vocab_size", 0))
    if len(ids) and size and ids.max() >= size:
        raise InvalidInputError(
            f"The tokenizer gave token {ids.max()} in text {number}; the vocabulary of the model "
            f"has {size} tokens. Give the tokenizer the model was trained with."
        )
    return ids


def _hashed(
    items: tuple[NDArray[np.generic], ...], source: str, texts: Sequence[str], *, images: bool
) -> Prompts:
    if not items:
        raise InvalidInputError("There is no prompt to measure on. Give at least one text.")
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.dtype}|{item.shape}|".encode() + item.tobytes())
    data = digest.hexdigest()
    raw = hashlib.sha256("\x00".join(texts).encode()).hexdigest() if texts else data
    return Prompts(items=items, source=source, data_hash=data, text_hash=raw, images=images)


def batches_of(loaded: Loaded, prompts: Prompts, size: int) -> Iterator[Batch]:
    """Batches of ``size`` prompts, on the device of the model."""
    parameter = next(loaded.model.parameters())
    device = torch.device("cpu") if parameter.is_meta else parameter.device
    for start in range(0, len(prompts), size):
        items = prompts.items[start : start + size]
        numbers = np.arange(start, start + len(items), dtype=np.int64)
        if prompts.images:
            pixels = torch.as_tensor(np.stack(items)).to(device, parameter.dtype)
            mask = torch.ones(len(items), 1, dtype=torch.bool)
            yield Batch(inputs={"pixel_values": pixels}, prompts=numbers, mask=mask)
            continue
        length = max(len(item) for item in items)
        ids = torch.zeros(len(items), length, dtype=torch.long)
        mask = torch.zeros(len(items), length, dtype=torch.bool)
        for row, item in enumerate(items):
            ids[row, : len(item)] = torch.as_tensor(item)
            mask[row, : len(item)] = True
        inputs = {"input_ids": ids.to(device)}
        if not mask.all():
            inputs["attention_mask"] = mask.long().to(device)
        if loaded.kind == "seq2seq":
            inputs["decoder_input_ids"] = inputs["input_ids"]
        yield Batch(inputs=inputs, prompts=numbers, mask=mask)


def token_text(tokenizer: Any, token: int) -> str:
    """Text of a token that the files of a run can hold.

    A vocabulary of bytes has a token for NUL, and some decode to half a surrogate pair. The first
    becomes its symbol ␀, the second a question mark.

    >>> from types import SimpleNamespace
    >>> token_text(SimpleNamespace(decode=lambda ids: chr(ids[0])), 0)
    '␀'
    """
    text = str(tokenizer.decode([token])).replace("\0", "␀")
    return text.encode("utf-8", "replace").decode("utf-8")
