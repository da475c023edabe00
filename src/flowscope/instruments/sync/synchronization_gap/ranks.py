"""Rank correlation of predicted and measured steps of modes, with a p value over layers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["FEWEST_MODES", "layerwise_rank_correlation"]

FEWEST_MODES = 8
"""Modes with both a prediction and a measurement that a correlation needs."""


def layerwise_rank_correlation(rows: pd.DataFrame, draws: int = 999) -> tuple[float, float]:
    """Rank correlation of predicted and measured steps, and its p value.

    Modes of one layer, and neighbouring layers, are not independent: predictions of a layer stay
    together when they are permuted.
    """
    predicted = rows.pivot(index="layer", columns="mode", values="predicted").to_numpy()
    told = rows.assign(measured=rows["measured"].where(rows["status"] == "ok"))
    measured = told.pivot(index="layer", columns="mode", values="measured").to_numpy()
    generator = np.random.default_rng(0)
    orders = [np.arange(len(predicted)), *(generator.permutation(len(predicted))
                                           for _ in range(draws))]  # fmt: skip
    found = np.array([_rank_correlation(predicted[order], measured) for order in orders])
    found = np.nan_to_num(found)
    return float(found[0]), float((np.abs(found) >= abs(found[0]) - 1e-12).mean())


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < FEWEST_MODES:
        return math.nan
    ranks = [rankdata(values[known]) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])
