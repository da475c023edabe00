"""The flow and the SDE from the same noise, step by step: values, step sizes, scores, classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.flows.sampling import histogram_counts
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.sampling import HalvedNoise, Stepped, Track, track_times
from flowscope.instruments.image.stage import ImageStage, half_width, merged_groups
from flowscope.probes import Arrays

__all__ = [
    "SAMPLERS",
    "Axes",
    "PathRuns",
    "path_passes",
    "path_runs",
    "path_tracks",
    "principal_axes_of",
    "rotation_windows",
]


SAMPLERS = ("ode", "sde", "sde2")
"""The probability flow, the SDE, and the SDE with other noise."""


_STAGE = 2


_SHOWN = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Axes:
    """Principal axes of images: coordinates are ``(x − centre) @ axes``."""

    centre: Tensor
    axes: Tensor

    def coordinates(self, x: Tensor, signal: float) -> Tensor:
        """Coordinates of states whose clean part is scaled by so much."""
        centre, axes = self.centre.to(x), self.axes.to(x)
        return (x.flatten(1) - signal * centre) @ axes

    def components(self, v: Tensor) -> Tensor:
        """Components of vectors."""
        return v.flatten(1) @ self.axes.to(v)


@dataclass(frozen=True, kw_only=True, eq=False)
class PathRuns:
    """What was read along the paths.

    Attributes
    ----------
    times
        The model's times after each step.
    counts
        Histograms ``[samplers, groups, steps, channels, bins]``.
    fine
        Those of the flow and of the SDE with twice the steps, after every second step; without
        samplers where the schedule has too few times.
    outside
        Share of values beyond the bins ``[samplers, steps]``.
    sizes
        Mean squared step per value ``[samplers, images, steps]``.
    displacement
        Root mean square distance from start to end ``[samplers, images]``.
    points, scores
        Coordinates of the SDE's states and of the learned score there, after each step but the
        last, ``[sde runs, steps - 1, some images, rank]``.
    shown
        A few final images of the flow and the SDE, ``[2, shown, c, h, w]``.
    finals
        Final states of the SDE, of the images that are noised again.
    """

    times: NDArray[np.int64]
    counts: NDArray[np.int32]
    fine: NDArray[np.int32]
    outside: NDArray[np.float64]
    sizes: NDArray[np.float64]
    displacement: NDArray[np.float64]
    points: NDArray[np.float32]
    scores: NDArray[np.float32]
    shown: NDArray[np.float32]
    finals: NDArray[np.float32]


def rotation_windows(config: ImageConfig) -> list[list[int]]:
    """Steps done where the score is read, in windows; before the first step all is noise."""
    inner = np.arange(1, config.steps)
    count = min(config.rotation_times, len(inner))
    return [part.tolist() for part in np.array_split(inner, count)] if count else []


def path_tracks(model: ImageModel, config: ImageConfig) -> list[Track]:
    """The flow, the SDE and the SDE with other noise; the first two with twice the steps as well.

    These are left out where the schedule has too few times for twice the steps.
    """
    K = config.steps
    tracks = [
        Track(lam=0.0, steps=K),
        Track(lam=1.0, steps=K),
        Track(lam=1.0, steps=K, stream=1),
    ]
    if len(model.levels) > 2 * K:
        tracks += [Track(lam=0.0, steps=2 * K), Track(lam=1.0, steps=2 * K)]
    return tracks


def path_passes(model: ImageModel, config: ImageConfig) -> int:
    """Images that go through the model."""
    return config.images * sum(track.steps for track in path_tracks(model, config))


def path_runs(stage: ImageStage, axes: Axes) -> PathRuns:
    """Run what is not there, and read the rest from its shards."""
    config = stage.config
    chunks = stage.chunks(config.images)
    parts = stage.shards.family(
        {
            f"paths-{number}": partial(_chunk, stage, axes, number, rows)
            for number, rows in enumerate(chunks)
        }
    )
    along = {
        "counts": 1,
        "fine": 1,
        "sizes": 1,
        "displacement": 1,
        "points": 2,
        "scores": 2,
        "finals": 0,
    }
    joined = {name: np.concatenate([p[name] for p in parts], axis) for name, axis in along.items()}
    weights = [float(rows.stop - rows.start) for rows in chunks]
    return PathRuns(
        times=np.asarray(track_times(stage.model, config.steps)[1:]),
        outside=np.average([p["outside"] for p in parts], axis=0, weights=weights),
        shown=parts[0]["shown"],
        **joined,
    )


def _chunk(stage: ImageStage, axes: Axes, number: int, rows: slice) -> Arrays:
    return _Chunk(stage, axes, number, rows).run()


class _Chunk:
    """One batch of images on its way."""

    def __init__(self, stage: ImageStage, axes: Axes, number: int, rows: slice) -> None:
        self._stage, self._axes, self._number, self._rows = stage, axes, number, rows
        self._n = rows.stop - rows.start
        self._each = stage.group(stage.config.images)
        K, C = stage.config.steps, stage.model.shape[0]
        groups = -(-self._n // self._each)
        self._tracks = path_tracks(stage.model, stage.config)
        self._counts = np.zeros((len(self._tracks), groups, K, C, stage.config.bins), np.int32)
        self._outside = np.zeros((3, K))
        self._sizes = np.zeros((3, self._n, K))
        limit = stage.config.rotation_images if stage.config.rotation_times else 0
        self._scored = max(0, min(self._n, limit - rows.start))
        size = (2, K - 1, self._scored, axes.axes.shape[1])
        self._points, self._scores = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._ends: dict[int, Tensor] = {}

    def run(self) -> Arrays:
        stage, n = self._stage, self._n
        K = stage.config.steps
        start = stage.model.start(n, stage.generator(_STAGE, self._number, 2))
        noise = [stage.generator(_STAGE, self._number, stream) for stream in (0, 1)]
        labels, coarse = stage.labels(self._rows), len(SAMPLERS)
        for event in stage.marched(self._tracks[:coarse], start, labels, noise):
            stage.advance(n)
            self._read(event)
            if event.done == K:
                self._ends[event.track] = event.after
        # The noise of the SDE once more, in halves: both runs then see one Brownian path.
        halves = HalvedNoise(*(stage.generator(_STAGE, self._number, k) for k in (0, 3)))
        if self._tracks[coarse:]:
            for event in stage.marched(self._tracks[coarse:], start, labels, [halves]):
                stage.advance(n)
                if event.done % 2 == 0:  # a state between two coarse ones has no counterpart
                    self._histogram(event, event.track + coarse, event.done // 2 - 1)
        moved = [(self._ends[i] - start).double().flatten(1) for i in range(3)]
        wanted = max(stage.config.uturn_images, stage.config.information_images)
        again = max(0, min(n, wanted - self._rows.start))
        return {
            "counts": self._counts[: len(SAMPLERS)],
            "fine": self._counts[len(SAMPLERS) :],
            "outside": self._outside,
            "sizes": self._sizes,
            "displacement": np.stack([m.square().mean(1).sqrt().cpu().numpy() for m in moved]),
            "points": self._points,
            "scores": self._scores,
            "shown": self._shown(),
            "finals": self._ends[1][:again].float().cpu().numpy(),
        }

    def _shown(self) -> NDArray[np.float32]:
        decoded = [self._stage.model.decoded(self._ends[i][:_SHOWN]) for i in (0, 1)]
        return np.stack([x.float().cpu().numpy() for x in decoded])

    def _histogram(self, event: Stepped, track: int, k: int) -> float:
        """Count the values after a step; the share beyond the bins."""
        width = half_width(self._stage.model, event.time)
        counts, beyond = histogram_counts(event.after, width, self._stage.config.bins)
        self._counts[track, :, k] = merged_groups(counts, self._each)
        return beyond

    def _read(self, event: Stepped) -> None:
        place, k = event.track, event.done - 1
        self._outside[place, k] = self._histogram(event, place, k)
        step = (event.after - event.before).double().flatten(1).square().mean(1)
        self._sizes[place, :, k] = step.cpu().numpy()
        if place and k and self._scored:
            self._score(event, place - 1, k - 1)

    def _score(self, event: Stepped, run: int, place: int) -> None:
        """Coordinates of the states before the step, and of the score that was used there."""
        model = self._stage.model
        level = model.levels[track_times(model, self._stage.config.steps)[event.done - 1]]
        rows = slice(0, self._scored)
        points = self._axes.coordinates(event.before[rows].double(), level**0.5)
        noise = event.prediction.noise[rows].double()
        scores = self._axes.components(-noise / (1 - level) ** 0.5)
        self._points[run, place] = points.cpu().numpy()
        self._scores[run, place] = scores.cpu().numpy()


def principal_axes_of(finals: NDArray[np.float32], rank: int) -> Axes:
    """Principal axes of some images, as many as they carry and no more than asked for."""
    x = torch.from_numpy(np.asarray(finals, np.float64))
    centre = x.mean(0)
    rank = min(rank, len(x) - 1, x.shape[1])
    _, _, right = torch.linalg.svd(x - centre, full_matrices=False)
    return Axes(centre=centre, axes=right[:rank].mT.contiguous())
