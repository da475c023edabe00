"""Strips of images of a run of an image model: samples side by side, and U-turns."""

import numpy as np
from numpy.typing import NDArray

from flowscope.records import Missing
from flowscope.report.parts.strips import Strip, shown_images
from flowscope.report.source import Source

__all__ = ["channels_shown", "illustration", "images_of", "strip_of"]


_MOST = 12
"""Images side by side; further ones are in the arrays alone."""


def channels_shown(source: Source, name: str) -> str:
    """What stands for a colour where the images have neither one channel nor three."""
    channels = np.asarray(source.arrays[name]["images"]).shape[2]
    if channels in (1, 3):
        return ""
    shown = "the first three as red, green and blue" if channels > 3 else "the first alone, in grey"
    return f" Of {channels} channels {shown}."


def images_of(source: Source, name: str, purpose: str) -> NDArray[np.float32]:
    """Images ``[rows, columns, 1 or 3, height, width]`` of an array."""
    arrays = source.arrays.get(name)
    if arrays is None or "images" not in arrays:
        raise Missing(f"this run has no arrays “{name}” ({purpose})")
    images = np.asarray(arrays["images"], dtype=np.float32)
    if images.ndim != 5 or not images.size:
        shape = " × ".join(map(str, images.shape))
        raise Missing(
            f"the images of the arrays “{name}” should be rows × images × channels × height × "
            f"width, they are {shape}"
        )
    kept = images[:, :_MOST]
    return kept[:, :, :3] if images.shape[2] >= 3 else kept[:, :, :1]


def strip_of(images: NDArray[np.float32], rows: list[str], texts: tuple[str, str, str]) -> Strip:
    """Strip of images with one row per name; the texts are its corner, label and description."""
    shown, shrunk = shown_images(images[:, :, None])
    columns = [str(k + 1) for k in range(images.shape[1])]
    corner, label, said = texts
    return Strip(images=shown, rows=rows, columns=columns, shrunk=shrunk, corner=corner,
                 label=label, said=said)  # fmt: skip


def illustration(strip: Strip) -> str:
    """Basis of the caption of a strip: what it cannot show."""
    small = (
        f" Images are averaged over {strip.shrunk} × {strip.shrunk} pixels to keep the page small."
        if strip.shrunk > 1
        else ""
    )
    return (
        "an illustration, not a measurement; values beyond [−1, 1] are cut, undefined values are "
        f"grey.{small}"
    )
