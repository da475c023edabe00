"""Gradient and rotation of a velocity: the weighted Hodge decomposition, from samples and grids."""

from flowscope.flows.hodge.controls import Control, gradient_null, planted_rotation
from flowscope.flows.hodge.decomposition import rotation
from flowscope.flows.hodge.estimates import Estimate
from flowscope.flows.hodge.gridded import grid_rotation
from flowscope.flows.hodge.outcome import (
    PLANTED,
    Extrapolated,
    Rotation,
    Settings,
    Unmeasured,
)
from flowscope.flows.hodge.presence import (
    REPRESENTED,
    RotationAmount,
    RotationPresence,
    rotation_amount,
    rotation_presence,
)
from flowscope.flows.hodge.reading import MARGIN, RotationReading, rotation_reading
from flowscope.flows.hodge.reading_arrays import restored_readings, stored_readings
from flowscope.flows.hodge.resampling import Bounds, bca_interval

__all__ = [
    "MARGIN",
    "PLANTED",
    "REPRESENTED",
    "Bounds",
    "Control",
    "Estimate",
    "Extrapolated",
    "Rotation",
    "RotationAmount",
    "RotationPresence",
    "RotationReading",
    "Settings",
    "Unmeasured",
    "bca_interval",
    "gradient_null",
    "grid_rotation",
    "planted_rotation",
    "restored_readings",
    "rotation",
    "rotation_amount",
    "rotation_presence",
    "rotation_reading",
    "stored_readings",
]
