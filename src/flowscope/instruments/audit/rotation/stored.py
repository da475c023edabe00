"""Readings of several layers as the arrays of a run folder, and back: what a judge needs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.flows.hodge import RotationReading, restored_readings, stored_readings

__all__ = ["restored", "stored"]


def stored(layers: Sequence[int], readings: Sequence[RotationReading]) -> dict[str, NDArray[Any]]:
    """Readings as arrays, one row per layer.

    Parameters
    ----------
    layers, readings
        Layers, and the reading of each; all with the same blocks and signs.
    """
    return {"layer": np.asarray(layers, np.int64), **stored_readings(readings)}


def restored(arrays: Mapping[str, NDArray[Any]]) -> list[RotationReading]:
    """Readings from arrays that `stored` made.

    Parameters
    ----------
    arrays
        The arrays ``rotation`` of a run.
    """
    return restored_readings(arrays)
