"""Table of what either sampler moves when its steps are doubled, and of the difference beyond."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch

from flowscope.evidence import simultaneous
from flowscope.flows.sampling import StepBudget, step_budget
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.parity import LEAST_LOG_SNR, LIMIT
from flowscope.instruments.image.parity.paths import PathRuns
from flowscope.instruments.image.rows import place_of, seeded
from flowscope.records import Unavailable

__all__ = ["budget_table", "budget_table_of"]

_NUMBERS = (
    "distance", "noise", "flow_change", "flow_noise", "sde_change", "sde_noise", "budget", "excess",
    "excess_low", "excess_high", "detectable",
)  # fmt: skip
_POWERED = 0.84  # standard errors beyond the limit at which 80 % are found


def budget_table(paths: PathRuns, model: ImageModel, config: ImageConfig) -> pd.DataFrame:
    """Distance of the samplers with twice the steps, step errors and excess, by time.

    All numbers are NaN where the schedule has too few times for twice the steps.
    """
    runs = [torch.from_numpy(np.array(x)) for x in (*paths.counts[:2], *paths.fine)]
    places = pd.DataFrame([place_of(model, k + 1, int(time)) for k, time in enumerate(paths.times)])
    if len(paths.fine):
        found = step_budget(*runs, draws=config.draws, generator=seeded(config))
        table = budget_table_of(found, places, seed=config.seed)
    else:
        table = places.assign(counted=False, **dict.fromkeys(_NUMBERS, math.nan))
    return table.assign(outside=paths.outside.mean(0), images=config.images)


def budget_table_of(found: StepBudget, places: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Distances with joint intervals of the excess over the times that count.

    Parameters
    ----------
    found
        Distances, and pseudo-values of the excess.
    places
        Step, time and log snr of each row.
    seed
        Of the resamples.
    """
    counted = places["log_snr"].to_numpy() >= LEAST_LOG_SNR
    low, high, seen = (np.full(len(places), math.nan) for _ in range(3))
    if counted.any():
        values = found.pseudo_values.cpu().numpy()[:, counted]
        joint = simultaneous(values, seed=seed)
        if not isinstance(joint.joint, Unavailable):
            below = joint.points - np.asarray(joint.joint.low)
            above = np.asarray(joint.joint.high) - joint.points
            at_least, at_most, point = (
                x.cpu().numpy()[counted] for x in (found.at_least, found.at_most, found.excess)
            )
            error = values.std(0, ddof=1) / math.sqrt(len(values))
            low[counted], high[counted] = at_least - below, at_most + above
            seen[counted] = LIMIT + (point - at_least) + below + _POWERED * error
    return places.assign(
        counted=counted,
        distance=found.distance.cpu().numpy(),
        noise=found.noise.cpu().numpy(),
        flow_change=found.flow.cpu().numpy(),
        flow_noise=found.flow_noise.cpu().numpy(),
        sde_change=found.sde.cpu().numpy(),
        sde_noise=found.sde_noise.cpu().numpy(),
        budget=found.budget.cpu().numpy(),
        excess=found.excess.cpu().numpy(),
        excess_low=low,
        excess_high=high,
        detectable=seen,
    )
