"""What says how alike two images are: an encoder of one's own, a folder, or the bundled one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.models.loading import load
from flowscope.nets import ImageEncoder, bundled_encoder, bundled_path
from flowscope.records import Unavailable

__all__ = ["Encoder", "ImageInput", "cosines", "encoder_mark", "encoder_of"]

Encoder = Callable[[Float[Tensor, "n channels height width"]], Float[Tensor, "n features"]]


def encoder_of(
    given: str | Path | Encoder | None,
    *,
    shape: tuple[int, int, int],
    device: torch.device,
) -> tuple[Encoder | Unavailable, str]:
    """An encoder of images in [−1, 1], and what it is in words.

    Parameters
    ----------
    given
        A function from images to features; the folder of an image model of transformers (ResNet,
        ViT, …) or of an encoder of flowscope; None for the bundled one, which reads images of
        1 × 28 × 28 only.
    shape
        Channels, height and width of the images.
    device
        Where they are.
    """
    if callable(given):
        return given, getattr(given, "__name__", type(given).__name__)
    if given is None:
        if shape != (1, 28, 28):
            reason = (
                f"the bundled encoder reads images of 1 × 28 × 28, not {_times(shape)}; give an "
                "encoder (--encoder FOLDER), such as a ResNet-50 of transformers"
            )
            return Unavailable(reason), "none"
        network = bundled_encoder(bundled_path("image") / "encoder").to(device)
        return network.features, "the bundled encoder (Fashion-MNIST)"
    folder = Path(given)
    if (folder / "config.json").is_file() and '"sha256"' in (folder / "config.json").read_text():
        own: ImageEncoder = bundled_encoder(folder).to(device)
        return own.features, str(given)
    loaded = load(given, device=str(device), dtype=torch.float32)
    if loaded.kind != "vision":
        raise InvalidInputError(
            f"An encoder must be a model of images; {given} is a model of the kind {loaded.kind!r}."
        )
    return _Transformers(loaded.model, loaded.processor), str(given)


class ImageInput:
    """Images in [−1, 1] as an image model of transformers wants them: its size, colours, scale."""

    def __init__(self, model: nn.Module, processor: Any) -> None:
        told = {} if isinstance(processor, Unavailable) else vars(processor)
        self._mean, self._std = (told.get(n) or [0.5] * 3 for n in ("image_mean", "image_std"))
        if told.get("do_normalize") is False:
            self._mean, self._std = [0.0] * 3, [1.0] * 3
        self._size = self._side(told, model)

    @staticmethod
    def _side(told: dict[str, Any], model: Any) -> int:
        crop = told.get("crop_size") or told.get("size") or {}
        side = crop.get("height") or crop.get("shortest_edge") if hasattr(crop, "get") else None
        return int(side or getattr(model.config, "image_size", None) or 224)

    def __call__(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 side side"]:
        """What the model is given."""
        pixels = (images.float().clamp(-1, 1) + 1) / 2
        if pixels.shape[1] == 1:
            pixels = pixels.expand(-1, 3, -1, -1)
        pixels = F.interpolate(
            pixels, (self._size, self._size), mode="bilinear", antialias=True, align_corners=False
        )
        mean, std = (pixels.new_tensor(x)[:, None, None] for x in (self._mean, self._std))
        return (pixels - mean) / std


class _Transformers:
    """Pooled features of an image model of transformers, after its own resizing and scaling."""

    def __init__(self, model: nn.Module, processor: Any) -> None:
        self._model: Any = getattr(model, "base_model", model)
        self._input = ImageInput(model, processor)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        parts = [self._features(part) for part in torch.split(images, 32)]
        return torch.cat(parts)

    def _features(self, images: Tensor) -> Tensor:
        found = self._model(self._input(images))
        pooled = getattr(found, "pooler_output", None)
        if pooled is None:
            pooled = found.last_hidden_state.mean(1)
        return torch.flatten(pooled, 1)


def encoder_mark(
    encoder: Encoder | Unavailable, shape: tuple[int, int, int], device: torch.device
) -> str:
    """What tells encoders apart: features of three fixed images, to four digits.

    A name would not: functions share theirs, and a folder may be given new weights. An encoder that
    does not fit the images is refused here, before any is made.
    """
    if isinstance(encoder, Unavailable):
        return encoder.reason
    images = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    images = images.to(device)
    alike = cosines(encoder, images, images.roll(1, 0))
    with torch.no_grad():
        sizes = torch.linalg.vector_norm(encoder(images).double(), dim=1)
    return " ".join(f"{float(x):.4g}" for x in (*alike, *sizes))


def cosines(
    encoder: Encoder, first: Float[Tensor, "n c h w"], second: Float[Tensor, "n c h w"]
) -> Float[Tensor, "n"]:
    """Cosine of the features of each pair of images.

    Raises
    ------
    InvalidInputError
        When the encoder gives something else than one row of finite features an image.
    """
    rows = []
    with torch.no_grad():
        for images in (first, second):
            found = encoder(images)
            if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(images):
                shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise InvalidInputError(
                    f"An encoder must give features [n, size] of {len(images)} images; got {shape}."
                )
            rows.append(F.normalize(found.double(), dim=1))
    alike = (rows[0] * rows[1]).sum(1)
    if not bool(torch.isfinite(alike).all()):
        raise InvalidInputError("The encoder gave NaN for some image; check its input range.")
    return alike


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(str(n) for n in shape)
