"""A small run of the field on a network with random weights, and what it was made on."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests import networks

import flowscope as fs

WORDS = ["it", "was", "the", "best", "of", "times", ","]
SETTINGS = {
    "prompts": 8, "tokens": 12, "batch": 2, "draws": 6, "twins": 1, "jacobian_tokens": 5,
    "products": 60, "write_scales": (0.5,), "residual_scales": (0.0, 0.97), "resamples": 50,
    "control_prompts": 2, "progress": False,
}  # fmt: skip


def texts(count=8, length=12):
    """Texts of random words."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(count)]


def reading(model, tokenizer, out, **settings):
    """A run of the field on these texts."""
    return fs.field(model, texts(), tokenizer=tokenizer, out=str(out), **{**SETTINGS, **settings})


def word_tokenizer():
    """A tokenizer over a few words."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    ids = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    inner = Tokenizer(kinds.WordLevel(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Model, tokenizer, result and one batch of a finished run of six blocks."""
    model, _ = networks.llama(layers=6)
    tokenizer = word_tokenizer()
    result = reading(model, tokenizer, tmp_path_factory.mktemp("field"))
    ids = tokenizer(texts(), return_tensors="pt")["input_ids"]
    return SimpleNamespace(model=model, tokenizer=tokenizer, result=result, ids=ids)
