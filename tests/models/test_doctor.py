"""The doctor tells the truth about every family, and refuses with the reason."""

from dataclasses import replace

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import doctor, load
from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

EXPECTED = {  # blocks, attention calls, writes, the tail leads to
    "gpt2": (3, 3, ("attention", "feed_forward"), "logits"),
    "llama": (3, 3, ("attention", "feed_forward"), "logits"),
    "qwen3": (3, 3, ("attention", "feed_forward"), "logits"),
    "gemma2": (4, 4, ("attention", "feed_forward"), "logits"),
    "gemma3": (6, 6, ("attention", "feed_forward"), "logits"),
    "bert": (3, 3, (), "logits"),
    "albert": (4, 4, (), "logits"),
    "t5": (2, 7, ("attention", "cross_attention", "feed_forward"), "logits"),
    "vit": (3, 3, ("attention", "feed_forward"), "logits"),
    "neox": (3, 3, ("mixed",), "logits"),
    "dit": (3, 3, ("attention", "feed_forward"), None),
    "sd3": (3, 3, ("attention", "feed_forward"), None),
    "pixart": (3, 6, ("attention", "cross_attention", "feed_forward"), None),
    "encoder": (3, 3, ("attention", "feed_forward"), "output"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_doctor_tells_the_truth(name):
    model, batch = models.READABLE[name]()
    inputs = batch if name == "encoder" else None
    found = doctor(model, inputs=inputs)
    tail = None if isinstance(found.tail, Unavailable) else found.tail.target
    assert (found.blocks, found.attention_calls, found.writes, tail) == EXPECTED[name]
    assert not found.refused
    assert (found.reading_error == 0.0) == (name != "encoder")


def _because(found, what):
    return next(o.because for o in found.cannot if o.what == what)


def test_reasons_are_given_for_what_cannot_be_measured():
    assert "a norm" in _because(doctor(models.bert()[0]), "writes")
    assert "conditioning" in _because(doctor(models.dit()[0]), "output at every layer")
    assert "pools" in _because(doctor(models.vit()[0]), "output at every position")
    switched = "reading without touching the backend"
    assert "replaced during a measurement" in _because(doctor(models.gemma2()[0]), switched)
    from transformers import BertConfig, BertModel

    bare = BertModel(BertConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2,
                                num_attention_heads=4, intermediate_size=48)).eval()  # fmt: skip
    assert "last_hidden_state" in _because(doctor(bare), "probabilities along depth")


@pytest.mark.parametrize("name", models.REFUSED)
def test_refusals_name_the_reason(name):
    found = doctor(models.REFUSED[name]()[0])
    assert found.refused
    assert found.can == ()
    assert "by hand" in _because(found, "anything")


def test_a_plain_module_needs_an_example():
    with pytest.raises(InvalidInputError, match="inputs="):
        doctor(nn.Linear(2, 2))
    found = doctor(nn.Linear(2, 2), inputs={"input": torch.ones(1, 2)})
    assert "not an attention model" in _because(found, "anything")


def test_more_families_are_examined_without_being_told_their_inputs():
    import transformers as tf
    from diffusers import FluxTransformer2DModel

    text = {
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }
    picture = {**text, "image_size": 16, "patch_size": 8, "num_hidden_layers": 2}
    whisper = tf.WhisperConfig(
        vocab_size=61,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=20,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    flux = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
        guidance_embeds=True,
    )
    family = {
        "clip": tf.CLIPModel(tf.CLIPConfig(text_config=text, vision_config=picture)),
        "whisper": tf.WhisperForConditionalGeneration(whisper),
        "mixtral": tf.MixtralForCausalLM(
            tf.MixtralConfig(**text, num_key_value_heads=2, num_local_experts=4)
        ),
        "flux": flux,
    }
    found = {name: doctor(model.eval()) for name, model in family.items()}
    counts = {name: (f.blocks, f.attention_calls) for name, f in found.items()}
    assert counts == {"clip": (3, 5), "whisper": (2, 7), "mixtral": (3, 3), "flux": (5, 5)}


def test_what_load_returned_can_be_examined(folders):
    assert doctor(load(folders("llama"), dtype=torch.bfloat16)).blocks == 3


def test_an_examination_and_a_loaded_model_are_cards_in_a_notebook():
    hostile = "</div><script>alert(1)</script>"
    model = load(nn.Sequential(nn.Linear(3, 3)))
    renamed = replace(model, source=hostile)
    html = renamed._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    for words in ("Sequential", "12", "cpu; float32", "none: "):
        assert words in html, words
    found = doctor(models.gpt2()[0])
    html = replace(found, model=hostile)._repr_html_()
    assert "<script" not in html
    assert "readable" in html
    assert "3 blocks, 3 attention calls" in html
    assert all(line in html for line in found.can)
    refused = doctor(models.REFUSED[next(iter(models.REFUSED))]()[0])
    assert "refused" in refused._repr_html_()
    assert "attention calls" not in refused._repr_html_()
