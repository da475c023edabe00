"""Strips of images of a run of an image model: samples side by side, and U-turns."""

import numpy as np
from numpy.typing import NDArray

from flowscope.records import Missing
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source
from flowscope.report.strips import Strip, shown_images

__all__ = ["channels_shown", "sample_strip", "uturn_strip"]

_MOST = 12
"""Images side by side; further ones are in the arrays alone."""


def sample_strip(source: Source) -> Strip:
    """Samples of the ODE above those of the SDE, from the same noise, or why there are none."""
    images = _images(source, "samples", "a few samples of both samplers")
    if len(images) != 2:
        raise Missing(
            f"the arrays “samples” should hold images of two samplers, they hold {len(images)}"
        )
    said = f"{count(images.shape[1], 'sample')} of the ODE above those of the SDE"
    return _strip(images, ["ODE", "SDE"], ("noise no.", "samples of both samplers", said))


def uturn_strip(source: Source) -> Strip:
    """Images before and after a U-turn to each time, or why there are none."""
    images = _images(source, "uturn_strip", "a few images before and after a U-turn")
    arrays = source.arrays["uturn_strip"]
    snr = np.asarray(arrays.get("log_snr", []), dtype=np.float64).ravel()
    if len(snr) != len(images):
        raise Missing("the arrays “uturn_strip” are not all of one size")
    rows = ["before", *(f"{numeral(value, 2)}" for value in snr[1:])]
    said = f"{count(images.shape[1], 'image')} before, and after a U-turn to log snr " + ", ".join(
        rows[1:]
    )
    return _strip(images, rows, ("turned at log snr", "images before and after U-turns", said))


def channels_shown(source: Source, name: str) -> str:
    """What stands for a colour where the images have neither one channel nor three."""
    channels = np.asarray(source.arrays[name]["images"]).shape[2]
    if channels in (1, 3):
        return ""
    shown = "the first three as red, green and blue" if channels > 3 else "the first alone, in grey"
    return f" Of {channels} channels {shown}."


def _images(source: Source, name: str, purpose: str) -> NDArray[np.float32]:
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


def _strip(images: NDArray[np.float32], rows: list[str], texts: tuple[str, str, str]) -> Strip:
    shown, shrunk = shown_images(images[:, :, None])
    columns = [str(k + 1) for k in range(images.shape[1])]
    corner, label, said = texts
    return Strip(images=shown, rows=rows, columns=columns, shrunk=shrunk, corner=corner,
                 label=label, said=said)  # fmt: skip
