"""Tables of the distances between ODE and SDE, and of the steps of their paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from flowscope.flows.sampling import MarginalParity, marginal_parity
from flowscope.flows.sampling.variance_preserving import unit_clock
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel
from flowscope.instruments.image.parity.paths import PathRuns
from flowscope.instruments.image.rows import Rows, mean_interval, place_of, seeded

__all__ = ["parity_of", "parity_table", "path_tables"]


def parity_of(paths: PathRuns, config: ImageConfig) -> MarginalParity:
    """The flow against the SDE, and the SDE against itself."""
    ode, sde, other = (torch.from_numpy(np.array(counts)) for counts in paths.counts)
    return marginal_parity(ode, sde, other, draws=config.draws, generator=seeded(config))


def parity_table(
    found: MarginalParity, paths: PathRuns, model: ImageModel, config: ImageConfig
) -> pd.DataFrame:
    """Distances by step and channel; ``all`` is the mean over channels."""
    columns = [f"{d}{part}" for d in ("tv", "ks")
               for part in ("", "_low", "_high", "_null", "_null_high", "_p")]  # fmt: skip
    rows: Rows = []
    channels = paths.counts.shape[3]
    shown = [channels, *range(channels)] if channels > 1 else [channels]
    for k, time in enumerate(paths.times):
        for c in shown:
            numbers = {name: float(getattr(found, name)[k, c]) for name in columns}
            rows.append(
                {
                    **place_of(model, k + 1, int(time)),
                    "channel": "all" if c == channels else str(c),
                    **numbers,
                    "tv_p_overall": float(found.tv_p_overall),
                    "outside": float(paths.outside[:, k].mean()),
                    "images": config.images,
                    "bins": config.bins,
                }
            )
    return pd.DataFrame(rows)


def path_tables(
    paths: PathRuns, model: ImageModel, config: ImageConfig
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sizes of steps over time, and sums along whole paths."""
    rows: Rows = []
    whole: Rows = []
    start = unit_clock(model.levels[-1])
    for place, sampler in enumerate(("ode", "sde")):
        squares = paths.sizes[place]
        sizes, low, high = mean_interval(np.sqrt(squares))
        for k, time in enumerate(paths.times):
            size = {"size": sizes[k], "low": low[k], "high": high[k]}
            rows.append({"sampler": sampler, **place_of(model, k + 1, int(time)), **size})
        elapsed = start - unit_clock(model.levels[int(paths.times[-1])])
        length = np.sqrt(squares).sum(1)
        told = {
            "variation": length,
            "tortuosity": length / paths.displacement[place],
            "quadratic": squares.sum(1),
        }
        line: dict[str, Any] = {"sampler": sampler}
        for name, values in told.items():
            line[name], line[f"{name}_low"], line[f"{name}_high"] = mean_interval(values)
        line["expected_quadratic"] = 2 * elapsed if sampler == "sde" else 0.0
        whole.append(line | {"images": config.images})
    return pd.DataFrame(rows), pd.DataFrame(whole)
