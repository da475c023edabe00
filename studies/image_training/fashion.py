"""Fashion-MNIST from its idx files (MIT; Debian package dataset-fashion-mnist)."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

__all__ = ["CLASSES", "Fashion", "fashion"]

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Fashion:
    """One part of the set: images in [−1, 1] ``[n, 1, 28, 28]``, labels, hash of the file."""

    images: Tensor
    labels: Tensor
    sha256: str


def fashion(folder: Path, part: str) -> Fashion:
    """The ``"train"`` or the ``"t10k"`` part."""
    raw = (folder / f"{part}-images-idx3-ubyte.gz").read_bytes()
    pixels = np.frombuffer(gzip.decompress(raw), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    marks = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    labels = np.frombuffer(marks, np.uint8, offset=8)
    images = torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1)
    return Fashion(
        images=images,
        labels=torch.from_numpy(labels.astype(np.int64)),
        sha256=hashlib.sha256(raw).hexdigest(),
    )
