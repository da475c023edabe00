"""Prompts and the text of their tokens."""

from types import SimpleNamespace

import pytest

from flowscope.models.prompts import token_text


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "\x1b[31m"])
def test_text_of_a_token_is_kept_exactly(text):
    tokenizer = SimpleNamespace(decode=lambda ids: text)
    assert token_text(tokenizer, 7) == text
