"""What a tokenizer makes of a text: exactly its ids, in every window, with its special tokens.

A model is fed what ``tokenizer(text)`` returns. Where a text is longer than a window, the text is
cut and the special tokens stay around each piece, as ``tokenizer(text, truncation=True)`` has it: a
window of BERT begins with [CLS] and ends with [SEP], one of Llama begins with its BOS. A tokenizer
that adds nothing gives text alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError

__all__ = ["PLAIN", "Feeding", "Window", "added_tokens", "shortened", "token_name", "windows_of"]

Ids = NDArray[np.int64]
_PLACES = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id")
_SAMPLE = "It was the best of times."


@dataclass(frozen=True, kw_only=True)
class Feeding:
    """How texts become inputs.

    Attributes
    ----------
    special_tokens
        Whether the special tokens that the tokenizer adds are fed.
    chat
        Whether each text is put into the chat template of the tokenizer as a user's message.
    masked_share
        Share of the tokens of a masked model that are hidden behind its mask token and read there;
        0 reads every visible token. None where no output is read, so that nothing is hidden.
    seed
        Of the hidden tokens.
    """

    special_tokens: bool = True
    chat: bool = False
    masked_share: float | None = 0.15
    seed: int = 0


PLAIN = Feeding()
"""As the tokenizer has it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """Token numbers of one prompt, and which of them are text (the others are special)."""

    ids: Ids
    text: NDArray[np.bool_]


def windows_of(
    tokenizer: Any, text: str, feeding: Feeding, *, length: int, running: bool
) -> Iterator[Window]:
    """Windows of at most ``length`` tokens: one of a prompt, consecutive ones of a running text.

    Raises
    ------
    InvalidInputError
        The special tokens leave no room for two tokens of text, or there is no chat template.
    """
    if feeding.chat:
        yield from _chat_windows(tokenizer, text, length=length, running=running)
        return
    before, ids, after = _framed(tokenizer, text, special=feeding.special_tokens)
    room = _room(length, len(before) + len(after))
    places = _special_ids(tokenizer)
    ends = [np.zeros(len(part), bool) for part in (before, after)]
    for start in range(0, len(ids), room) if running else (0,):
        piece = ids[start : start + room]
        yield Window(
            ids=np.concatenate([before, piece, after]),
            text=np.concatenate([ends[0], ~np.isin(piece, places), ends[1]]),
        )


def shortened(window: Window, length: int) -> Window:
    """A window of at most ``length`` tokens: its text is cut, its special ends stay if they fit.

    Examples
    --------
    >>> text = np.array([False, True, True, True, False])
    >>> shortened(Window(ids=np.array([1, 7, 8, 9, 2]), text=text), 4).ids.tolist()
    [1, 7, 8, 2]
    """
    cut = len(window.ids) - length
    if cut <= 0:
        return window
    inner = np.flatnonzero(window.text)
    first, last = (int(inner[0]), int(inner[-1]) + 1) if len(inner) else (0, 0)
    kept = np.ones(len(window.ids), bool)
    if last - first - cut >= 1:
        kept[last - cut : last] = False
    else:
        kept[length:] = False
    return Window(ids=window.ids[kept], text=window.text[kept])


def added_tokens(tokenizer: Any) -> tuple[list[str], list[str]]:
    """Special tokens that a tokenizer puts before and after a text, as text."""
    before, _, after = _framed(tokenizer, _SAMPLE, special=True)
    first, last = ([token_name(tokenizer, int(t)) for t in part] for part in (before, after))
    return first, last


def token_name(tokenizer: Any, token: int) -> str:
    """Name of a token in the vocabulary on one line; its text where the tokenizer is a function."""
    names = getattr(tokenizer, "convert_ids_to_tokens", None)
    found = tokenizer.decode([int(token)]) if names is None else names([int(token)])[0]
    line = " ".join(str(found).replace("\0", "␀").split()) or repr(str(found))
    return line.encode("utf-8", "replace").decode("utf-8")


def _room(length: int, taken: int) -> int:
    if length - taken < 2:
        raise InvalidInputError(
            f"{taken} of the {length} tokens of a prompt are special tokens, which leaves fewer "
            f"than two for text. Use at least {taken + 2} tokens (tokens={taken + 2})."
        )
    return length - taken


def _ids(tokenizer: Any, text: str, *, special: bool) -> Ids:
    encoded = tokenizer(text, add_special_tokens=special, verbose=False)
    return np.asarray(encoded["input_ids"], np.int64)


def _framed(tokenizer: Any, text: str, *, special: bool) -> tuple[Ids, Ids, Ids]:
    """Special tokens before a text, its own tokens, special tokens after it."""
    alone = _ids(tokenizer, text, special=False)
    if not special:
        return alone[:0], alone, alone[:0]
    whole = _ids(tokenizer, text, special=True)
    extra = len(whole) - len(alone)
    for start in range(extra + 1):
        stop = start + len(alone)
        if len(alone) and np.array_equal(whole[start:stop], alone):
            return whole[:start], alone, whole[stop:]
    # The tokens of the text depend on what is around them: take off what is special at both ends.
    inner = np.flatnonzero(~np.isin(whole, _special_ids(tokenizer)))
    first, last = (int(inner[0]), int(inner[-1]) + 1) if len(inner) else (0, 0)
    return whole[:first], whole[first:last], whole[last:]


def _special_ids(tokenizer: Any) -> list[int]:
    """Tokens that mark a place; one that also stands for unknown words is text."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    marks = {getattr(tokenizer, name, None) for name in _PLACES} - {unknown}
    return sorted(int(mark) for mark in marks if mark is not None)


def _chat_windows(tokenizer: Any, text: str, *, length: int, running: bool) -> Iterator[Window]:
    """Windows whose text fits into the template; each is what the tokenizer makes of a chat."""
    empty = _chat_ids(tokenizer, "")
    room = _room(length, len(empty))
    ids = _ids(tokenizer, text, special=False)
    start = 0
    while start < len(ids) or start == 0:
        taken = min(room, len(ids) - start)
        whole = _chat_ids(tokenizer, _piece(tokenizer, text, ids, start, taken))
        while len(whole) > length and taken > 1:  # tokens may merge or split at the joints
            taken -= len(whole) - length if taken > len(whole) - length else 1
            whole = _chat_ids(tokenizer, _piece(tokenizer, text, ids, start, taken))
        yield Window(ids=whole, text=_message(whole, empty))
        start += max(taken, 1)
        if not running:
            return


def _piece(tokenizer: Any, text: str, ids: Ids, start: int, taken: int) -> str:
    whole = start == 0 and taken == len(ids)
    return text if whole else str(tokenizer.decode(ids[start : start + taken].tolist()))


def _chat_ids(tokenizer: Any, text: str) -> Ids:
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidInputError(
            f"{type(tokenizer).__name__} has no chat template, so that chat cannot be used. Leave "
            "it out, or give the tokenizer of a model that was trained on chats."
        )
    chat = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return _ids(tokenizer, str(rendered), special=False)


def _message(whole: Ids, empty: Ids) -> NDArray[np.bool_]:
    """Positions of the message: those that an empty message does not have."""
    most = min(len(whole), len(empty))
    first = next((k for k in range(most) if whole[k] != empty[k]), most)
    rest = most - first
    last = next((k for k in range(rest) if whole[-1 - k] != empty[-1 - k]), rest)
    text = np.zeros(len(whole), bool)
    text[first : len(whole) - last] = True
    return text
