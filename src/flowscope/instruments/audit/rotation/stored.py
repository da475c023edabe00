"""Readings of several layers as the arrays of a run folder, and back: what a judge needs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flowscope.flows.hodge import Estimate, RotationReading

__all__ = ["restored", "stored"]

_ESTIMATES = ("normalised", "represented", "rotation", "gradient")
_ENDS = ("value", "low", "high", "level")
_NUMBERS = ("margin", "energy", "degree", "regressors", "potentials", "n", "groups", "blocks")


def stored(layers: Sequence[int], readings: Sequence[RotationReading]) -> dict[str, NDArray[Any]]:
    """Readings as arrays, one row per layer.

    Parameters
    ----------
    layers, readings
        Layers, and the reading of each; all with the same blocks and signs.
    """
    arrays: dict[str, NDArray[Any]] = {
        "layer": np.asarray(layers, np.int64),
        "controls": np.array([one.controls for one in readings]),
        "null": np.stack([one.null.cpu().numpy() for one in readings]),
    }
    for name in _NUMBERS:
        arrays[name] = np.array([getattr(one, name) for one in readings])
    for name in _ESTIMATES:
        parts: list[Estimate] = [getattr(one, name) for one in readings]
        arrays[name] = np.array([[getattr(part, end) for end in _ENDS] for part in parts])
        arrays[f"{name}_blocks"] = np.stack([part.pseudo_values.cpu().numpy() for part in parts])
    return arrays


def restored(arrays: Mapping[str, NDArray[Any]]) -> list[RotationReading]:
    """Readings from arrays that `stored` made.

    Parameters
    ----------
    arrays
        The arrays ``rotation`` of a run.
    """
    return [_reading(arrays, row) for row in range(len(arrays["layer"]))]


def _reading(arrays: Mapping[str, NDArray[Any]], row: int) -> RotationReading:
    # Names are those of the fields; a whole number stays one.
    fields: dict[str, Any] = {name: arrays[name][row].item() for name in _NUMBERS}
    fields |= {
        name: Estimate(
            **dict(zip(_ENDS, map(float, arrays[name][row]), strict=True)),
            pseudo_values=torch.from_numpy(np.array(arrays[f"{name}_blocks"][row], np.float64)),
        )
        for name in _ESTIMATES
    }
    return RotationReading(
        **fields,
        controls=tuple(map(float, arrays["controls"][row])),
        null=torch.from_numpy(np.array(arrays["null"][row], np.float64)),
    )
