"""Images in whatever a program holds: a tensor, an array, a list of either, or pictures of PIL."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.models.loading import Loaded
from flowscope.models.prompts import Batch, Prompts, batches_of
from flowscope.records import Unavailable

__all__ = ["image_argument", "image_batches", "pictures_of", "refuse_images"]

_WANTED = "Give a tensor [n, channels, height, width] of preprocessed values."


def pictures_of(given: Any, loaded: Loaded) -> Tensor | None:
    """Images that a program gave as one tensor; None where it gave something else.

    Pictures of PIL and pixels in 0 … 255 are preprocessed as the model's folder says.

    Raises
    ------
    InvalidInputError
        The images do not have one shape, hold NaN, or need a preprocessor that is not there.
    """
    if isinstance(given, np.ndarray) and given.dtype.kind in "fiu":
        given = torch.as_tensor(given)
    if isinstance(given, Tensor):
        return _checked(given, loaded)
    if not isinstance(given, (list, tuple)) or not given or isinstance(given[0], (str, Mapping)):
        return None
    if hasattr(given[0], "getbands"):  # a picture of PIL
        return _preprocessed(list(given), loaded)
    if not isinstance(given[0], (Tensor, np.ndarray)) or np.ndim(given[0]) < 3:
        return None
    shapes = {tuple(np.shape(image)) for image in given}
    if len(shapes) > 1:
        raise InvalidInputError(f"Images must have one shape; got {sorted(shapes)[:4]}. {_WANTED}")
    return _checked(torch.stack([torch.as_tensor(image) for image in given]), loaded)


def _checked(images: Tensor, loaded: Loaded) -> Tensor:
    refuse_images(loaded)
    if images.ndim != 4:
        raise InvalidInputError(
            f"Images must have four axes; got a tensor of shape {tuple(images.shape)}. {_WANTED}"
        )
    if not len(images):
        raise InvalidInputError(f"There is no image to measure on. {_WANTED}")
    if not images.is_floating_point():
        return _preprocessed(list(images), loaded)
    if not bool(torch.isfinite(images).all()):
        raise InvalidInputError("The images hold values that are NaN or infinite. Leave those out.")
    return images


def _preprocessed(images: Sequence[Any], loaded: Loaded) -> Tensor:
    refuse_images(loaded)
    if isinstance(loaded.processor, Unavailable):
        raise InvalidInputError(
            f"Pictures and whole numbers 0 … 255 need the preprocessor of the model, and there is "
            f"none ({loaded.processor.reason}). {_WANTED}"
        )
    pixels: Tensor = loaded.processor(images=images, return_tensors="pt")["pixel_values"]
    return pixels


def refuse_images(loaded: Loaded) -> None:
    """Refuse images for a model that reads none.

    Raises
    ------
    InvalidInputError
        The model reads texts, sound or noise.
    """
    if loaded.kind not in ("vision", "torch"):
        raise InvalidInputError(
            f"{loaded.source} (kind {loaded.kind}) reads no images. Give texts as a list of "
            "strings; token numbers go to flowscope.heads(model, inputs=[{...}])."
        )


def image_argument(model: nn.Module) -> str:
    """Name of the argument through which a model takes images: the first of a plain module."""
    names = list(inspect.signature(model.forward).parameters)
    return "pixel_values" if "pixel_values" in names or not names else names[0]


def image_batches(loaded: Loaded, prompts: Prompts, size: int) -> Iterator[Batch]:
    """Batches of prompts; images under the name that the model's forward pass has for them."""
    name = image_argument(loaded.model)
    for batch in batches_of(loaded, prompts, size):
        if prompts.images:
            batch = replace(batch, inputs={name: batch.inputs["pixel_values"]})
        yield batch
