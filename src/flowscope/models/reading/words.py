"""What a model is fed, in one sentence: for the manifest, the report and the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flowscope.models.reading.targets import shifted_ids
from flowscope.models.reading.tokens import Feeding, added_tokens, token_name
from flowscope.records import Unavailable

if TYPE_CHECKING:
    from flowscope.models.loading import Loaded

__all__ = ["fed_words", "mask_token"]


def mask_token(tokenizer: Any) -> int | None:
    """The token that hides a token from a masked model; None where the tokenizer has none."""
    token = getattr(tokenizer, "mask_token_id", None)
    return None if token is None else int(token)


def fed_words(loaded: Loaded, feeding: Feeding) -> str:
    """What the texts of a run become before the model sees them; empty without a tokenizer."""
    tokenizer = loaded.tokenizer
    if isinstance(tokenizer, Unavailable):
        return ""
    parts = [_around(tokenizer, feeding)]
    if loaded.kind == "masked_lm" and feeding.masked_share is not None:
        parts.append(_hidden(tokenizer, feeding))
    if loaded.kind == "seq2seq":
        start = int(shifted_ids(loaded.model, torch.zeros(1, 1, dtype=torch.long))[0, 0])
        first = token_name(tokenizer, start)
        parts.append(f"the decoder is fed the same ids shifted by one, {first} first")
    return "; ".join(parts)


def _around(tokenizer: Any, feeding: Feeding) -> str:
    if feeding.chat:
        return (
            "each text is a user's message in the chat template of the tokenizer; the rest of the "
            "template is seen and not counted"
        )
    before, after = added_tokens(tokenizer)
    names = " ".join([*before, "text", *after])
    if not before and not after:
        return "text alone, to which the tokenizer adds no special token"
    if not feeding.special_tokens:
        return f"text alone; the tokenizer would make it {names}"
    return f"each window is {names}, as the tokenizer makes it; special tokens are not counted"


def _hidden(tokenizer: Any, feeding: Feeding) -> str:
    if mask_token(tokenizer) is None:
        return "visible tokens are read, because the tokenizer has no mask token"
    if not feeding.masked_share:
        return "visible tokens are read (masked_share is 0)"
    name = str(tokenizer.mask_token)
    return f"{feeding.masked_share:.0%} of the tokens are hidden behind {name} and read there"
