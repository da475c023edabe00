"""Tables of the sampling error and of the family from ODE to SDE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from flowscope.flows.sampling import doubling_slope, marginal_parity
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.rows import Rows, seeded, share_interval
from flowscope.instruments.image.step_sizes.family import OBSERVABLES, FamilyRuns

__all__ = ["family_table", "weak_error_tables"]


_NAMES = {0.0: "ode", 1.0: "sde"}


def weak_error_tables(runs: FamilyRuns, config: ImageConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Differences between K and 2K steps, and their slopes."""
    steps = sorted(set(config.doubling))
    points: Rows = []
    slopes: Rows = []
    for lam, sampler in _NAMES.items():
        for place, observable in enumerate(OBSERVABLES):
            ends = {
                k: runs.observables[runs.place(lam, k), :, place] for k in [*steps, 2 * steps[-1]]
            }
            apart = np.stack([ends[k] - ends[2 * k] for k in steps], 1)
            named = {"sampler": sampler, "observable": observable}
            found = doubling_slope(torch.from_numpy(apart), steps)
            told = zip(steps, found.differences, found.standard_errors, found.lows, found.highs,
                       strict=True)  # fmt: skip
            for k, difference, error, low, high in told:
                points.append(
                    {
                        **named,
                        "steps": k,
                        "difference": difference,
                        "standard_error": error,
                        "low": low,
                        "high": high,
                        "resolved": low * high > 0,
                        "images": found.samples,
                    }
                )
            slopes.append(_slope_row(named, found, steps))
    return pd.DataFrame(points), pd.DataFrame(slopes)


def _slope_row(named: Mapping[str, str], found: Any, steps: Sequence[int]) -> dict[str, Any]:
    """One slope with its interval and range."""
    return {
        **named,
        "slope": found.slope,
        "low": found.low,
        "high": found.high,
        "method": found.method,
        "first": steps[0],
        "last": steps[-1],
        "images": found.samples,
        "status": found.status,
        "because": found.because,
    }


def family_table(runs: FamilyRuns, config: ImageConfig) -> pd.DataFrame:
    """What every member makes at every number of steps, against the finest SDE."""
    finest = runs.place(1.0, runs.tracks[-1].steps)
    counts = torch.from_numpy(np.array(runs.counts))[:, :, None]
    asked = bool((runs.labels >= 0).all() and (runs.read >= 0).all())
    rows: Rows = []
    for place, track in enumerate(runs.tracks[:-1]):
        if track.lam not in (0.0, 1.0, *config.lams):
            continue
        told = share_interval(runs.read[place] == runs.labels) if asked else (math.nan,) * 3
        # Against other noise than its own, so that no member shares more than the start.
        found = marginal_parity(
            counts[place],
            counts[-1],
            counts[finest],
            draws=config.draws,
            generator=seeded(config),
        )
        distances = ("tv", "tv_low", "tv_high", "tv_null", "tv_null_high")
        rows.append(
            {
                "lam": track.lam,
                "steps": track.steps,
                **dict(zip(("accuracy", "accuracy_low", "accuracy_high"), told, strict=True)),
                **{name: float(getattr(found, name)[0, -1]) for name in distances},
                "images": runs.read.shape[1],
            }
        )
    return pd.DataFrame(rows).sort_values(["steps", "lam"], ignore_index=True)
