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
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.flows.sampling.variance_preserving import log_snr
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.rows import Rows, mixture_value, place_of, seeded
from flowscope.instruments.image.runs import paths_of, stage_of
from flowscope.instruments.image.sampling import track_times
from flowscope.instruments.image.stage import ImageStage, noised_states, states_of
from flowscope.instruments.image.subject import ImageBench
from flowscope.lab.claim import Abstention
from flowscope.probes import Arrays
from flowscope.records import Measurement, Unavailable
from flowscope.replica import class_information, mixture_entropy

__all__ = [
    "Information",
    "information",
    "information_of",
    "information_passes",
    "information_table",
]


_INFORMATION = 3


_FEWEST = 8


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


def information(bench: ImageBench) -> None:
    """Measure what a state knows of its class at each time."""
    config, model = bench.config, bench.subject.model
    counter = bench.counter("information", information_passes(config))
    reading = information_of(stage_of(bench, counter), paths_of(bench).finals)
    counter.finish()
    if isinstance(reading, Unavailable):
        raise Abstention(reading.reason)
    table, excess = information_table(reading, model, config)
    bench.put("information", table)
    for name, value in excess.items():
        bench.note(_excess(name, value, len(reading.gaps), config))


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
    parts = stage.shards.family(
        {
            f"information-{number}": partial(
                _informed, stage, number, start, finals[start : start + config.batch]
            )
            for number, start in enumerate(range(0, len(finals), config.batch))
        }
    )
    times = np.asarray(track_times(model, config.steps)[:-1])
    errors, gaps = (np.concatenate([part[name] for part in parts]) for name in ("errors", "gaps"))
    return Information(times=times, errors=errors, gaps=gaps)


def _informed(stage: ImageStage, number: int, first: int, finals: NDArray[np.float32]) -> Arrays:
    model = stage.model
    x = states_of(model, finals)
    labels = stage.labels(slice(first, first + len(x)))
    if labels is None:  # samples that were not asked for a class have the one they are read as
        labels = torch.from_numpy(stage.read(x)).to(x.device)
    times, drawing = (
        track_times(model, stage.config.steps)[:-1],
        stage.generator(_INFORMATION, number),
    )
    errors, gaps = np.zeros((2, len(x), len(times)))
    for place, time in enumerate(times):
        noised = noised_states(model, x, time, drawing)
        # The finished image counts as clean: the little noise it carries is part of the data.
        truth = (noised - math.sqrt(model.levels[time]) * x) / math.sqrt(1 - model.levels[time])
        told = [model.predicted(noised, time, of).noise for of in (None, labels)]
        free, asked = ((truth - one).double().flatten(1).square().sum(1) for one in told)
        errors[:, place] = (free - asked).cpu().numpy()
        gaps[:, place] = (told[0] - told[1]).double().flatten(1).square().sum(1).cpu().numpy()
        stage.advance(2 * len(x))
    return {"errors": errors, "gaps": gaps}


def information_table(
    read: Information, model: ImageModel, config: ImageConfig
) -> tuple[pd.DataFrame, dict[str, float]]:
    """What states know of their class; and how far the whole exceeds what there is to know."""
    snr = [log_snr(model.levels[int(time)]) for time in read.times]
    by = {
        name: class_information(
            torch.tensor(snr, dtype=torch.float64),
            torch.from_numpy(values),
            len(model.classes),
            draws=config.resamples,
            generator=seeded(config),
        )
        for name, values in (("errors", read.errors), ("distances", read.gaps))
    }
    found, apart = by["errors"], by["distances"]
    rows: Rows = []
    for k, time in enumerate(read.times):
        rows.append(
            {
                **place_of(model, k, int(time)),
                "rate": float(found.rate[k]),
                "rate_low": float(found.rate_low[k]),
                "rate_high": float(found.rate_high[k]),
                "entropy": float(found.entropy[k]),
                "low": float(found.low[k]),
                "high": float(found.high[k]),
                "rate_by_distance": float(apart.rate[k]),
                "entropy_by_distance": float(apart.entropy[k]),
                "exact": mixture_value(model, int(time), mixture_entropy),
                "images": len(read.gaps),
            }
        )
    return pd.DataFrame(rows), {name: float(one.excess) for name, one in by.items()}


def _excess(name: str, excess: float, n: int, config: ImageConfig) -> Measurement:
    return Measurement(
        name=f"information beyond the entropy of the classes, by {name}",
        values=np.asarray(excess),
        unit="nat",
        n=n,
        estimator="integral of the rate over log snr, less log of the number of classes",
        dtype="float64",
        seed=config.seed,
    )
