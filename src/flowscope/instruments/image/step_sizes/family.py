"""Members of the family at several numbers of steps: what they cost in error, and what they make.

All of them start from the same noise and see one Brownian path. The probability flow and the SDE
run with every number of steps and with twice the largest; members between them with every number.
One more SDE of the most steps sees other noise: what the finest run is compared with, for a null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.flows.sampling import histogram_counts
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.sampling import Track
from flowscope.instruments.image.stage import ImageStage, half_width, merged_groups
from flowscope.probes import Arrays

__all__ = ["OBSERVABLES", "FamilyRuns", "family_passes", "family_runs", "family_tracks"]


OBSERVABLES = ("mean", "square", "roughness")
"""Of an image: mean value, mean square, and mean squared difference of neighbouring values."""


_STAGE = 1


_AXES_BYTES = 2**26


@dataclass(frozen=True, kw_only=True, eq=False)
class FamilyRuns:
    """What the tracks ended with.

    Attributes
    ----------
    tracks
        Which they are; the last is the finest SDE with other noise.
    observables
        ``[tracks, images, observables]``.
    counts
        Histograms of the final values, ``[tracks, groups, channels, bins]``.
    read
        Class of each final image, ``[tracks, images]``; −1 when nothing reads it.
    labels
        Class asked for, −1 when none was.
    finals
        Some final states of the finest SDE, flattened, ``[some, pixels]``.
    """

    tracks: tuple[Track, ...]
    observables: NDArray[np.float64]
    counts: NDArray[np.int32]
    read: NDArray[np.int64]
    labels: NDArray[np.int64]
    finals: NDArray[np.float32]

    def place(self, lam: float, steps: int) -> int:
        """Where a track is."""
        return self.tracks.index(Track(lam=lam, steps=steps))


def family_tracks(config: ImageConfig) -> tuple[Track, ...]:
    """Every member and number of steps that is run, and the null last."""
    steps = sorted(set(config.doubling))
    finest = 2 * steps[-1]
    tracks = [Track(lam=lam, steps=k) for lam in (0.0, 1.0) for k in [*steps, finest]]
    between = sorted({lam for lam in config.lams if lam not in (0.0, 1.0)})
    tracks += [Track(lam=lam, steps=k) for lam in between for k in steps]
    return (*tracks, Track(lam=1.0, steps=finest, stream=1))


def family_passes(config: ImageConfig) -> int:
    """Images that go through the model."""
    return config.family_images * sum(track.steps for track in family_tracks(config))


def family_runs(stage: ImageStage) -> FamilyRuns:
    """Run what is not there, and read the rest from its shards."""
    config = stage.config
    tracks = family_tracks(config)
    chunks = stage.chunks(config.family_images)
    parts = stage.shards.family(
        {
            f"family-{number}": partial(_chunk, stage, tracks, number, rows)
            for number, rows in enumerate(chunks)
        }
    )
    joined = {
        name: np.concatenate([part[name] for part in parts], axis)
        for name, axis in (("observables", 1), ("counts", 1), ("read", 1), ("labels", 0),
                           ("finals", 0))
    }  # fmt: skip
    return FamilyRuns(tracks=tracks, **joined)


def _chunk(stage: ImageStage, tracks: Sequence[Track], number: int, rows: slice) -> Arrays:
    model, n = stage.model, rows.stop - rows.start
    start = model.start(n, stage.generator(_STAGE, number, 2))
    labels = stage.labels(rows)
    ends: dict[int, Tensor] = {}
    noise = [stage.generator(_STAGE, number, stream) for stream in (0, 1)]
    for event in stage.marched(tracks, start, labels, noise):
        stage.advance(n)
        if event.done == tracks[event.track].steps:
            ends[event.track] = event.after
    each = stage.group(stage.config.family_images)
    width = half_width(model, 0)
    counts = [
        merged_groups(histogram_counts(ends[i], width, stage.config.bins)[0], each)
        for i in range(len(tracks))
    ]
    finest = tracks.index(Track(lam=1.0, steps=tracks[-1].steps))
    flat = ends[finest].flatten(1)
    most = max(1, _AXES_BYTES // (4 * flat.shape[1] * max(1, stage.config.family_images // n)))
    return {
        "observables": np.stack([_observed(ends[i]) for i in range(len(tracks))]),
        "counts": np.stack(counts),
        "read": np.stack([stage.read(ends[i]) for i in range(len(tracks))]),
        "labels": np.full(n, -1) if labels is None else labels.cpu().numpy().astype(np.int64),
        "finals": flat[:most].float().cpu().numpy(),
    }


def _observed(x: Tensor) -> NDArray[np.float64]:
    """The observables of each image, ``[n, observables]``."""
    x = x.double()
    across = torch.diff(x, dim=3).square().flatten(1)
    down = torch.diff(x, dim=2).square().flatten(1)
    rough = torch.cat([across, down], 1)
    roughness = rough.mean(1) if rough.shape[1] else torch.zeros(len(x), dtype=x.dtype)
    flat = x.flatten(1)
    columns = [flat.mean(1), flat.square().mean(1), roughness.to(x.device)]
    return torch.stack(columns, 1).cpu().numpy()
