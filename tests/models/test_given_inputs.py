"""Images, sound, data loaders and plain modules that a program gives; cards as text."""

import numpy as np
import pytest
import torch
import transformers
from tests.hostile.subjects import language_model, sentence_of, tokenizer
from torch import nn
from torch.utils.data import DataLoader

import flowscope
from flowscope.errors import InvalidInputError, LoadWarning
from flowscope.models.batches import listed_inputs, loaded_items
from flowscope.models.images.pictures import pictures_of
from flowscope.models.loading import load
from flowscope.probes.layers.depth import Rows

SMALL = {"resamples": 4, "batch": 2, "control_prompts": 2, "progress": False}
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
}  # fmt: skip
IMAGES = {**SIZES, "image_size": 8, "patch_size": 4}
VISION = {
    "ViT": lambda: transformers.ViTModel(transformers.ViTConfig(**IMAGES)),
    "ViT classifier": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(**IMAGES, num_labels=5)
    ),
    "DINOv2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(**IMAGES)),
    "CLIP vision": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**IMAGES)),
}
SOUND = {
    **SIZES, "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
WHISPER = {
    "vocab_size": 30, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "max_source_positions": 20, "max_target_positions": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
SPEECH = {
    "Wav2Vec2": lambda: transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**SOUND)),
    "HuBERT": lambda: transformers.HubertModel(transformers.HubertConfig(**SOUND)),
    "Whisper": lambda: transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**WHISPER)
    ),
    "Whisper encoder": lambda: transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**WHISPER)
    ).get_encoder(),
}


