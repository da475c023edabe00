"""Heads see special tokens as states, and hide tokens of a masked model for the dials only."""

import torch
from numpy.testing import assert_allclose
from tests import networks
from tests.models.reading.synthetic_tokenizers import TEXTS, beginning, bracketed

import flowscope as fs

SMALL = {
    "resamples": 20, "controls": False, "tokens": 24, "metric": (), "exact": (), "alpha": (),
    "temperatures": (), "squares": (), "flux": (0.5,), "sentence": TEXTS[0], "shown_tokens": 8,
}  # fmt: skip


def test_special_tokens_are_states_and_tokens_are_hidden_for_the_dials_only():
    run = fs.heads(networks.bert()[0], TEXTS, tokenizer=bracketed(), **SMALL)
    assert run.settings["measured"]["tokens_measured"] == 22 + 23 + 24 + 24
    assert "[CLS] text [SEP]" in run.settings["measured"]["fed"]
    assert "MASK" not in run.settings["measured"]["fed"]
    hidden = sum(round(0.15 * words) for words in (20, 21, 22, 22))
    assert (run["dials"]["tokens"] == hidden).all()
    sentence = run.run.read_table("sentence")["token"].tolist()
    assert sentence[0] == "[CLS]"
    assert sentence[-1] == "[SEP]"
    assert len(sentence) == 8


def test_bos_is_a_key_and_no_target_of_the_dials():
    run = fs.heads(networks.llama()[0], TEXTS, tokenizer=beginning(), **SMALL)
    assert run.settings["measured"]["tokens_measured"] == 21 + 22 + 23 + 24
    assert (run["dials"]["tokens"] == 19 + 20 + 21 + 22).all()
    assert run.run.read_table("sentence")["token"].iloc[0] == "<s>"


def test_a_chain_walks_over_all_tokens_that_are_there():
    model, tokenizer = networks.bert()[0], bracketed()
    run = fs.heads(model, TEXTS[:1], tokenizer=tokenizer, **{**SMALL, "dials": False})
    keys = []
    with fs.Tap(model) as tap, torch.no_grad():
        tap.on_attention(
            lambda call: keys.append(
                torch.special.entr(call.probabilities()).sum(-1).exp().mean(-1)
            )
        )
        model(torch.tensor([tokenizer(TEXTS[0])["input_ids"]]))
    expected = torch.cat(keys).flatten().numpy()
    assert_allclose(run["geometry"]["effective_keys"], expected, rtol=1e-4)
