"""The bundled encoder reads real-looking images, and refuses others with a sentence."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from flowscope.errors import InvalidInputError, LoadError
from flowscope.nets import ImageEncoder, bundled_encoder, bundled_path


def samples():
    """The hundred samples of the card's picture and their classes."""
    pixels = np.asarray(Image.open(bundled_path("image") / "grid.png"))[::2, ::2]
    tiles = pixels.reshape(10, 28, 10, 28).transpose(0, 2, 1, 3).reshape(100, 1, 28, 28)
    return torch.from_numpy(tiles / 127.5 - 1).float(), torch.arange(100) // 10


@torch.no_grad()
def test_it_reads_the_samples_as_the_card_says():
    images, labels = samples()
    encoder = bundled_encoder(bundled_path("image") / "encoder")
    read = float((encoder(images).argmax(1) == labels).float().mean())
    record = json.loads((bundled_path("image") / "training.json").read_text())
    assert record["evaluation"]["ddpm_100"]["class_accuracy"] >= 0.9
    assert read >= 0.85
    fresh = ImageEncoder(channels=1, size=28, classes=10, width=32).eval()
    assert float((fresh(images).argmax(1) == labels).float().mean()) < 0.4


@torch.no_grad()
def test_features_of_one_class_are_more_alike_than_those_of_two():
    images, _ = samples()
    features = bundled_encoder(bundled_path("image") / "encoder").features(images)
    unit = torch.nn.functional.normalize(features, dim=1)
    alike = (unit @ unit.T).reshape(10, 10, 10, 10).mean((1, 3))
    within, across = alike.diagonal().mean(), alike[~torch.eye(10, dtype=bool)].mean()
    assert within > across + 0.2


def test_images_of_another_size_are_refused():
    encoder = bundled_encoder(bundled_path("image") / "encoder")
    with pytest.raises(InvalidInputError, match=r"reads images \[n, 1, 28, 28\]; got \[2, 3, 32"):
        encoder.features(torch.zeros(2, 3, 32, 32))


def test_a_folder_without_an_encoder_and_a_damaged_one_are_refused(tmp_path):
    with pytest.raises(LoadError, match="holds no image encoder"):
        bundled_encoder(tmp_path)
    shutil.copytree(bundled_path("image") / "encoder", tmp_path / "encoder")
    weights = tmp_path / "encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(LoadError, match="damaged"):
        bundled_encoder(tmp_path / "encoder")
