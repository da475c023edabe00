"""A small convolutional encoder of images: features whose cosine says how alike two pictures are.

It was trained to tell the ten classes of Fashion-MNIST apart (``studies/image_training``); the
features are what its last layer reads.
"""

import hashlib
import json
from pathlib import Path

import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, LoadError

__all__ = ["ImageEncoder", "bundled_encoder"]


class ImageEncoder(nn.Module):
    """Images in [−1, 1] to features and class scores.

    Parameters
    ----------
    channels, size
        Colour channels and side of the images.
    classes
        How many classes the scores tell apart.
    width
        Channels of the first stage; each of the three stages doubles them and halves the image.

    Examples
    --------
    >>> import torch
    >>> encoder = ImageEncoder(channels=1, size=28, classes=10, width=4).eval()
    >>> encoder.features(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 16])
    """

    def __init__(self, *, channels: int, size: int, classes: int, width: int) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        stages, entering = [], channels
        for leaving in (width, 2 * width, 4 * width):
            stages += [_stage(entering, leaving), _stage(leaving, leaving), nn.MaxPool2d(2)]
            entering = leaving
        self.stages = nn.Sequential(*stages)
        self.scores = nn.Linear(entering, classes)

    def features(
        self, images: Float[Tensor, "n channels side side"]
    ) -> Float[Tensor, "n features"]:
        """What the last layer reads, one row an image.

        Raises
        ------
        InvalidInputError
            When the images have another size than it was made for.
        """
        if images.ndim != 4 or images.shape[1:] != (self.channels, self.size, self.size):
            raise InvalidInputError(
                f"The encoder reads images [n, {self.channels}, {self.size}, {self.size}]; got "
                f"{list(images.shape)}. Give an encoder made for these images."
            )
        found: Tensor = self.stages(images.to(self.scores.weight.dtype)).mean((2, 3))
        return found

    def forward(self, images: Float[Tensor, "n channels side side"]) -> Float[Tensor, "n classes"]:
        """Class scores before the softmax."""
        return F.linear(self.features(images), self.scores.weight, self.scores.bias)


def _stage(entering: int, leaving: int) -> nn.Module:
    convolution = nn.Conv2d(entering, leaving, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(leaving), nn.ReLU())


def bundled_encoder(folder: Path) -> ImageEncoder:
    """The encoder of a folder with ``config.json`` and ``model.safetensors``.

    Raises
    ------
    LoadError
        When they are not there or do not belong together.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {name: int(config[name]) for name in ("channels", "size", "classes", "width")}
        encoder = ImageEncoder(**sizes)
        weights = folder / "model.safetensors"
        found = hashlib.sha256(weights.read_bytes()).hexdigest()
        if found != config.get("sha256", found):
            raise LoadError(
                f"{weights} has sha256 {found[:12]}…, recorded is {config['sha256'][:12]}…: the "
                "file is damaged. Install flowscope again."
            )
        encoder.load_state_dict(load_file(weights))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise LoadError(f"{folder} holds no image encoder of flowscope: {error}") from error
    return encoder.eval()
