"""Interval of the mean of several readings of rotation that share their resamples."""

from collections.abc import Sequence

import numpy as np
import torch

from flowscope.flows.hodge import Rotation, bca_interval
from flowscope.records import Interval, Unavailable

__all__ = ["mean_interval"]


def mean_interval(read: Sequence[Rotation], units: str) -> Interval | Unavailable:
    """Interval of the mean share over several readings, from resamples that they share."""
    point = float(np.mean([one.normalised for one in read]))
    draws = torch.stack([one.draws for one in read]).mean(0)
    left_out = torch.stack([one.left_out for one in read]).mean(0)
    if not draws.numel() or not bool(draws.isfinite().all()):
        return Unavailable(read[0].interval.method)
    found = bca_interval(point, draws, left_out)
    if np.isnan(found.low):
        return Unavailable(found.method)
    kind = "BCa" if found.method == "bca" else found.method
    method = f"{kind} over {read[0].blocks} blocks of {units}, {len(draws)} resamples"
    return Interval(low=found.low, high=found.high, level=found.level, method=method)
