r"""When an image decides its class: what a state knows of it, and what noise makes it forget.

*Information.* A finished image is noised to a time, and its noise is predicted with its class and
without. By how much the class lowers the error is the rate at which states learn the class.

*U-turn.* A finished image is noised to a time and brought back without a class. Where it comes back
as the class it was, the state still knew it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.sampling import Track, track_times
from flowscope.instruments.image.stage import ImageStage
from flowscope.probes import Arrays
from flowscope.records import Unavailable

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
_FEWEST = 8
_SIDE = 64  # images of the strip are shown no larger


@dataclass(frozen=True, kw_only=True, eq=False)
class Information:
    """What a class tells a denoiser at each time, ``[images, times]``.

    Attributes
    ----------
    times
        Where, noise first.
    errors
        Squared error of the noise without the class less that with it.
    gaps
        Squared distance of the two predictions.
    """

    times: NDArray[np.int64]
    errors: NDArray[np.float64]
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
    unrelated
        Mean correlation over all pairs of different images before.
    shown
        A few of them, ``[1 + times, shown, c, h, w]``, those before first.
    """

    times: list[int]
    steps: list[int]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    correlation: NDArray[np.float64]
    unrelated: float
    shown: NDArray[np.float32]


def information_passes(config: ImageConfig) -> int:
    """Images that go through the model, with and without their class."""
    return 2 * config.information_images * config.steps


def information_of(stage: ImageStage, finals: NDArray[np.float32]) -> Information | Unavailable:
    """What finished images, noised again, tell of their class."""
    model, config = stage.model, stage.config
    finals = finals[: config.information_images]
    if not model.classes:
        return Unavailable("the model takes no class")
    if isinstance(model.free, Unavailable):
        return model.free
    if config.guidance != 1:
        return Unavailable("with guidance samples do not follow the distribution of their class")
    finals = finals[: len(finals) // len(model.classes) * len(model.classes)]
    if len(finals) < max(_FEWEST, len(model.classes)):
        return Unavailable(
            f"it needs images of every class, as many of each: {len(model.classes)} classes, at "
            f"least {_FEWEST} images (information_images)"
        )
    parts = [
        stage.shards.arrays(
            f"information-{number}",
            partial(_informed, stage, number, start, finals[start : start + config.batch]),
        )
        for number, start in enumerate(range(0, len(finals), config.batch))
    ]
    times = np.asarray(track_times(model, config.steps)[:-1])
    errors, gaps = (np.concatenate([part[name] for part in parts]) for name in ("errors", "gaps"))
    return Information(times=times, errors=errors, gaps=gaps)


def _informed(stage: ImageStage, number: int, first: int, finals: NDArray[np.float32]) -> Arrays:
    model = stage.model
    x = _states(model, finals)
    labels = stage.labels(slice(first, first + len(x)))
    if labels is None:  # samples that were not asked for a class have the one they are read as
        labels = torch.from_numpy(stage.read(x)).to(x.device)
    times, drawing = (
        track_times(model, stage.config.steps)[:-1],
        stage.generator(_INFORMATION, number),
    )
    errors, gaps = np.zeros((2, len(x), len(times)))
    for place, time in enumerate(times):
        noised = _noised(model, x, time, drawing)
        # The finished image counts as clean: the little noise it carries is part of the data.
        truth = (noised - math.sqrt(model.levels[time]) * x) / math.sqrt(1 - model.levels[time])
        told = [model.predicted(noised, time, of).noise for of in (None, labels)]
        free, asked = ((truth - one).double().flatten(1).square().sum(1) for one in told)
        errors[:, place] = (free - asked).cpu().numpy()
        gaps[:, place] = (told[0] - told[1]).double().flatten(1).square().sum(1).cpu().numpy()
        stage.advance(2 * len(x))
    return {"errors": errors, "gaps": gaps}


def _states(model: ImageModel, finals: NDArray[np.float32]) -> Tensor:
    first = model.start(1, torch.Generator().manual_seed(0))  # for its dtype and device
    return torch.from_numpy(np.array(finals)).to(first)


def _noised(model: ImageModel, x: Tensor, time: int, generator: torch.Generator) -> Tensor:
    """States at time 0 brought to another time."""
    share = model.levels[time] / model.levels[0]
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    return math.sqrt(share) * x + math.sqrt(1 - share) * noise


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
    finals = finals[: stage.config.uturn_images]
    if isinstance(stage.model.free, Unavailable):
        return Unavailable(f"denoising is without a class: {stage.model.free.reason}")
    if not len(finals):
        return Unavailable("the measurement is switched off (uturn_images is 0)")
    times, steps = turn_times(stage)
    size = stage.config.batch
    parts = [
        stage.shards.arrays(
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
        unrelated=_unrelated(np.sum([part["directions"] for part in parts], axis=0), len(finals)),
        shown=parts[0]["shown"],
    )


def _turned(
    stage: ImageStage, number: int, finals: NDArray[np.float32], times: list[int], steps: list[int]
) -> Arrays:
    model = stage.model
    x = _states(model, finals)
    before, shown = model.decoded(x), [_small(model.decoded(x[:_SHOWN]))]
    after, alike = [], []
    for place, (time, count) in enumerate(zip(times, steps, strict=True)):
        drawing = stage.generator(_TURN, number, 2 * place)
        noised = _noised(model, x, time, drawing)
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
        "directions": _unit(before).sum(0).cpu().numpy(),
        "shown": torch.stack(shown).float().cpu().numpy(),
    }


def _unit(images: Tensor) -> Tensor:
    """Images as centred vectors of length 1; NaN for an image of one value."""
    x = images.double().flatten(1)
    x = x - x.mean(1, keepdim=True)
    found: Tensor = x / x.norm(dim=1, keepdim=True)
    return found


def _correlations(first: Tensor, second: Tensor) -> NDArray[np.float64]:
    """Correlation of each pair of images over their values."""
    found: NDArray[np.float64] = (_unit(first) * _unit(second)).sum(1).cpu().numpy()
    return found


def _unrelated(total: NDArray[np.float64], n: int) -> float:
    """Mean correlation over all pairs of n different images, from the sum of their directions."""
    return float((total @ total - n) / (n * (n - 1))) if n > 1 else math.nan


def _small(images: Tensor) -> Tensor:
    side = max(images.shape[-2:])
    if side <= _SIDE:
        return images
    return F.interpolate(
        images.float(), [round(n * _SIDE / side) for n in images.shape[-2:]], mode="area"
    )
