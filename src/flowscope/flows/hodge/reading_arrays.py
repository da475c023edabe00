"""Readings of rotation that share their blocks as plain arrays, and back: what a judge needs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flowscope.flows.hodge.estimates import Estimate
from flowscope.flows.hodge.reading import RotationReading

__all__ = ["restored_readings", "stored_readings"]

_ESTIMATES = ("normalised", "represented", "rotation", "gradient")
_ENDS = ("value", "low", "high", "level")
_NUMBERS = ("margin", "energy", "degree", "regressors", "potentials", "n", "groups", "blocks")


def stored_readings(readings: Sequence[RotationReading]) -> dict[str, NDArray[Any]]:
    """Readings as arrays, one row each.

    Parameters
    ----------
    readings
        All with the same blocks and signs.
    """
    arrays: dict[str, NDArray[Any]] = {
        "controls": np.array([one.controls for one in readings]),
        "null": np.stack([one.null.cpu().numpy() for one in readings]),
        "planted": np.array([one.planted for one in readings]),
    }
    for name in _NUMBERS:
        arrays[name] = np.array([getattr(one, name) for one in readings])
    for name in _ESTIMATES:
        parts: list[Estimate] = [getattr(one, name) for one in readings]
        arrays[name] = np.array([[getattr(part, end) for end in _ENDS] for part in parts])
        arrays[f"{name}_blocks"] = np.stack([part.pseudo_values.cpu().numpy() for part in parts])
    return arrays


def restored_readings(arrays: Mapping[str, NDArray[Any]]) -> list[RotationReading]:
    """Readings from arrays that `stored_readings` made.

    Parameters
    ----------
    arrays
        By name; those of earlier versions lack ``planted``.
    """
    return [_reading(arrays, row) for row in range(len(arrays["margin"]))]


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
    if "planted" in arrays:
        fields["planted"] = float(arrays["planted"][row])
    return RotationReading(
        **fields,
        controls=tuple(map(float, arrays["controls"][row])),
        null=torch.from_numpy(np.array(arrays["null"][row], np.float64)),
    )
