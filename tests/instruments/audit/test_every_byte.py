"""A vocabulary of bytes: no character that a tokenizer can emit stops a run."""

import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import flowscope as fs

HOSTILE = {0: "\0", 1: "\x1b[31m", 2: "\u2028", 3: "\u0085", 4: "\udc80", 5: "\u202e", 6: "e\u0301",
           7: "</script>", 8: "=1+1", 9: "\r\n", 10: '",\n"', 11: "\ufeff"}  # fmt: skip


class Bytes:
    """A tokenizer whose first tokens are the hostile ones, and the others one byte each."""

    vocab_size = 256

    def __call__(self, text, **options):
        return {"input_ids": list(text.encode("utf-8", "surrogatepass"))}

    def decode(self, ids, **options):
        return "".join(HOSTILE.get(int(i), chr(int(i))) for i in ids)

    def __len__(self):
        return 256


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=256, n_embd=16, n_layer=3, n_head=2, n_positions=64)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.ln_f.bias += model.lm_head.weight[:12].mean(0) * 50  # these lead
    texts = [
        "the \0 byte and \x1b[31m red",
        "a line\u2028b and \u0085 next",
        "it was the best of times",
    ]
    out = tmp_path_factory.mktemp("bytes") / "run"
    return fs.audit(model, texts, tokenizer=Bytes(), out=out, resamples=10)


def test_tables_keep_the_tokens_exactly(audited):
    tokens = {
        text
        for name in audited.run.tables()
        for column, cells in audited.run.read_table(name).items()
        if "token" in str(column) or "top" in str(column)
        for text in cells
        if isinstance(text, str)
    }
    assert tokens & set(HOSTILE.values())
    assert not {text for text in tokens if "␀" in text}


def test_page_pictures_and_document_are_made(audited):
    page = audited.report(png=True).read_text(encoding="utf-8")
    assert not set(page) & set("\0\x1b\u2028\u0085\u202e")
    assert json.dumps(audited.to_json())
