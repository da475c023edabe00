"""Noise finished images to a time, denoise them again, and compare the two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.flows.sampling.variance_preserving import log_snr
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.rows import Rows, mean_interval, mixture_value, share_interval
from flowscope.instruments.image.runs import paths_of, stage_of
from flowscope.instruments.image.sampling import Track
from flowscope.instruments.image.stage import ImageStage, noised_states, states_of
from flowscope.instruments.image.subject import ImageBench
from flowscope.lab.claim import Abstention
from flowscope.probes import Arrays
from flowscope.records import Unavailable
from flowscope.replica import mixture_u_turn

__all__ = ["Turns", "turn_passes", "turn_times", "turns_of", "uturn", "uturn_table"]


_TURN = 4


_SHOWN = 8


_SIDE = 64  # images of the strip are shown no larger


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


def uturn(bench: ImageBench) -> None:
    """Noise finished images to a time, denoise them again, and compare the two."""
    model = bench.subject.model
    counter = bench.counter("u-turns")
    stage = stage_of(bench, counter)
    counter.total = max(1, turn_passes(stage))
    turns = turns_of(stage, paths_of(bench).finals)
    counter.finish()
    if isinstance(turns, Unavailable):
        raise Abstention(turns.reason)
    bench.put("uturn", uturn_table(turns, model))
    times = [0, *turns.times]
    strip = {
        "images": turns.shown,
        "time": np.asarray(times),
        "log_snr": np.asarray([_log_snr(model, time) for time in times]),
    }
    bench.put_arrays("uturn_strip", strip)


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
    parts = stage.shards.family(
        {
            f"turn-{number}": partial(
                _turned, stage, number, finals[start : start + size], times, steps
            )
            for number, start in enumerate(range(0, len(finals), size))
        }
    )
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
    x = states_of(model, finals)
    before, shown = model.decoded(x), [_small(model.decoded(x[:_SHOWN]))]
    after, alike = [], []
    for place, (time, count) in enumerate(zip(times, steps, strict=True)):
        drawing = stage.generator(_TURN, number, 2 * place)
        noised = noised_states(model, x, time, drawing)
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


def _chance(before: NDArray[np.int64], after: NDArray[np.int64]) -> float:
    """Share of equal classes when every image is paired with every returned one.

    What is expected of a return that remembers nothing, also where classes were drawn evenly: pairs
    of different images agree less often then.
    """
    return float((before[:, None] == after[None]).mean())


def uturn_table(turns: Turns, model: ImageModel) -> pd.DataFrame:
    """Share of images that come back as what they were, by the time they were noised to."""
    rows: Rows = []
    known = bool((turns.before >= 0).all())
    for k, (time, steps) in enumerate(zip(turns.times, turns.steps, strict=True)):
        same = share_interval(turns.after[k] == turns.before) if known else (math.nan,) * 3
        alike = turns.correlation[k][np.isfinite(turns.correlation[k])]
        correlation = mean_interval(alike) if len(alike) > 1 else (math.nan,) * 3
        rows.append(
            {
                "time": time,
                "log_snr": log_snr(model.levels[time]),
                "steps": steps,
                **dict(zip(("same_class", "low", "high"), same, strict=True)),
                "exact": mixture_value(model, time, mixture_u_turn),
                "chance": _chance(turns.before, turns.after[k]) if known else math.nan,
                "correlation_chance": turns.unrelated,
                "entropy_at_least": -math.log(max(same[0], 1e-12)) if known else math.nan,
                **dict(
                    zip(
                        ("correlation", "correlation_low", "correlation_high"),
                        correlation,
                        strict=True,
                    )
                ),
                "images": len(turns.before),
            }
        )
    return pd.DataFrame(rows)


def _log_snr(model: ImageModel, time: int) -> float:
    level = model.levels[time]
    return float(np.log(level) - np.log1p(-level))
