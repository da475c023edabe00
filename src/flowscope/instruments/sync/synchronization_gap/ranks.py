"""Rank correlation of predicted and measured steps of modes, with a p-value over layers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from flowscope.evidence import mirrored_shifts

__all__ = ["FEWEST_MODES", "layerwise_rank_correlation"]

FEWEST_MODES = 8
"""Modes with both a prediction and a measurement that a correlation needs."""


def layerwise_rank_correlation(rows: pd.DataFrame) -> tuple[float, float]:
    """Rank correlation of predicted and measured steps, and its p-value.

    Modes of one layer, and neighbouring layers, are not independent: the predictions of a layer
    stay together, and layers stay in their order, when they are shifted along depth and its mirror
    image. Permuted layers would reject a true null in a quarter of all cases and more. A shift that
    leaves too few modes counts as one that agrees.
    """
    predicted = rows.pivot(index="layer", columns="mode", values="predicted").to_numpy()
    steps = rows.assign(measured=rows["measured"].where(rows["status"] == "ok"))
    measured = steps.pivot(index="layer", columns="mode", values="measured").to_numpy()
    shifts = mirrored_shifts(len(predicted))
    null = np.array([_rank_correlation(predicted[order], measured) for order in shifts])
    if math.isnan(null[0]):
        return 0.0, 1.0
    agree = np.isnan(null) | (np.abs(null) >= abs(null[0]) - 1e-12)
    return float(null[0]), float(agree.mean())


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    present = np.isfinite(first) & np.isfinite(second)
    if present.sum() < FEWEST_MODES:
        return math.nan
    ranks = [rankdata(values[present]) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])
