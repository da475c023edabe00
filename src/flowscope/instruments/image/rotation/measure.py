r"""Whether the learned score turns, in principal coordinates of the images.

The true score is a gradient, and so is its mean given some coordinates: $E[P\,\nabla\log p(x)\mid
Px]$ is the score of the law of $Px$. So the learned score is projected, and what turns of it, and
what is wrong with its gradient part, are properties of the model. Noise is isotropic, so that the
principal axes of the images are those of the states at every time.

Near the noise the score is $-x$, for any model: a share of the whole energy would be small there
whatever the model does. So the constant and the isotropic part, a gradient $c - \lambda(x-\bar x)$,
are fitted and taken off, and shares are of the energy beyond it.

States of several steps may be read together, where images are few: with $p_t$ at the times of a
window, $\sum_t p_t\nabla\log p_t / \sum_t p_t = \nabla\log\sum_t p_t$ is a gradient too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import (
    PLANTED,
    RotationReading,
    Settings,
    rotation_presence,
    rotation_reading,
    stored_readings,
)
from flowscope.flows.sampling.variance_preserving import log_snr
from flowscope.flows.score import score_consistency
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.parity.paths import PathRuns, rotation_windows
from flowscope.instruments.image.rotation import LEAST_LOG_SNR
from flowscope.instruments.image.runs import paths_of
from flowscope.instruments.image.sampling import track_times
from flowscope.instruments.image.subject import ImageBench
from flowscope.lab.claim import Abstention
from flowscope.workers import one_thread

__all__ = ["rotation", "rotation_tables"]

_POWERED = 0.84  # standard errors beyond the critical value at which 80 % are found


def rotation(bench: ImageBench) -> None:
    """Measure how much of the learned score turns, in windows of steps."""
    config = bench.config
    counter = bench.counter("rotation", len(rotation_windows(config)))
    table, arrays = rotation_tables(paths_of(bench), bench.subject.model, config, counter.advance)
    counter.finish()
    if not len(table):
        raise Abstention("the measurement is switched off")
    bench.put("rotation", table)
    if arrays:
        bench.put_arrays("rotation", arrays)


def rotation_tables(
    paths: PathRuns,
    model: ImageModel,
    config: ImageConfig,
    advance: Callable[[int], None],
) -> tuple[pd.DataFrame, dict[str, NDArray[Any]]]:
    """Rotation and gradient-part error in each window, and the arrays that the judge reads."""
    times = track_times(model, config.steps)
    rows: list[dict[str, Any]] = []
    readings: dict[int, RotationReading] = {}
    for window in rotation_windows(config):
        inside = slice(window[0] - 1, window[-1])
        y, s = (
            torch.from_numpy(np.array(x[:, inside], np.float64)).flatten(0, 2)
            for x in (paths.points, paths.scores)
        )
        images = paths.points.shape[2]
        groups = torch.arange(images).repeat(len(y) // images)
        with one_thread():  # many small products, which threads only wait on each other for
            row, reading = _read(y, s, groups, config)
        step = window[len(window) // 2]
        time = times[step]
        here = {"step": step, "time": time, "log_snr": log_snr(model.levels[time])}
        rows.append({**here, "first": window[0], "last": window[-1], **row})
        if reading is not None:
            readings[step] = reading
        advance(1)
    table = pd.DataFrame(rows)
    if not readings:
        return table, {}
    table["p_adjusted"] = table["step"].map(_adjusted(table, readings)).astype(float)
    arrays = {"step": np.array(list(readings)), **stored_readings(list(readings.values()))}
    return table, arrays


def _adjusted(table: pd.DataFrame, readings: Mapping[int, RotationReading]) -> dict[int, float]:
    """The p value of each window that is judged, adjusted for their number."""
    snr = dict(zip(table["step"], table["log_snr"], strict=True))
    judged = [step for step in readings if snr[step] >= LEAST_LOG_SNR]
    if not judged:
        return {}
    there = rotation_presence([readings[step] for step in judged])
    return {judged[k]: p for k, p in zip(there.used, there.layer_p, strict=True)}


def _read(
    y: Tensor, s: Tensor, groups: Tensor, config: ImageConfig
) -> tuple[dict[str, Any], RotationReading | None]:
    sizes = {"rank": y.shape[1], "points": len(y), "images": int(groups.max()) + 1}
    try:
        beyond, plain = _beyond_isotropic(y, s)
        reading = rotation_reading(
            y,
            beyond,
            groups=groups,
            seed=config.seed,
            degree=config.rotation_degree,
            settings=Settings(splits=4, draws=config.resamples),
        )
        total = plain + max(reading.represented.value * reading.energy, 0.0)
        error = _gradient_error(y, s, groups, total, config)
    except InvalidInputError as problem:
        empty = dict.fromkeys(_NUMBERS, math.nan)
        words = {"interval_method": "", "status": "abstained", "because": str(problem)}
        return {**empty, **sizes, **words}, None
    return {**_row(reading, total), **error, **sizes}, reading


def _beyond_isotropic(y: Tensor, s: Tensor) -> tuple[Tensor, float]:
    """The score without its constant and isotropic part, and the energy of that part."""
    centred, mean = y - y.mean(0), s.mean(0)
    slope = (s * centred).sum() / centred.square().sum().clamp_min(1e-300)
    part = mean + slope * centred
    beyond = s - part
    rounding = 1e-12 * float(s.square().sum(1).mean())
    if float(beyond.square().sum(1).mean()) <= rounding:
        raise InvalidInputError(
            "the score is a constant and a multiple of the state: nothing is left that could turn."
        )
    return beyond, float(part.square().sum(1).mean())


_NUMBERS = ("normalised", "low", "high", "energy", "total", "beyond", "represented", "p_value",
            "gradient_control", "planted_control", "planted_share", "detectable", "degree",
            "gradient_error", "gradient_error_low", "gradient_error_high")  # fmt: skip


def _row(reading: RotationReading, total: float) -> dict[str, Any]:
    share = reading.normalised
    signal = reading.represented.value * reading.energy
    spread = float(reading.null.std())
    reach = float(torch.quantile(reading.null, 0.95)) + _POWERED * spread
    return {
        "normalised": share.value,
        "low": share.low,
        "high": share.high,
        "interval_method": f"t over {reading.blocks} blocks of images",
        "energy": reading.rotation.value * reading.energy,
        "total": total,
        "beyond": signal / total if total > 0 else math.nan,
        "represented": reading.represented.value,
        "p_value": rotation_presence([reading]).p,
        "gradient_control": reading.control,
        "planted_control": reading.planted,
        "planted_share": PLANTED,
        "detectable": reading.margin - reading.control + reach,
        "degree": reading.degree,
        "status": "ok",
        "because": "",
    }


def _gradient_error(
    y: Tensor, s: Tensor, groups: Tensor, total: float, config: ImageConfig
) -> dict[str, float]:
    """The part of the score's error that moves marginals, as a share of the score's energy."""
    found = score_consistency(
        y,
        s,
        groups=groups,
        draws=config.resamples,
        generator=torch.Generator().manual_seed(config.seed),
    )
    names = ("gradient_error", "gradient_error_low", "gradient_error_high")
    if found.status != "ok" or not total > 0:
        return dict.fromkeys(names, math.nan)
    return dict(zip(names, (x / total for x in (found.energy, found.low, found.high)),
                    strict=True))  # fmt: skip
