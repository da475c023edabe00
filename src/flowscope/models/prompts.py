"""From texts or images to batches: what goes into the model, and which rows count."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.loading import Loaded
from flowscope.models.texts import Texts, given_texts
from flowscope.records import Unavailable

__all__ = [
    "Batch",
    "Prompts",
    "batches_of",
    "packaged_texts",
    "prompts_of",
    "token_text",
]


_SHORT = "with fewer than two tokens"
_EQUAL = "equal to an earlier one"


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompts:
    """Tokenised prompts (or images), each no longer than asked, with the hash of what they are.

    ``left_out`` says how many were not taken, by the reason.
    """

    items: tuple[NDArray[np.generic], ...]
    source: str
    data_hash: str
    text_hash: str
    images: bool
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    def first(self, count: int) -> "Prompts":
        """The first few of them."""
        return replace(self, items=self.items[:count])

    @property
    def tokens(self) -> int:
        """Tokens in all prompts; images count one each."""
        return len(self) if self.images else sum(len(item) for item in self.items)

    @property
    def facts(self) -> dict[str, object]:
        """How much is read, for the manifest; what was left out stands there if anything was."""
        words = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        left_out = {"left_out": words} if words else {}
        return {"prompts": len(self), "tokens_measured": self.tokens, **left_out}


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


def prompts_of(
    loaded: Loaded,
    texts: Texts | Sequence[str] | Tensor,
    *,
    count: int,
    length: int,
    source: str = "given",
) -> Prompts:
    """The first ``count`` prompts of at most ``length`` tokens.

    Parameters
    ----------
    loaded
        Supplies the tokenizer and the size of the vocabulary.
    texts
        Texts (anything that `given_texts` takes), or for a vision model a tensor of images
        ``[n, channels, height, width]``. A running text is cut into consecutive windows. A prompt
        that equals an earlier one, or has fewer than two tokens, is left out and counted.
    count, length
        How many prompts, and how many tokens of each.
    source
        Where the texts came from, for the manifest.

    Raises
    ------
    InvalidInputError
        For an empty list, a prompt of fewer than two tokens, a tokenizer that does not fit.
    """
    if not isinstance(texts, Texts):
        texts = given_texts(texts)
    if isinstance(texts, Tensor):
        images = tuple(image.numpy() for image in texts[:count].cpu())
        return _hashed(images, source, [], images=True)
    if isinstance(loaded.tokenizer, Unavailable):
        raise InvalidInputError(
            f"{loaded.source} has no tokenizer ({loaded.tokenizer.reason}). Give one: "
            "flowscope.audit(model, texts, tokenizer=...)."
        )
    special = loaded.kind not in ("causal_lm", "seq2seq")
    items: dict[bytes, NDArray[np.generic]] = {}
    left_out: Counter[str] = Counter()
    for ids in _windows(loaded, texts, special, count, length):
        if len(ids) < 2:
            left_out[_SHORT] += 1
        elif ids.tobytes() in items:
            left_out[_EQUAL] += 1
        else:
            items[ids.tobytes()] = ids
        if len(items) == count:
            break
    if not items:
        raise InvalidInputError(
            "The text has fewer than two tokens, so that nothing can be measured. Give more text."
        )
    made = _hashed(tuple(items.values()), source, texts.texts, images=False)
    return replace(made, left_out=dict(left_out))


def _windows(
    loaded: Loaded, texts: Texts, special: bool, count: int, length: int
) -> Iterator[NDArray[np.int64]]:
    """Token numbers of each prompt; a running text gives one window after the other."""
    for number, text in enumerate(texts.texts):
        if not texts.running:
            yield _tokens(loaded, text, special, number)[:length]
            continue
        ids = _tokens(loaded, text[: 16 * count * length], special, number)
        yield from (ids[start : start + length] for start in range(0, len(ids), length))


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
    r"""Text of a token, exactly; what shows it makes it visible.

    A vocabulary of bytes has a token for NUL, and some decode to half a surrogate pair. Tables keep
    both.

    >>> from types import SimpleNamespace
    >>> token_text(SimpleNamespace(decode=lambda ids: chr(ids[0])), 0)
    '\x00'
    """
    return str(tokenizer.decode([token]))
