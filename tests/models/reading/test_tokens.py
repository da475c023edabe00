"""Windows are what the tokenizer itself returns, and special tokens are no rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests import networks
from tests.models.reading.synthetic_tokenizers import (
    TEXTS,
    beginning,
    bracketed,
    ended,
    plain,
    worded,
)

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.models.prompts import batches_of, prompts_of
from flowscope.models.reading.tokens import (
    PLAIN,
    Feeding,
    Window,
    added_tokens,
    shortened,
    token_name,
    windows_of,
)
from flowscope.models.texts import Texts

MAKERS = (plain, beginning, bracketed, ended)


@pytest.mark.parametrize("make", MAKERS)
def test_a_prompt_is_what_the_tokenizer_returns(make):
    tokenizer = make()
    (window,) = windows_of(tokenizer, TEXTS[0], PLAIN, length=64, running=False)
    assert window.ids.tolist() == tokenizer(TEXTS[0])["input_ids"]
    assert window.text.sum() == 20


@pytest.mark.parametrize("make", MAKERS)
def test_a_long_prompt_is_cut_inside_its_special_tokens(make):
    tokenizer = make()
    (window,) = windows_of(tokenizer, TEXTS[0], PLAIN, length=9, running=False)
    oracle = tokenizer(TEXTS[0], truncation=True, max_length=9)["input_ids"]
    assert window.ids.tolist() == oracle


@pytest.mark.parametrize("make", MAKERS)
def test_every_window_of_a_running_text_has_its_special_tokens(make):
    tokenizer, text = make(), " ".join(TEXTS)
    windows = list(windows_of(tokenizer, text, PLAIN, length=9, running=True))
    oracle = tokenizer(text, truncation=True, max_length=9, return_overflowing_tokens=True)
    assert [window.ids.tolist() for window in windows] == oracle["input_ids"]
    words = np.concatenate([window.ids[window.text] for window in windows])
    assert words.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_special_tokens_can_be_left_out_and_are_never_invented():
    bare = Feeding(special_tokens=False)
    (window,) = windows_of(bracketed(), TEXTS[0], bare, length=64, running=False)
    assert window.ids.tolist() == bracketed()(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert added_tokens(plain()) == ([], [])
    assert added_tokens(bracketed()) == (["[CLS]"], ["[SEP]"])


def test_special_tokens_that_are_written_in_a_text_are_no_rows_and_unknown_words_are():
    (window,) = windows_of(plain(), "w1 </s> w2 strange w3", PLAIN, length=64, running=False)
    assert window.text.tolist() == [True, False, True, True, True]


def test_a_window_is_shortened_inside_its_special_ends_if_they_fit():
    text = np.array([False, True, True, True, False])
    window = Window(ids=np.arange(5), text=text)
    assert shortened(window, 5) is window
    assert shortened(window, 3).ids.tolist() == [0, 1, 4]
    assert shortened(window, 3).text.tolist() == [False, True, False]
    assert shortened(window, 2).ids.tolist() == [0, 1]
    assert shortened(Window(ids=np.arange(5), text=~np.ones(5, bool)), 2).ids.tolist() == [0, 1]


def test_a_window_too_short_for_text_is_refused():
    with pytest.raises(InvalidInputError, match="tokens=4"):
        list(windows_of(bracketed(), TEXTS[0], PLAIN, length=3, running=False))


@pytest.mark.parametrize("running", [False, True])
def test_a_chat_is_what_the_template_gives(running):
    tokenizer, chat = plain(chat=True), Feeding(chat=True)
    (window,) = windows_of(tokenizer, "w1 w2 w3", chat, length=64, running=running)
    message = [{"role": "user", "content": "w1 w2 w3"}]
    rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    assert window.ids.tolist() == tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert window.ids[window.text].tolist() == tokenizer("w1 w2 w3")["input_ids"]


def test_a_long_chat_is_cut_inside_the_template():
    tokenizer, chat = plain(chat=True), Feeding(chat=True)
    windows = list(windows_of(tokenizer, TEXTS[0], chat, length=12, running=True))
    assert all(len(window.ids) <= 12 for window in windows)
    words = np.concatenate([window.ids[window.text] for window in windows])
    assert words.tolist() == tokenizer(TEXTS[0])["input_ids"]
    ends = {tuple(window.ids[~window.text].tolist()) for window in windows}
    assert len(ends) == 1


def test_a_tokenizer_without_a_chat_template_is_refused():
    with pytest.raises(InvalidInputError, match="no chat template"):
        list(windows_of(plain(), "w1 w2", Feeding(chat=True), length=64, running=False))


def test_a_prompt_of_special_tokens_alone_is_left_out_and_counted():
    loaded = fs.load(networks.gpt2()[0], tokenizer=beginning())
    prompts = prompts_of(loaded, ["</s> </s> </s>", "w1", TEXTS[0]], count=8, length=32)
    assert len(prompts) == 1
    assert prompts.left_out == {"with fewer than two tokens": 2}
    with pytest.raises(InvalidInputError, match="fewer than two tokens"):
        prompts_of(loaded, ["</s> </s>"], count=8, length=32)


def test_rows_of_a_batch_are_text_and_keys_are_everything():
    loaded = fs.load(networks.bert()[0], tokenizer=bracketed())
    feeding = Feeding(masked_share=0.0)
    prompts = prompts_of(loaded, TEXTS, count=4, length=23, feeding=feeding)
    batch = next(batches_of(loaded, prompts, 4))
    lengths = torch.tensor([22, 23, 23, 23])
    assert batch.present.sum(1).tolist() == lengths.tolist()
    assert batch.mask.sum(1).tolist() == (lengths - 2).tolist()
    assert not batch.mask[:, 0].any()
    assert torch.equal(batch.named, batch.mask)
    assert torch.equal(batch.inputs["attention_mask"].bool(), batch.present)


def test_a_tokenizer_that_adds_nothing_makes_every_token_a_row():
    loaded = fs.load(networks.gpt2()[0], tokenizer=plain())
    batch = next(batches_of(loaded, prompts_of(loaded, TEXTS, count=4, length=20), 4))
    assert batch.mask.all()
    assert torch.equal(batch.present, batch.mask)


@pytest.mark.parametrize(
    ("make", "network", "words"),
    [
        (plain, "gpt2", "adds no special token"),
        (beginning, "gpt2", "each window is <s> text, as"),
        (bracketed, "bert", "[CLS] text [SEP]"),
        (bracketed, "bert", "15% of the tokens are hidden behind [MASK] and read there"),
        (ended, "t5", "shifted by one, <pad> first"),
        (lambda: worded(), "bert", "no mask token"),
    ],
)
def test_what_is_fed_is_said(make, network, words):
    loaded = fs.load(getattr(networks, network)()[0], tokenizer=make())
    prompts = prompts_of(loaded, TEXTS, count=4, length=20)
    assert words in prompts.facts["fed"]
    assert words in fs.doctor(loaded).fed
    assert words in fs.doctor(loaded).to_json()["fed"]


def test_windows_of_a_file_are_counted_as_before():
    loaded = fs.load(networks.gpt2()[0], tokenizer=beginning())
    running = Texts(texts=[" ".join(TEXTS)], running=True)
    prompts = prompts_of(loaded, running, count=3, length=9)
    assert [len(item) for item in prompts.items] == [9, 9, 9]
    assert all(item[0] == 1 for item in prompts.items)


@pytest.mark.parametrize(("name", "shown"), [("\n<s>\n", "<s>"), ("\0", "␀"), (" ", "' '")])
def test_names_of_tokens_fit_on_a_line_of_a_manifest(name, shown):
    assert token_name(SimpleNamespace(decode=lambda ids: name), 0) == shown
