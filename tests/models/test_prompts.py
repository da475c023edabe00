"""Prompts and the text of their tokens."""

from types import SimpleNamespace

import pytest

from flowscope.models.prompts import token_text


@pytest.mark.parametrize(("text", "shown"), [("\0", "␀"), ("a\0b", "a␀b"), ("\ud800", "?")])
def test_tokens_that_no_file_can_hold_are_shown_by_a_sign(text, shown):
    tokenizer = SimpleNamespace(decode=lambda ids: text)
    assert token_text(tokenizer, 7) == shown
