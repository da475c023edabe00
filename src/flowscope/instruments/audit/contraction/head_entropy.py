"""Attention entropy of every head, with its interval."""

import numpy as np
import pandas as pd

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.probes import Arrays
from flowscope.records import Interval

__all__ = ["COLLAPSED", "head_table"]


COLLAPSED = 0.05
"""Share of the largest entropy below which a head counts as collapsed."""


def head_table(
    heads: Arrays, fresh: Arrays, *, resamples: int = 200, seed: int = 0
) -> pd.DataFrame:
    """Entropy share of every head with its interval, beside the same heads with random weights."""
    sums, sizes = heads["head_entropy"], heads["head_rows"]
    prompts, layers, width = sums.shape
    counts = resampled_counts(prompts, resamples=resamples, seed=seed)
    flat = [x.reshape(prompts, -1).astype(np.float64) for x in (sums, sizes)]
    points, interval = mean_over_prompts(flat[0], flat[1], counts)
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), width),
            "head": np.tile(np.arange(width), layers),
            "entropy_share": points,
        }
    )
    table["low"] = table["high"] = np.nan
    table["collapsed"] = False
    if isinstance(interval, Interval):
        table["low"], table["high"] = np.asarray(interval.low), np.asarray(interval.high)
        table["collapsed"] = table["high"] < COLLAPSED
    table["random_weights"] = np.nan
    if fresh:
        total = fresh["head_rows"].sum(0).astype(np.float64)
        table["random_weights"] = (fresh["head_entropy"].sum(0) / np.maximum(total, 1)).ravel()
    return table
