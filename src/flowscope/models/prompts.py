"""From texts or images to batches: what goes into the model, and which rows count."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.loading import Loaded
from flowscope.models.reading.targets import (
    Positions,
    causal_positions,
    hidden_positions,
    shifted_positions,
)
from flowscope.models.reading.tokens import PLAIN, Feeding, Window, windows_of
from flowscope.models.reading.words import fed_words, mask_token
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

    Attributes
    ----------
    items
        Token numbers that the model is fed (its encoder where there is a decoder), or images.
    source
        Where they come from.
    data_hash, text_hash
        Of the items, and of the texts.
    images
        Whether they are images.
    left_out
        How many were not taken, by the reason.
    positions
        Which positions of each prompt count and what is to be named there; empty where all count.
    fed
        What the texts became before the model sees them, in words.
    skipped
        How many prompts of the texts were left out before the first of these.
    """

    items: tuple[NDArray[np.generic], ...]
    source: str
    data_hash: str
    text_hash: str
    images: bool
    left_out: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[Positions, ...] = ()
    fed: str = ""
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.items)

    def first(self, count: int) -> "Prompts":
        """The first few of them."""
        return replace(self, items=self.items[:count], positions=self.positions[:count])

    def at(self, number: int) -> Positions:
        """Positions of one prompt of text."""
        if self.positions:
            return self.positions[number]
        ids = self.items[number].astype(np.int64)
        return causal_positions(Window(ids=ids, text=np.ones(len(ids), bool)))

    @property
    def hides(self) -> bool:
        """Whether tokens are hidden behind a mask token and some are visible beside them."""
        return any(bool((place.text & ~place.named).any()) for place in self.positions)

    @property
    def tokens(self) -> int:
        """Tokens in all prompts; images count one each."""
        return len(self) if self.images else sum(len(item) for item in self.items)

    @property
    def facts(self) -> dict[str, object]:
        """How much is read and how, for the manifest; what was left out if anything was."""
        words = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        left_out = {"left_out": words} if words else {}
        fed = {"fed": self.fed} if self.fed else {}
        return {"prompts": len(self), "tokens_measured": self.tokens, **left_out, **fed}


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A few prompts, padded on the right: inputs of the model, and the rows that count.

    Attributes
    ----------
    inputs, prompts
        Keyword arguments of the model, and the number of the prompt in each row.
    mask
        Positions of text: rows of every statistic. Special tokens and padding are none.
    hidden
        Positions of a masked model whose token was hidden, where its output is read.
    padding
        Positions that hold nothing; None where those of the mask are all there are.
    skipped
        Prompts of the texts before the first one of the run.
    """

    inputs: dict[str, Tensor]
    prompts: NDArray[np.int64]
    mask: Tensor
    hidden: Tensor | None = None
    padding: Tensor | None = None
    skipped: int = 0

    @property
    def named(self) -> Tensor:
        """Positions at which the output is read."""
        return self.mask if self.hidden is None else self.hidden

    @property
    def present(self) -> Tensor:
        """Positions that are there, special ones included: what attention can look at."""
        return self.mask if self.padding is None else ~self.padding


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
    feeding: Feeding = PLAIN,
    skip: int = 0,
) -> Prompts:
    """The first ``count`` prompts of at most ``length`` tokens, after ``skip`` others.

    Parameters
    ----------
    loaded
        Supplies the tokenizer and the size of the vocabulary.
    texts
        Texts (anything that `given_texts` takes), or for a vision model a tensor of images
        ``[n, channels, height, width]``. A running text is cut into consecutive windows. A prompt
        that equals an earlier one, or has fewer than two tokens of text, is left out and counted.
    count, length
        How many prompts, and how many tokens of each, special tokens included.
    source
        Where the texts came from, for the manifest.
    feeding
        Special tokens, chat template, hidden tokens; as the tokenizer has them by default.
    skip
        How many prompts are left out before the first one; draws that belong to a prompt are those
        of its number among all prompts, so that runs over parts merge.

    Raises
    ------
    InvalidInputError
        For an empty list, a prompt of fewer than two tokens, a tokenizer that does not fit.
    """
    if not isinstance(texts, Texts):
        texts = given_texts(texts)
    if isinstance(texts, Tensor):
        images = tuple(image.numpy() for image in texts[skip : skip + count].cpu())
        _refuse_nothing_left(len(images), len(texts), skip)
        return replace(_hashed(images, source, [], images=True), skipped=skip)
    if isinstance(loaded.tokenizer, Unavailable):
        raise InvalidInputError(
            f"{loaded.source} has no tokenizer ({loaded.tokenizer.reason}). Give one: "
            "flowscope.audit(model, texts, tokenizer=...)."
        )
    windows: dict[bytes, Window] = {}
    left_out: Counter[str] = Counter()
    for window in _windows(loaded, texts, feeding, skip + count, length):
        if window.text.sum() < 2:
            left_out[_SHORT] += 1
        elif window.ids.tobytes() in windows:
            left_out[_EQUAL] += 1
        else:
            windows[window.ids.tobytes()] = window
        if len(windows) == skip + count:
            break
    if not windows:
        raise InvalidInputError(
            "The text has fewer than two tokens, so that nothing can be measured. Give more text."
        )
    _refuse_nothing_left(len(windows) - skip, len(windows), skip)
    kept = list(windows.values())[skip:]
    positions = tuple(
        _positions(loaded, window, feeding, number) for number, window in enumerate(kept, skip)
    )
    for number, place in enumerate(positions):
        _refuse_unknown(loaded, place.ids, number)  # a mask token may have been added later
    # An encoder is fed the text as it is; what its decoder reads is in the positions.
    whole = loaded.kind == "seq2seq"
    pairs = zip(kept, positions, strict=True)
    items = tuple(window.ids if whole else place.ids for window, place in pairs)
    made = _hashed(items, source, texts.texts, images=False)
    words = fed_words(loaded, feeding)
    return replace(made, left_out=dict(left_out), positions=positions, fed=words, skipped=skip)


def _refuse_nothing_left(left: int, all_: int, skip: int) -> None:
    if left <= 0 < all_:
        raise InvalidInputError(
            f"The text has {all_} prompts, and the first {skip} are left out (skip): none is left. "
            "Skip fewer, or give more text."
        )


def _windows(
    loaded: Loaded, texts: Texts, feeding: Feeding, count: int, length: int
) -> Iterator[Window]:
    """Windows of each prompt; a running text gives one window after the other."""
    for number, text in enumerate(texts.texts):
        some = text[: 16 * count * length] if texts.running else text
        for window in windows_of(
            loaded.tokenizer, some, feeding, length=length, running=texts.running
        ):
            _refuse_unknown(loaded, window.ids, number)
            yield window


def _positions(loaded: Loaded, window: Window, feeding: Feeding, number: int) -> Positions:
    if loaded.kind == "seq2seq":
        return shifted_positions(loaded.model, window)
    if loaded.kind != "masked_lm":
        return causal_positions(window)
    share, token = feeding.masked_share, mask_token(loaded.tokenizer)
    return hidden_positions(window, token, share=share, seed=(feeding.seed, number))


def _refuse_unknown(loaded: Loaded, ids: NDArray[np.int64], number: int) -> None:
    """Refuse a tokenizer with more tokens than the model."""
    config: Any = loaded.model.config
    size = int(getattr(getattr(config, "text_config", config), "vocab_size", 0))
    if len(ids) and size and ids.max() >= size:
        raise InvalidInputError(
            f"The tokenizer gave token {ids.max()} in text {number}; the vocabulary of the model "
            f"has {size} tokens. Give the tokenizer the model was trained with."
        )


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
            yield Batch(
                inputs={"pixel_values": pixels}, prompts=numbers, mask=mask, skipped=prompts.skipped
            )
            continue
        yield _text_batch(loaded, prompts, numbers, device)


def _text_batch(
    loaded: Loaded, prompts: Prompts, numbers: NDArray[np.int64], device: torch.device
) -> Batch:
    items, places = [prompts.items[k] for k in numbers], [prompts.at(int(k)) for k in numbers]
    length = max(len(item) for item in items)

    def padded(parts: Iterable[NDArray[np.generic]], dtype: torch.dtype) -> Tensor:
        filled = torch.zeros(len(items), length, dtype=dtype)
        for row, part in enumerate(parts):
            filled[row, : len(part)] = torch.as_tensor(part)
        return filled

    present = padded((np.ones(len(item), bool) for item in items), torch.bool)
    mask = padded((place.text for place in places), torch.bool)
    named = padded((place.named for place in places), torch.bool)
    inputs = {"input_ids": padded(items, torch.long).to(device)}
    if not present.all():
        inputs["attention_mask"] = present.long().to(device)
    if loaded.kind == "seq2seq":
        inputs["decoder_input_ids"] = padded((place.ids for place in places), torch.long).to(device)
    return Batch(
        inputs=inputs,
        prompts=numbers,
        mask=mask,
        hidden=None if torch.equal(named, mask) else named,
        padding=None if torch.equal(present, mask) else ~present,
        skipped=prompts.skipped,
    )


def token_text(tokenizer: Any, token: int) -> str:
    r"""Text of a token, exactly; what shows it makes it visible.

    A vocabulary of bytes has a token for NUL, and some decode to half a surrogate pair. Tables keep
    both.

    >>> from types import SimpleNamespace
    >>> token_text(SimpleNamespace(decode=lambda ids: chr(ids[0])), 0)
    '\x00'
    """
    return str(tokenizer.decode([token]))