class Plain(nn.Module):
    """A classifier of images that is no model of a library."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True, dropout=0)
        self.blocks = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def pictures(count=6):
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", VISION)
def test_audit_of_images(name, tmp_path):
    model = VISION[name]().eval()
    result = flowscope.audit(model, pictures(), only="P0", out=tmp_path / "run", **SMALL)
    assert len(result.tables.layers) >= 2
    assert result.settings["measured"]["prompts"] == 6


def test_a_mask_of_one_entry_stands_for_all_positions():
    rows = Rows.of_mask(np.array([4, 7]), torch.ones(2, 1, dtype=torch.bool)).over(3)
    assert rows.prompt.tolist() == [4, 4, 4, 7, 7, 7]
    assert rows.position.tolist() == [0, 1, 2, 0, 1, 2]
    assert rows.chosen.shape == (2, 3)
    assert rows.over(3) is rows


@pytest.mark.parametrize("name", SPEECH)
def test_heads_of_speech(name, tmp_path):
    model = SPEECH[name]().eval()
    result = flowscope.heads(
        model, prompts=2, dials=False, only="heads", out=tmp_path / "run", **SMALL
    )
    assert set(result.table["layer"]) == {1, 2}
    assert load(model).kind == "audio"


@pytest.mark.parametrize("given", [list, lambda x: x.numpy(), tuple, lambda x: x.double()])
def test_images_in_other_clothes(given):
    loaded = load(VISION["ViT"]())
    torch.testing.assert_close(pictures_of(given(pictures()), loaded).float(), pictures())


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (pictures()[0], "four axes; got a tensor of shape"),
        (pictures()[:0], "no image"),
        (pictures() * float("nan"), "NaN"),
        ((255 * pictures()).to(torch.uint8), "need the preprocessor"),
        ([pictures()[0], pictures()[0, :, :4]], "must have one shape"),
        (torch.rand(2, 1, 8, 8), "could not be run on pixel_values"),
        (["a text"], "is a vision model and reads no texts"),
        (None, "only you have what it reads. Give images"),
    ],
)
def test_images_that_cannot_be_read_get_a_sentence(images, words):
    given = () if images is None else (images,)
    with pytest.raises(InvalidInputError, match=words):
        flowscope.audit(VISION["ViT"](), *given, progress=False)


def test_whole_numbers_are_preprocessed_where_the_model_brings_a_preprocessor():
    class Halved:
        def __call__(self, images, return_tensors):
            return {"pixel_values": torch.stack([image.float() / 255 for image in images])}

    loaded = load(VISION["ViT"](), processor=Halved())
    whole = (255 * pictures()).round().to(torch.uint8)
    torch.testing.assert_close(pictures_of(whole, loaded), whole.float() / 255)


def test_plain_modules_take_images_under_their_own_name(tmp_path):
    model = Plain().eval()
    audit = flowscope.audit(model, pictures(), only="P0", out=tmp_path / "audit", **SMALL)
    assert len(audit.tables.layers) >= 2
    heads = flowscope.heads(model, pictures(), dials=False, out=tmp_path / "heads", **SMALL)
    same = flowscope.heads(
        model,
        inputs=[{"x": pictures()[:2]}, {"x": pictures()[2:4]}, {"x": pictures()[4:]}],
        dials=False,
        out=tmp_path / "inputs",
        **SMALL,
    )
    assert heads.table.equals(same.table)


def test_batches_of_a_loader_are_inputs_of_heads(tmp_path):
    model = language_model()
    rows = [{"input_ids": torch.arange(8) + n} for n in range(4)]
    results = [
        flowscope.heads(model, inputs=inputs, dials=False, out=tmp_path / name, **SMALL)
        for name, inputs in {
            "loader": DataLoader(rows, batch_size=2),
            "generator": (batch for batch in DataLoader(rows, batch_size=2)),
            "list": list(DataLoader(rows, batch_size=2)),
        }.items()
    ]
    assert results[0].table.equals(results[1].table)
    assert results[0].table.equals(results[2].table)


def test_items_of_a_loader():
    texts = [{"text": sentence_of(5, n)} for n in range(3)]
    assert loaded_items(DataLoader(texts, batch_size=2)) == [row["text"] for row in texts]
    assert loaded_items(DataLoader(["a", "b", "c"], batch_size=2)) == ["a", "b", "c"]
    labelled = [(image, 3) for image in pictures()]
    torch.testing.assert_close(loaded_items(DataLoader(labelled, batch_size=4)), pictures())
    with pytest.raises(InvalidInputError, match=r"they hold input_ids\. Give the texts"):
        loaded_items(DataLoader([{"input_ids": torch.zeros(3)}]))


def test_one_mapping_is_one_batch():
    assert len(listed_inputs({"x": torch.zeros(2)}, nn.Linear(2, 2))) == 1


def test_cards_are_readable_text():
    loaded = load(language_model(), tokenizer=tokenizer())
    text = repr(loaded)
    assert text.splitlines()[0] == "model · causal_lm: GPT2LMHeadModel in memory"
    assert "GPT2Block" not in text
    assert len(text.splitlines()) < 12
    examination = flowscope.doctor(loaded)
    assert str(examination) == repr(examination)
    assert str(examination).startswith("doctor · causal_lm: GPT2LMHeadModel in memory (readable)")
    assert "follow hidden_states through 2 blocks" in str(examination)


def test_a_result_shows_its_verdicts(tmp_path):
    loaded = load(language_model(), tokenizer=tokenizer())
    texts = [sentence_of(10, n) for n in range(3)]
    result = flowscope.audit(loaded, texts, tokens=8, only="P0", out=tmp_path / "run", **SMALL)
    assert repr(result).startswith("audit of GPT2LMHeadModel in memory\nP0 Smoothness")


def test_unused_weights_are_named(tmp_path):
    from safetensors.torch import load_file, save_file

    language_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), "more": torch.zeros(2)}, file, metadata={"format": "pt"})
    with pytest.warns(LoadWarning, match="holds 1 weights that GPT2LMHeadModel does not"):
        load(tmp_path)


def test_a_vocabulary_without_the_words_of_a_sentence_is_one(tmp_path):
    language_model().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert callable(load(tmp_path).tokenizer)
