"""What the tests on real models share: where model and text are, and the text's long paragraphs."""

import gzip
import os
from pathlib import Path

import pytest

MODEL, TEXT = os.environ.get("FLOWSCOPE_SMOLLM2"), os.environ.get("FLOWSCOPE_WIKITEXT2_TEST")


@pytest.fixture(scope="session")
def smollm2():
    """The model's path; the test is skipped without it."""
    if not MODEL:
        pytest.skip("needs SmolLM2-135M (FLOWSCOPE_SMOLLM2)")
    return MODEL


@pytest.fixture(scope="session")
def paragraphs():
    """A function: the first paragraphs of WikiText-2 with more than so many words."""
    if not TEXT:
        pytest.skip("needs WikiText-2 test (FLOWSCOPE_WIKITEXT2_TEST)")
    raw = Path(TEXT).read_bytes()
    text = (gzip.decompress(raw) if Path(TEXT).suffix == ".gz" else raw).decode()

    def first(count, words):
        return [p.strip() for p in text.split("\n") if len(p.split()) > words][:count]

    return first
