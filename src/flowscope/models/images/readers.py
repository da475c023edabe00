"""What tells the class of an image: a function, an image classifier, the bundled encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.images.encoders import ImageInput
from flowscope.models.loading import load, weight_hash
from flowscope.nets import bundled_encoder, bundled_path
from flowscope.records import Unavailable

__all__ = ["Reader", "reader_mark", "reader_of"]

Reader = Callable[[Float[Tensor, "n channels height width"]], Int[Tensor, "n"]]

_FASHION = "T-shirt/top"  # first class of the bundled model, which the bundled encoder reads


def reader_of(
    given: str | Path | Reader | None,
    *,
    classes: Sequence[str],
    shape: tuple[int, int, int],
    device: torch.device,
) -> tuple[Reader | Unavailable, str]:
    """What tells the class of images in [−1, 1], and what it is in words.

    Parameters
    ----------
    given
        A function from images to class numbers; the folder of an image classifier of transformers
        whose classes are numbered as the model's; None for the bundled encoder, which knows the ten
        classes of the bundled diffusion transformer.
    classes
        Names of the model's classes.
    shape
        Channels, height and width of the images.
    device
        Where they are.

    Raises
    ------
    InvalidInputError
        When a folder holds no classifier, or one of another number of classes.
    """
    if given is None:
        if shape == (1, 28, 28) and len(classes) == 10 and classes[0] == _FASHION:
            network = bundled_encoder(bundled_path("image") / "encoder").to(device)
            return (lambda images: network(images).argmax(1)), "the bundled encoder (Fashion-MNIST)"
        return Unavailable(
            "there is no classifier for these images; give a reader (--reader FOLDER), an "
            "image classifier of transformers"
        ), "none"
    if callable(given):
        return given, getattr(given, "__name__", type(given).__name__)
    loaded = load(given, device=str(device), dtype=torch.float32)
    known = int(getattr(loaded.model.config, "num_labels", 0) or 0)
    if loaded.kind != "vision" or (classes and known != len(classes)):
        raise InvalidInputError(
            f"A reader must be an image classifier of the model's {len(classes)} classes; {given} "
            f"is a model of the kind {loaded.kind!r} with {known} labels."
        )
    return _Classifier(loaded.model, loaded.processor), str(given)


class _Classifier:
    """An image classifier of transformers, after its own resizing and scaling."""

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._input = model, ImageInput(model, processor)
        self.mark = f"{weight_hash(model)} {vars(self._input)}"

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        found = [self._model(self._input(part)) for part in torch.split(images, 32)]
        if not hasattr(found[0], "logits"):
            raise InvalidInputError(
                f"A reader must give class scores; {type(self._model).__name__} gives features "
                "only. Give the folder of a classifier, such as ResNetForImageClassification."
            )
        return torch.cat([part.logits for part in found]).argmax(1)


def reader_mark(
    reader: Reader | Unavailable, shape: tuple[int, int, int], device: torch.device
) -> str:
    """What tells readers apart: weights, or the code of a function; and its answers on noise.

    Raises
    ------
    InvalidInputError
        When the reader gives something else than one whole number an image.
    """
    if isinstance(reader, Unavailable):
        return reader.reason
    images = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    found = reader(images.to(device))
    if not isinstance(found, Tensor) or found.shape != (8,) or found.is_floating_point():
        told = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InvalidInputError(
            f"A reader must return one integer per image, shape [8] for 8 images; got {told}."
        )
    code = getattr(reader, "__code__", None)
    own = getattr(reader, "mark", "" if code is None else f"{code.co_code.hex()} {code.co_consts}")
    return " ".join([*(str(int(number)) for number in found), own])
