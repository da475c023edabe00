"""Strips of images: all images of an array as one PNG, with its labels."""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave
from numpy.typing import NDArray

from flowscope.report import theme
from flowscope.report.escaping import html_text

__all__ = ["MOST_BYTES", "Strip", "shown_images", "strip_figure", "strip_html", "strip_png"]

MOST_BYTES = 300_000
"""Bytes of pixels that a strip may put on the page; larger images are averaged down."""

_GAP, _SEAM, _SHOWN = 4, 1, (64, 96)
"""Pixels between cells and inside one; least and largest width of an image on the page."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Strip:
    """Images in [0, 1], ``[rows, columns, stacked, height, width, 3]``, and what is said of them.

    Attributes
    ----------
    shrunk
        Pixels, each way, that were averaged into one.
    corner, label, said
        Words above the names of the rows, for the whole, and in place of the picture.
    """

    images: NDArray[np.float32]
    rows: list[str]
    columns: list[str]
    shrunk: int
    corner: str
    label: str
    said: str


def shown_images(images: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Images as colours in [0, 1], undefined pixels grey, made small enough; and by how much.

    Parameters
    ----------
    images
        Values in [-1, 1], ``[rows, columns, stacked, 1 or 3, height, width]``.
    """
    shrunk = math.ceil(math.sqrt(images.size / MOST_BYTES))
    small = _averaged(images, shrunk)
    colours = np.broadcast_to(small, (*small.shape[:3], 3, *small.shape[4:])).transpose(
        0, 1, 2, 4, 5, 3
    )
    return np.where(np.isfinite(colours), np.clip(colours / 2 + 0.5, 0, 1), 0.9), shrunk


def _averaged(images: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """Mean over blocks of ``factor`` × ``factor`` pixels; a last, smaller block counts as one."""
    if factor < 2:
        return images
    for axis in (-2, -1):
        starts = np.arange(0, images.shape[axis], factor)
        counts = np.diff([*starts, images.shape[axis]]).astype(np.float32)
        shape = [1] * images.ndim
        shape[axis] = len(starts)
        images = (np.add.reduceat(images, starts, axis=axis) / counts.reshape(shape)).astype("f4")
    return images


def strip_png(strip: Strip) -> bytes:
    """All images in one PNG; what lies between them is transparent, for either theme."""
    rows, columns, stacked, height, width, _ = strip.images.shape
    tall, wide = stacked * (height + _SEAM) - _SEAM + _GAP, width + _GAP
    sheet = np.zeros((rows * tall, columns * wide, 4), dtype=np.float32)
    for i in range(rows):
        for j in range(columns):
            for k in range(stacked):
                top, left = i * tall + k * (height + _SEAM), j * wide
                sheet[top : top + height, left : left + width, :3] = strip.images[i, j, k]
                sheet[top : top + height, left : left + width, 3] = 1.0
    content = io.BytesIO()
    pixels = np.round(255 * sheet).astype(np.uint8)
    imsave(content, pixels, format="png", metadata={"Software": ""})
    return content.getvalue()


def strip_figure(strip: Strip) -> Figure:
    """The strip as a figure of matplotlib: names of rows at the left, of columns at the top."""
    rows, columns, stacked, height, width, _ = strip.images.shape
    across = 1.1 + 0.75 * columns
    down = 0.35 + 0.75 * rows * stacked * height / width
    figure = Figure(figsize=(across, down), facecolor="white")
    figure.subplots_adjust(left=1.1 / across, right=0.99, bottom=0.01, top=1 - 0.3 / down,
                           wspace=0.05, hspace=0.05)  # fmt: skip
    axes = figure.subplots(rows, columns, squeeze=False)
    for i in range(rows):
        for j in range(columns):
            seam = np.ones((_SEAM, width, 3), dtype=np.float32)
            parts = [part for image in strip.images[i, j] for part in (image, seam)][:-1]
            axes[i, j].imshow(np.concatenate(parts), interpolation="nearest", aspect="auto")
            axes[i, j].set(xticks=[], yticks=[])
            axes[i, j].spines[:].set_visible(False)
        axes[i, 0].set_ylabel(strip.rows[i], fontsize=8, color=theme.INK, rotation=0, ha="right",
                              va="center", parse_math=False)  # fmt: skip
    for j, name in enumerate(strip.columns):
        axes[0, j].set_title(name, fontsize=8, color=theme.MUTED, pad=2, parse_math=False)
    figure.text(0.01, 0.99, strip.corner, fontsize=8, color=theme.MUTED, va="top")
    return figure


def strip_html(strip: Strip) -> str:
    """The strip in a box that scrolls sideways; labels are text and stay beside their row."""
    rows, columns, stacked, height, width, _ = strip.images.shape
    least, most = _SHOWN
    # Whole multiples keep the pixels square; few columns may be larger.
    zoom = max(1, round(min(most, max(least, 840 / columns)) / (width + _GAP)))
    wide, tall = (width + _GAP) * zoom, (stacked * (height + _SEAM) - _SEAM + _GAP) * zoom
    shape = (
        f"grid-template-columns:auto repeat({columns},{wide:d}px);"
        f"grid-template-rows:auto repeat({rows},{tall:d}px)"
    )
    heads = "".join(
        f'<span class="at" style="grid-row:1;grid-column:{k + 2}">{html_text(name)}</span>'
        for k, name in enumerate(strip.columns)
    )
    names = "".join(
        f'<span class="row" style="grid-column:1;grid-row:{k + 2}">{html_text(name)}</span>'
        for k, name in enumerate(strip.rows)
    )
    data = base64.b64encode(strip_png(strip)).decode()
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html_text(strip.label)}">'
        f'<div class="strip" style="{shape}"><span class="corner">{html_text(strip.corner)}</span>'
        f'{heads}{names}<img alt="{html_text(strip.said)}" src="data:image/png;base64,{data}" '
        f'style="grid-column:2/{columns + 2};grid-row:2/{rows + 2};'
        f'width:{columns * wide:d}px;height:{rows * tall:d}px"></div></div>'
    )
