"""Means with intervals: over seeds where there are several, else over prompts of the one network.

Each seed reads other test examples, so that the spread between seeds holds that of the examples.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of

__all__ = ["summarised", "summary"]

Values = NDArray[np.float64]
_COSINE, _SHARE = (-1.0, 1.0), (0.0, 1.0)
_WITHIN = {
    "fidelity": _COSINE, "correlation": _COSINE, "mean_cosine": _COSINE, "cosine": _COSINE,
    "spectral": _SHARE, "cka": _SHARE, "high_frequency": _SHARE, "accuracy": _SHARE,
    "mse": (0.0, np.inf), "kl": (0.0, np.inf), "kl_matched": (0.0, np.inf), "skill": (-np.inf, 1.0),
    "size": (0.0, np.inf), "distance": (0.0, np.inf),
}  # fmt: skip
"""What a number can be; its interval is cut there."""


def summary(values: Values) -> tuple[Values, Values, Values]:
    """Mean, lower and upper end of each column of ``[seeds, prompts, columns]``.

    >>> mean, low, high = summary(np.ones((1, 8, 2)))
    >>> mean.tolist(), low.tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    if len(values) > 1:
        known = there.sum(1)
        means = filled.sum(1) / np.maximum(known, 1)
        sums, sizes = np.where(known > 0, means, 0.0), (known > 0).astype(float)
    else:
        sums, sizes = filled[0], there[0].astype(float)
    counts = resampled_counts(len(sums), resamples=999, seed=0)
    points, interval = mean_over_prompts(sums, sizes, counts)
    low, high = bounds_of(interval, len(points))
    return points, low, high


def summarised(keys: pd.DataFrame, names: list[str], values: Values) -> pd.DataFrame:
    """Table of means and intervals.

    Parameters
    ----------
    keys
        What names each row.
    names
        Columns.
    values
        Values, ``[seeds, prompts, rows, columns]``.
    """
    seeds, prompts, rows, columns = values.shape
    mean, low, high = (
        part.reshape(rows, columns) for part in summary(values.reshape(seeds, prompts, -1))
    )
    table = keys.reset_index(drop=True)
    for k, name in enumerate(names):
        within = _WITHIN.get(name, (-np.inf, np.inf))
        table[name] = mean[:, k]
        table[f"{name}_low"], table[f"{name}_high"] = (
            np.clip(end[:, k], *within) for end in (low, high)
        )
    table["over"] = "seeds" if seeds > 1 else "prompts"
    table["units"] = seeds if seeds > 1 else prompts
    return table
