"""Readings of networks with shuffled weights, beside that of the model: arrays and a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.probes import Arrays
from flowscope.replica import mean_gap
from flowscope.replica.layer_mean import LayerGaps

__all__ = ["layer_gaps", "twin_arrays", "twin_gaps", "twin_table"]

_PARTS = ("observed", "draws", "left_out")


def twin_arrays(model: Arrays, twins: Sequence[Arrays]) -> Arrays:
    """Arrays of the twins that have the layers of the model, ``[twins, layers, …]`` each."""
    same = [twin for twin in twins if np.array_equal(twin["layer"], model["layer"])]
    if not same or not len(model["layer"]):
        return {}
    return {f"twin_{part}": np.stack([twin[part] for twin in same]) for part in _PARTS}


def layer_gaps(arrays: Mapping[str, NDArray[Any]]) -> LayerGaps:
    """Reading of the model from the arrays of a run."""
    return LayerGaps(**{part: np.asarray(arrays[part]) for part in _PARTS})


def twin_gaps(arrays: Mapping[str, NDArray[Any]]) -> list[LayerGaps]:
    """Readings of the twins from the arrays of a run; empty where it has none."""
    if "twin_observed" not in arrays:
        return []
    parts = [np.asarray(arrays[f"twin_{part}"]) for part in _PARTS]
    return [
        LayerGaps(observed=observed, draws=draws, left_out=left_out)
        for observed, draws, left_out in zip(*parts, strict=True)
    ]


def twin_table(model: Arrays, twins: Sequence[Arrays], because: str) -> pd.DataFrame:
    """Mean log ratio of the model (network 0) and of each twin beyond exchange and latents."""
    rows = []
    for number, arrays in enumerate([model, *twins]):
        row = {"network": number, "value": math.nan, "low": math.nan, "high": math.nan}
        reason = because if number else ""
        if len(arrays["layer"]) > 1 and arrays["layer"][0] == 0:
            gap = mean_gap(arrays["observed"], arrays["draws"], arrays["left_out"])
            row |= {"value": gap.value, "low": gap.interval[0], "high": gap.interval[1]}
        else:
            reason = "too few modes"
        rows.append(row | {"because": reason})
    if because:
        absent = {"network": 1, "value": math.nan, "low": math.nan, "high": math.nan}
        rows.append(absent | {"because": because})
    return pd.DataFrame(rows)
