"""Shared settings: few threads, quiet libraries, one hypothesis profile everywhere."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import settings

settings.register_profile("flowscope", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("flowscope")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _quiet_libraries() -> None:
    torch.set_num_threads(1)
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    diffusers_logging.set_verbosity_error()


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One saved folder per family, made when first asked for, in the form users have them."""
    from tests import networks

    made = {}

    def folder(name):
        if name not in made:
            model, _ = {**networks.READABLE, **networks.REFUSED}[name]()
            made[name] = tmp_path_factory.mktemp(name)
            model.save_pretrained(made[name])
        return made[name]

    return folder


@pytest.fixture
def tokenizer():
    """A word-level tokenizer over a few words, as transformers wraps it."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "it", "was", "the", "best", "of", "times", ","]
    inner = Tokenizer(kinds.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
