"""What a position is to name: the next token, the hidden one, the one that the shift moved on."""

import numpy as np
import pytest
import torch
from tests import networks
from tests.models.reading.synthetic_tokenizers import TEXTS, beginning, bracketed, ended, worded

import flowscope as fs
from flowscope.models.inputs import sample_inputs
from flowscope.models.prompts import batches_of, prompts_of
from flowscope.models.reading.targets import NONE, hidden_positions
from flowscope.models.reading.tokens import Feeding, Window


def _loaded(name, tokenizer):
    return fs.load(getattr(networks, name)()[0], tokenizer=tokenizer)


def test_a_causal_model_names_the_next_token_of_the_text():
    prompts = prompts_of(_loaded("gpt2", beginning()), TEXTS[:1], count=1, length=64)
    place, ids = prompts.at(0), prompts.items[0]
    assert place.targets[0] == NONE  # BOS is no row
    assert place.targets[1:-1].tolist() == ids[2:].tolist()
    assert place.targets[-1] == NONE


def test_an_end_token_is_no_target():
    prompts = prompts_of(_loaded("gpt2", ended()), TEXTS[:1], count=1, length=64)
    assert prompts.at(0).targets[-2:].tolist() == [NONE, NONE]


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_a_share_of_the_text_is_hidden_by_seed(share):
    loaded, tokenizer = _loaded("bert", bracketed()), bracketed()
    feeding = Feeding(masked_share=share, seed=3)
    prompts = prompts_of(loaded, TEXTS, count=4, length=64, feeding=feeding)
    again = prompts_of(loaded, TEXTS, count=4, length=64, feeding=feeding)
    other = prompts_of(
        loaded, TEXTS, count=4, length=64, feeding=Feeding(masked_share=share, seed=4)
    )
    assert prompts.data_hash == again.data_hash != other.data_hash
    assert prompts.text_hash == other.text_hash
    for number, text in enumerate(TEXTS):
        whole, place = np.array(tokenizer(text)["input_ids"]), prompts.at(number)
        fed = prompts.items[number]
        assert place.named.sum() == round(share * (len(whole) - 2))
        assert (fed[place.named] == tokenizer.mask_token_id).all()
        assert (fed[~place.named] == whole[~place.named]).all()
        assert (place.targets[place.text] == whole[place.text]).all()
        assert place.targets[[0, -1]].tolist() == [NONE, NONE]
        assert not place.named[[0, -1]].any()
        assert (place.shown == whole).all()


def test_at_least_one_token_is_hidden_and_none_without_a_mask_token():
    window = Window(ids=np.arange(4), text=np.array([False, True, True, False]))
    assert hidden_positions(window, 9, share=0.01, seed=(0, 0)).named.sum() == 1
    for place in (
        hidden_positions(window, None, share=0.15, seed=(0, 0)),
        hidden_positions(window, 9, share=0.0, seed=(0, 0)),
    ):
        assert place.ids.tolist() == window.ids.tolist()
        assert place.named.tolist() == window.text.tolist()
        assert place.targets.tolist() == [NONE, 1, 2, NONE]


def test_a_decoder_is_fed_the_shifted_ids_as_the_model_makes_them():
    loaded = _loaded("t5", ended())
    prompts = prompts_of(loaded, TEXTS[:1], count=1, length=64)
    ids = torch.from_numpy(prompts.items[0])[None]
    oracle = loaded.model.prepare_decoder_input_ids_from_labels(labels=ids)[0]
    batch = next(batches_of(loaded, prompts, 1))
    assert torch.equal(batch.inputs["input_ids"][0], ids[0])
    assert torch.equal(batch.inputs["decoder_input_ids"][0], oracle)
    assert ids[0].tolist() == ended()(TEXTS[0])["input_ids"]
    place = prompts.at(0)
    assert not place.text[0]  # the start token
    assert place.text[1:].all()  # words of the text; the end token is not read
    assert place.targets[1:-1].tolist() == ids[0, 1:-1].tolist()
    assert place.targets[[0, -1]].tolist() == [NONE, NONE]


def test_the_loss_of_a_decoder_is_that_of_the_model_itself():
    loaded = _loaded("t5", ended())
    prompts = prompts_of(loaded, TEXTS[:1], count=1, length=64)
    batch, place = next(batches_of(loaded, prompts, 1)), prompts.at(0)
    with torch.no_grad():
        logits = loaded.model(**batch.inputs).logits[0]
        labels = torch.from_numpy(prompts.items[0])[None]
        own = loaded.model(input_ids=batch.inputs["input_ids"], labels=labels).logits[0]
    assert torch.equal(logits, own)
    rows = torch.from_numpy(place.targets >= 0)
    assert labels[0][rows].tolist() == place.targets[place.targets >= 0].tolist()


def test_bart_starts_with_its_own_token_and_begins_with_its_own_bos():
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=61, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    tokenizer = worded("<s> $A </s>", bos_token="<s>", eos_token="</s>")
    loaded = fs.load(BartForConditionalGeneration(config).eval(), tokenizer=tokenizer)
    prompts = prompts_of(loaded, TEXTS[:1], count=1, length=64)
    place = prompts.at(0)
    assert place.ids[:2].tolist() == [2, 1]
    assert place.text[:3].tolist() == [False, False, True]
    assert place.targets[:3].tolist() == [NONE, NONE, prompts.items[0][2]]


def test_sample_inputs_have_special_tokens_and_a_shifted_decoder():
    batch = sample_inputs(_loaded("bert", bracketed()))
    assert (batch["input_ids"][:, 0] == 3).all()
    assert (batch["input_ids"][:, -1] == 4).all()
    batch = sample_inputs(_loaded("t5", ended()))
    assert (batch["decoder_input_ids"][:, 0] == 0).all()
