r"""Whether the learned score turns, in principal coordinates of the images.

The true score is a gradient, and so is its mean given some coordinates: $E[P\,\nabla\log p(x)\mid
Px]$ is the score of the law of $Px$. So the learned score is projected, and what turns of it, and
what is wrong with its gradient part, are properties of the model. Noise is isotropic, so that the
principal axes of the images are those of the states at every time.

States of several steps may be read together, where images are few: with $p_t$ at the times of a
window, $\sum_t p_t\nabla\log p_t / \sum_t p_t = \nabla\log\sum_t p_t$ is a gradient too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.evidence.joint_intervals import mean_interval
from flowscope.flows.hodge import PLANTED, ControlledRotation, Rotation, controlled_rotation
from flowscope.flows.sampling.variance_preserving import log_snr
from flowscope.flows.score import score_consistency
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.parity.paths import PathRuns, rotation_windows
from flowscope.instruments.image.runs import paths_of
from flowscope.instruments.image.sampling import track_times
from flowscope.instruments.image.subject import ImageBench
from flowscope.lab.claim import Abstention
from flowscope.records import Interval, Unavailable
from flowscope.workers import one_thread

__all__ = ["rotation", "rotation_table"]


def rotation(bench: ImageBench) -> None:
    """Measure how much of the learned score turns, in windows of steps."""
    config = bench.config
    counter = bench.counter("rotation", len(rotation_windows(config)))
    table = rotation_table(paths_of(bench), bench.subject.model, config, counter.advance)
    counter.finish()
    if not len(table):
        raise Abstention("the measurement is switched off")
    bench.put("rotation", table)


def rotation_table(
    paths: PathRuns,
    model: ImageModel,
    config: ImageConfig,
    advance: Callable[[int], None],
) -> pd.DataFrame:
    """Rotation and gradient-part error in each window; interval of the mean share."""
    times = track_times(model, config.steps)
    rows: list[dict[str, Any]] = []
    ok: list[Rotation] = []
    for window in rotation_windows(config):
        inside = slice(window[0] - 1, window[-1])
        y, s = (
            torch.from_numpy(np.array(x[:, inside], np.float64)).flatten(0, 2)
            for x in (paths.points, paths.scores)
        )
        images = paths.points.shape[2]
        groups = torch.arange(images).repeat(len(y) // images)
        with one_thread():  # many small products, which threads only wait on each other for
            row, found = _read(y, s, groups, config)
        step = window[len(window) // 2]
        time = times[step]
        here = {"step": step, "time": time, "log_snr": log_snr(model.levels[time])}
        rows.append({**here, "first": window[0], "last": window[-1], **row})
        if found is not None and found.status == "ok":
            ok.append(found)
        advance(1)
    interval = mean_interval(ok, "images") if ok else Unavailable("no time could be measured")
    return pd.DataFrame(rows).assign(**_mean_columns(interval))


def _mean_columns(interval: Interval | Unavailable) -> dict[str, float | str]:
    """Interval of the mean share over times, or in ``mean_method`` why there is none."""
    names = ("mean_low", "mean_high", "mean_level")
    if isinstance(interval, Unavailable):
        return {**dict.fromkeys(names, math.nan), "mean_method": interval.reason}
    ends = (float(interval.low), float(interval.high), interval.level)
    return {**dict(zip(names, ends, strict=True)), "mean_method": interval.method}


def _read(
    y: Tensor, s: Tensor, groups: Tensor, config: ImageConfig
) -> tuple[dict[str, Any], Rotation | None]:
    sizes = {"rank": y.shape[1], "points": len(y), "images": int(groups.max()) + 1}
    try:
        read = controlled_rotation(
            y,
            s,
            groups=groups,
            diffusion=1.0,
            degree=config.rotation_degree,
            draws=config.resamples,
            seed=config.seed,
        )
        error = _gradient_error(y, s, groups, read.found.total, config)
    except InvalidInputError as problem:
        empty = dict.fromkeys(_NUMBERS, math.nan)
        told = {"interval_method": "", "status": "abstained", "because": str(problem)}
        return {**empty, **sizes, **told}, None
    return {**_row(read), **error, **sizes}, read.found


_NUMBERS = ("normalised", "low", "high", "energy", "energy_low", "energy_high", "total", "p_value",
            "linear", "gradient_control", "planted_control", "planted_share", "degree",
            "gradient_error", "gradient_error_low", "gradient_error_high")  # fmt: skip


def _row(read: ControlledRotation) -> dict[str, Any]:
    found = read.found
    return {
        "normalised": found.normalised,
        "low": found.interval.low,
        "high": found.interval.high,
        "interval_method": found.interval.method,
        "energy": found.energy,
        "energy_low": found.energy_interval.low,
        "energy_high": found.energy_interval.high,
        "total": found.total,
        "p_value": found.p_value,
        "linear": read.linear,
        "gradient_control": read.gradient,
        "planted_control": read.planted,
        "planted_share": PLANTED,
        "degree": found.degree,
        "status": found.status,
        "because": found.because,
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
