"""Batches that a program gives: a data loader, a list of keyword arguments, one mapping."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.models.images.pictures import image_argument, refuse_images
from flowscope.models.loading import Loaded
from flowscope.tap.state import state_kept

__all__ = [
    "images_in",
    "is_loader",
    "listed_inputs",
    "loaded_items",
    "refuse_failing",
    "refuse_texts",
]

_WANTED = (
    "Give a list of mappings, the keyword arguments of one forward pass each, or a DataLoader "
    "whose batches are such mappings."
)


def is_loader(given: Any) -> bool:
    """Whether an object gives batches of a data set, as a torch DataLoader does."""
    named = hasattr(given, "dataset") and hasattr(given, "batch_size")
    return named and isinstance(given, Iterable)


def listed_inputs(given: Any, model: nn.Module) -> list[dict[str, Any]]:
    """Batches as keyword arguments of a forward pass, on the device of the model.

    Raises
    ------
    InvalidInputError
        Something else than mappings was given, or nothing.

    Examples
    --------
    >>> [list(batch) for batch in listed_inputs({"x": torch.zeros(2, 3)}, nn.Linear(3, 3))]
    [['x']]
    """
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Tensor)):
        raise InvalidInputError(f"inputs must be batches; got {type(given).__name__}. {_WANTED}")
    batches = list(given)
    wrong = next((batch for batch in batches if not isinstance(batch, Mapping) or not batch), None)
    if wrong is not None or not batches:
        kind = "none" if not batches else f"one of type {type(wrong).__name__}"
        raise InvalidInputError(f"inputs must hold mappings with tensors; got {kind}. {_WANTED}")
    weight = next(model.parameters(), torch.zeros(0))
    device = torch.device("cpu") if weight.is_meta else weight.device
    return [
        {
            str(name): value.to(device) if isinstance(value, Tensor) else value
            for name, value in batch.items()
        }
        for batch in batches
    ]


def loaded_items(loader: Any) -> list[Any] | Tensor:
    """Texts or images of a data loader, without its batches.

    A batch is a mapping with texts under “text” or images under “pixel_values”, a tensor of images,
    a list of texts, or such with labels behind.

    Raises
    ------
    InvalidInputError
        The batches hold something else.
    """
    texts: list[Any] = []
    images: list[Tensor] = []
    for batch in loader:
        part = batch
        if isinstance(batch, Mapping):
            part = batch.get("text", batch.get("pixel_values"))
        elif isinstance(batch, (list, tuple)) and batch and not isinstance(batch[0], str):
            part = batch[0]
        if isinstance(part, Tensor) and part.ndim == 4:
            images.append(part)
        elif isinstance(part, (list, tuple)) and all(isinstance(text, str) for text in part):
            texts += part
        else:
            held = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(part).__name__
            raise InvalidInputError(
                f"Batches of the data loader must hold texts or images; they hold {held[:80]}. "
                "Give the texts themselves, or the loader as inputs= of flowscope.heads."
            )
    return torch.cat(images) if images else texts


def images_in(batches: Iterable[Mapping[str, Any]], loaded: Loaded) -> Tensor:
    """Images that keyword arguments hold.

    Raises
    ------
    InvalidInputError
        They hold something else: an audit needs to know what each row of an input is.
    """
    refuse_images(loaded)
    name = image_argument(loaded.model)
    parts = [batch.get(name) for batch in batches]
    if not all(isinstance(part, Tensor) and part.ndim == 4 for part in parts):
        raise InvalidInputError(
            f"An audit reads images from inputs, under {name!r} and with four axes. Give texts as "
            "texts, and other inputs to flowscope.heads(model, inputs=...)."
        )
    return torch.cat([part for part in parts if isinstance(part, Tensor)])


def refuse_texts(loaded: Loaded) -> None:
    """Refuse texts for a model that reads none.

    Raises
    ------
    InvalidInputError
        The model reads images, sound or noise, or takes no token numbers.
    """
    if loaded.kind == "vision":
        raise InvalidInputError(
            f"{loaded.source} is a vision model and reads no texts. Give images: a tensor "
            "[n, channels, height, width]."
        )
    takes = "input_ids" in inspect.signature(loaded.model.forward).parameters
    if loaded.kind in ("audio", "diffusion") or (loaded.kind == "torch" and not takes):
        raise InvalidInputError(
            f"{loaded.source} (kind {loaded.kind}) takes no token numbers (input_ids), so that it "
            "reads no texts. Give what it takes: flowscope.heads(model, inputs=[{...}])."
        )


@torch.no_grad()
def refuse_failing(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Run a model once and say in words why it cannot be run on these inputs.

    Buffers, attributes and the state of random numbers stay as they are.

    Raises
    ------
    InvalidInputError
        The forward pass failed.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        return  # off-loaded or never loaded: the tap says which
    try:
        with torch.random.fork_rng(), state_kept(model):
            model(**inputs)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        held = ", ".join(f"{name} {_shape(value)}" for name, value in inputs.items())
        raise InvalidInputError(
            f"{type(model).__name__} could not be run on {held}: {type(error).__name__}: "
            f"{lines[0][:200].rstrip('.')}. Give inputs that its forward pass takes."
        ) from error


def _shape(value: Any) -> str:
    return f"{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
