"""What rows of several tables share: places in time, means and shares with their intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from flowscope.flows.sampling.variance_preserving import log_snr, unit_clock
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import ImageModel, MixtureModel

__all__ = ["Rows", "mean_interval", "mixture_value", "place_of", "seeded", "share_interval"]


_LEVEL = 0.95


_OVERLAP = 1e-3


Rows = list[dict[str, Any]]


def seeded(config: ImageConfig) -> torch.Generator:
    """Generator of the resamples."""
    return torch.Generator().manual_seed(config.seed)


def place_of(model: ImageModel, step: int, time: int) -> dict[str, Any]:
    """Columns that say where on the path a row was measured."""
    return {"step": step, "time": time, "log_snr": log_snr(model.levels[time])}


def mean_interval(values: NDArray[np.float64], axis: int = 0) -> tuple[Any, Any, Any]:
    """Mean over images with Student's interval."""
    n, mean = values.shape[axis], values.mean(axis)
    half = student.ppf(0.5 + _LEVEL / 2, n - 1) * values.std(axis, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def share_interval(hits: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Share of images with Wilson's interval."""
    n, share, z = len(hits), float(hits.mean()), float(norm.ppf(0.5 + _LEVEL / 2))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return share, middle - half, middle + half


def mixture_value(model: ImageModel, time: int, closed_form: Any) -> float:
    """A closed form of the mixture; NaN for a learned model, and where its arms overlap.

    The closed forms are of the arm that a point belongs to; classes are read by the side it is on.
    """
    if not isinstance(model, MixtureModel) or norm.sf(model.mu / math.sqrt(model.s2)) > _OVERLAP:
        return math.nan
    return float(closed_form(unit_clock(model.levels[time]), model.mu, model.s2))
