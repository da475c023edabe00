"""Model folders written on the spot, in the form users have them."""

import pytest
from safetensors.torch import save_file
from tests import models
from tests.runs.prompts import TEXTS

FOLDERS = ["gpt2", "llama", "gemma2", "bert", "t5", "vit", "dit", "sd3", "pixart", "bloom", "gptj"]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One saved folder per family, made when first asked for."""
    made = {}

    def folder(name):
        if name not in made:
            model, _ = {**models.READABLE, **models.REFUSED}[name]()
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


__all__ = ["FOLDERS", "folders", "save_file", "tokenizer"]


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """A small audit of the bundled model, one for each file: some tests write to its folder."""
    import flowscope as fs

    out = tmp_path_factory.mktemp("audit") / "run"
    return fs.audit(texts=TEXTS, out=out, resamples=20, batch=2, control_prompts=2)
