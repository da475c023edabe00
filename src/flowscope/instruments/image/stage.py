"""What every stage of the image track shares: chunks of images, their seeds, classes and shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.sampling import HalvedNoise, Stepped, Track, marched
from flowscope.lab.bench import seeded_generator
from flowscope.models.images.readers import Reader
from flowscope.records import Shards, Unavailable

__all__ = ["GROUPS", "ImageStage", "half_width", "merged_groups", "noised_states", "states_of"]


GROUPS = 256
"""Most groups of images that histograms are kept for, as the units of resampling."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageStage:
    """A model, how it is read, and where the pieces go.

    Attributes
    ----------
    model, reader
        What is sampled, and what tells the class of an image, or why nothing does.
    config, shards
        Settings, and the shards of the run.
    advance
        Told of images that went through the model.
    asked
        Whether samples are asked for classes, in turn.
    """

    model: ImageModel
    reader: Reader | Unavailable
    config: ImageConfig
    shards: Shards
    advance: Callable[[int], None]
    asked: bool

    def chunks(self, images: int) -> list[slice]:
        """Batches of images; each but the last holds whole groups."""
        each = self.group(images)
        size = max(each, self.config.batch // each * each)
        return [slice(start, min(start + size, images)) for start in range(0, images, size)]

    @staticmethod
    def group(images: int) -> int:
        """Images in a group."""
        return -(-images // GROUPS)

    def generator(self, stage: int, chunk: int, stream: int = 0) -> torch.Generator:
        """Noise of one stream of one chunk."""
        return seeded_generator(self.config.seed, stage, chunk, stream)

    def labels(self, rows: slice) -> Tensor | None:
        """Classes of some images, all in turn in an order of the seed; None when none is asked."""
        if not (self.asked and self.model.classes):
            return None
        known = len(self.model.classes)
        order = np.random.default_rng(self.config.seed).permutation(known)
        found = torch.from_numpy(order[np.arange(rows.start, rows.stop) % known])
        return found.to(self.model.device)

    def marched(
        self,
        tracks: Sequence[Track],
        start: Tensor,
        labels: Tensor | None,
        generators: Sequence[torch.Generator | HalvedNoise],
        last: int | None = None,
    ) -> Iterator[Stepped]:
        """Every step of every track, made as the settings say."""
        return marched(
            self.model,
            tracks,
            start,
            labels,
            generators,
            integrator=self.config.integrator,
            last=last,
        )

    def read(self, x: Tensor) -> np.ndarray:
        """Class of each state at time 0, −1 where nothing reads it."""
        if isinstance(self.reader, Unavailable):
            return np.full(len(x), -1)
        return self.reader(self.model.decoded(x)).cpu().numpy().astype(np.int64)


def half_width(model: ImageModel, time: int) -> float:
    """Range of the bins at a time: the clean values' own, and four deviations of the noise."""
    level = model.levels[time]
    return float(np.sqrt(level) * model.amplitude + 4 * np.sqrt(1 - level))


def merged_groups(counts: Tensor, each: int) -> np.ndarray:
    """Counts ``[n, c, bins]`` of images summed over groups of so many, the last may be smaller."""
    parts = torch.split(counts, each)
    return torch.stack([part.sum(0) for part in parts]).to(torch.int32).cpu().numpy()


def states_of(model: ImageModel, finals: NDArray[np.float32]) -> Tensor:
    """Finished images as states of the model, of its dtype and on its device."""
    first = model.start(1, torch.Generator().manual_seed(0))  # for its dtype and device
    return torch.from_numpy(np.array(finals)).to(first)


def noised_states(model: ImageModel, x: Tensor, time: int, generator: torch.Generator) -> Tensor:
    """States at time 0 brought to another time."""
    share = model.levels[time] / model.levels[0]
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    return math.sqrt(share) * x + math.sqrt(1 - share) * noise
