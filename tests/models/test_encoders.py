"""Encoders of images: the bundled one, a function, a folder; what does not fit is said."""

import json

import pytest
import torch
import torch.nn.functional as F
from tests import networks as models
from tests.models.synthetic_pipelines import pooled

from flowscope.errors import FlowscopeError, InvalidInputError
from flowscope.models.images.encoders import cosines, encoder_mark, encoder_of
from flowscope.nets import ImageEncoder, bundled_encoder, bundled_path
from flowscope.records import Unavailable

CPU = torch.device("cpu")


def of(given, shape=(1, 28, 28)):
    return encoder_of(given, shape=shape, device=CPU)


def test_the_bundled_encoder_reads_its_own_size():
    encoder, name = of(None)
    images = torch.rand(3, 1, 28, 28) * 2 - 1
    own = bundled_encoder(bundled_path("image") / "encoder")
    torch.testing.assert_close(encoder(images), own.features(images))
    assert "Fashion-MNIST" in name


@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 32, 32), (1, 28, 32)])
def test_the_bundled_encoder_abstains_from_other_images(shape):
    encoder, name = of(None, shape)
    assert isinstance(encoder, Unavailable)
    assert name == "none"
    assert f"not {' × '.join(map(str, shape))}; give an encoder" in encoder.reason


def test_an_encoder_of_flowscope_is_found_in_a_folder():
    folder = bundled_path("image") / "encoder"
    encoder, name = of(folder, (3, 8, 8))
    assert name == str(folder)
    with pytest.raises(InvalidInputError, match=r"reads images \[n, 1, 28, 28\].*\[2, 3, 8, 8\]"):
        encoder(torch.zeros(2, 3, 8, 8))


def test_a_function_is_taken_as_it_is():
    assert of(pooled) == (pooled, "pooled")


@pytest.fixture
def resnet(tmp_path):
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"
    )
    model = ResNetModel(config).eval()
    model.save_pretrained(tmp_path)
    return tmp_path, model


def processor(folder, **changed):
    told = {
        "image_processor_type": "ConvNextImageProcessor", "do_resize": True,
        "size": {"shortest_edge": 16}, "do_normalize": True, "do_rescale": True,
        "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4],
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(told | changed))


@torch.no_grad()
def test_an_image_model_is_fed_as_its_processor_says(resnet):
    """Grey images in [−1, 1] to three channels in [0, 1], its side, its mean and deviation."""
    folder, model = resnet
    processor(folder)
    encoder, name = of(folder)
    assert name == str(folder)
    images = torch.rand(40, 1, 28, 28) * 2 - 1  # more than it takes at a time
    pixels = F.interpolate((images + 1) / 2, (16, 16), mode="bilinear", antialias=True)
    mean, std = (torch.tensor(x)[:, None, None] for x in ([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]))
    expected = model((pixels.expand(-1, 3, -1, -1) - mean) / std).pooler_output.flatten(1)
    assert expected.shape == (40, 12)
    torch.testing.assert_close(encoder(images), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_processor_that_does_not_normalise_is_obeyed(resnet):
    folder, model = resnet
    processor(folder, do_normalize=False)
    images = torch.rand(2, 3, 16, 16) * 2 - 1
    expected = model((images + 1) / 2).pooler_output.flatten(1)
    torch.testing.assert_close(of(folder)[0](images), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_classifier_without_a_pooler_gives_the_mean_of_its_tokens(tmp_path):
    model, _ = models.READABLE["vit"]()
    model.save_pretrained(tmp_path)
    encoder, _ = of(tmp_path)
    side = model.config.image_size
    images = torch.rand(2, 3, side, side) * 2 - 1
    expected = model.base_model(images).last_hidden_state.mean(1)
    torch.testing.assert_close(encoder(images), expected, atol=1e-5, rtol=1e-4)


def test_a_text_model_is_no_encoder(tmp_path):
    model, _ = models.READABLE["gpt2"]()
    model.save_pretrained(tmp_path)
    with pytest.raises(InvalidInputError, match=r"a model of images.*'causal_lm'"):
        of(tmp_path)


def test_a_folder_that_is_not_there_is_a_sentence():
    with pytest.raises(FlowscopeError, match="There is no folder"):
        of("/no/such/encoder")


def test_cosines_are_those_of_the_features():
    first, second = torch.randn(2, 4, 1, 6, 6)
    expected = F.cosine_similarity(first.flatten(1).double(), second.flatten(1).double())
    torch.testing.assert_close(cosines(lambda x: 7 * x.flatten(1), first, second), expected)
    same = cosines(lambda x: x.flatten(1), first, first)
    torch.testing.assert_close(same, torch.ones(4, dtype=torch.float64))
    opposite = cosines(lambda x: x.flatten(1), first, -first)
    torch.testing.assert_close(opposite, -torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (lambda x: x, r"features \[n, size\] of 3 images; got \[3, 1, 6, 6\]"),
        (lambda x: x.flatten(1)[:2], r"of 3 images; got \[2, 36\]"),
        (lambda x: x.mean((1, 2, 3)), r"got \[3\]"),
        (lambda x: [1.0], "got list"),
        (lambda x: x.flatten(1) * torch.nan, "The encoder gave NaN"),
    ],
)
def test_features_that_cannot_be_compared_are_refused(encoder, words):
    images = torch.ones(3, 1, 6, 6)
    with pytest.raises(InvalidInputError, match=words):
        cosines(encoder, images, images)


def test_encoders_are_told_apart_by_what_they_say_not_by_their_name():
    shape, device = (1, 4, 4), torch.device("cpu")
    first, second = (lambda x: x.flatten(1), lambda x: x.flatten(1) + 1)
    assert first.__name__ == second.__name__
    marks = [encoder_mark(encoder, shape, device) for encoder in (first, first, second)]
    assert marks[0] == marks[1] != marks[2]
    assert encoder_mark(Unavailable("none"), shape, device) == "none"
    with pytest.raises(InvalidInputError, match="reads images"):
        encoder_mark(ImageEncoder(channels=1, size=28, classes=2, width=2).features, shape, device)
