r"""When an image decides its class: what a state knows of it, and what noise makes it forget.

*Information.* Along paths of the SDE that are asked for a class, the squared difference of the
predictions with and without the class is the rate at which the state learns the class.

*U-turn.* A finished image is noised to a time and brought back without a class. Where it comes back
as the class it was, the state still knew it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.probes import Arrays
from flowscope.records import Unavailable
from flowscope.runs.config import ImageConfig
from flowscope.runs.image_sampling import Track, track_times
from flowscope.runs.image_stage import ImageStage

__all__ = [
    "Information",
    "Turns",
    "information_of",
    "information_passes",
    "turn_passes",
    "turn_times",
    "turns_of",
]

_INFORMATION, _TURN = 3, 4
_SHOWN = 8
_SIDE = 64  # images of the strip are shown no larger


@dataclass(frozen=True, kw_only=True, eq=False)
class Information:
    """Squared differences of predictions, ``[images, steps]``, at the times before each step."""

    times: NDArray[np.int64]
    gaps: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """Images before and after they were noised to each time.

    Attributes
    ----------
    times, steps
        Times they were noised to, and steps of the way back.
    before, after
        Their classes, ``[images]`` and ``[times, images]``; −1 when nothing reads them.
    correlation
        Of the two images, ``[times, images]``.
    shown
        A few of them, ``[1 + times, shown, c, h, w]``, those before first.
    """

    times: list[int]
    steps: list[int]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    correlation: NDArray[np.float64]
    shown: NDArray[np.float32]


def information_passes(config: ImageConfig) -> int:
    """Images that go through the model, with and without their class."""
    return 2 * config.information_images * config.steps


def information_of(stage: ImageStage) -> Information | Unavailable:
    """What states know of their class along paths that were asked for one."""
    model, config = stage.model, stage.config
    if not model.classes:
        return Unavailable("the model takes no class")
    if isinstance(model.free, Unavailable):
        return model.free
    if config.guidance != 1:
        return Unavailable("with guidance the samples are not those of the classes")
    if not config.information_images:
        return Unavailable("it was switched off (information_images = 0)")
    asked = replace(stage, asked=True)
    chunks = asked.chunks(config.information_images)
    parts = [
        asked.kept(f"information-{number}", partial(_gaps, asked, number, rows))["gaps"]
        for number, rows in enumerate(chunks)
    ]
    times = np.asarray(track_times(model, config.steps)[:-1])
    return Information(times=times, gaps=np.concatenate(parts))


def _gaps(stage: ImageStage, number: int, rows: slice) -> Arrays:
    model, n, K = stage.model, rows.stop - rows.start, stage.config.steps
    start = model.start(n, stage.generator(_INFORMATION, number, 2))
    noise = [stage.generator(_INFORMATION, number, 0)]
    times, gaps = track_times(model, K), np.zeros((n, K))
    for event in stage.marched([Track(lam=1.0, steps=K)], start, stage.labels(rows), noise):
        free = model.predicted(event.before, times[event.done - 1], None)
        apart = (event.prediction.noise - free.noise).double().flatten(1)
        gaps[:, event.done - 1] = apart.square().sum(1).cpu().numpy()
        stage.advance(2 * n)
    return {"gaps": gaps}


def turn_times(stage: ImageStage) -> tuple[list[int], list[int]]:
    """Times that images are noised to, and the steps of the way back from each."""
    last, config = len(stage.model.levels) - 1, stage.config
    places = [last * k / (config.uturn_times + 1) for k in range(1, config.uturn_times + 1)]
    times = sorted({max(1, round(place)) for place in places})
    steps = [min(time, max(1, round(config.steps * time / last))) for time in times]
    return times, steps


def turn_passes(stage: ImageStage) -> int:
    """Images that go through the model on their way back."""
    return min(stage.config.uturn_images, stage.config.images) * sum(turn_times(stage)[1])


def turns_of(stage: ImageStage, finals: NDArray[np.float32]) -> Turns | Unavailable:
    """Noise finished images to several times and bring them back."""
    if isinstance(stage.model.free, Unavailable):
        return Unavailable(f"the way back is without a class: {stage.model.free.reason}")
    if not len(finals):
        return Unavailable("it was switched off (uturn_images = 0)")
    times, steps = turn_times(stage)
    size = stage.config.batch
    parts = [
        stage.kept(
            f"turn-{number}",
            partial(_turned, stage, number, finals[start : start + size], times, steps),
        )
        for number, start in enumerate(range(0, len(finals), size))
    ]
    return Turns(
        times=times,
        steps=steps,
        before=np.concatenate([part["before"] for part in parts]),
        after=np.concatenate([part["after"] for part in parts], 1),
        correlation=np.concatenate([part["correlation"] for part in parts], 1),
        shown=parts[0]["shown"],
    )


def _turned(
    stage: ImageStage, number: int, finals: NDArray[np.float32], times: list[int], steps: list[int]
) -> Arrays:
    model = stage.model
    first = model.start(1, torch.Generator().manual_seed(0))  # for its dtype and device
    x = torch.from_numpy(np.array(finals)).to(first)
    before, shown = model.decoded(x), [_small(model.decoded(x[:_SHOWN]))]
    after, alike = [], []
    for place, (time, count) in enumerate(zip(times, steps, strict=True)):
        drawing = stage.generator(_TURN, number, 2 * place)
        share = model.levels[time] / model.levels[0]
        noise = torch.randn(x.shape, generator=drawing, dtype=x.dtype).to(x.device)
        noised = math.sqrt(share) * x + math.sqrt(1 - share) * noise
        generators = [stage.generator(_TURN, number, 2 * place + 1)]
        tracks = [Track(lam=1.0, steps=count)]
        end = noised
        for event in stage.marched(tracks, noised, None, generators, last=time):
            end = event.after
            stage.advance(len(x))
        after.append(stage.read(end))
        back = model.decoded(end)
        alike.append(_correlations(before, back))
        shown.append(_small(back[:_SHOWN]))
    return {
        "before": stage.read(x),
        "after": np.stack(after),
        "correlation": np.stack(alike),
        "shown": torch.stack(shown).float().cpu().numpy(),
    }


def _correlations(first: Tensor, second: Tensor) -> NDArray[np.float64]:
    """Correlation of each pair of images over their values; NaN for an image of one value."""
    one, two = (x.double().flatten(1) for x in (first, second))
    one, two = (x - x.mean(1, keepdim=True) for x in (one, two))
    size = one.norm(dim=1) * two.norm(dim=1)
    found: NDArray[np.float64] = ((one * two).sum(1) / size).cpu().numpy()
    return found


def _small(images: Tensor) -> Tensor:
    side = max(images.shape[-2:])
    if side <= _SIDE:
        return images
    return F.interpolate(
        images.float(), [round(n * _SIDE / side) for n in images.shape[-2:]], mode="area"
    )
