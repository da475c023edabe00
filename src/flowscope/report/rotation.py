"""The share of a motion that turns: its controls, and where it differs from zero."""

import pandas as pd

from flowscope.report import theme
from flowscope.report.source import column

__all__ = ["CONTROLS", "detected"]

CONTROLS = {
    "gradient_control": ("gradient field (no rotation)", theme.GREEN, "diamond-open", -1),
    "planted_control": ("that field with rotation planted in it", theme.ORANGE, "triangle-up", 1),
}
"""Controls of the table ``rotation``: name, colour, marker, and the side they are drawn on."""

_LEVEL = 0.05


def detected(frame: pd.DataFrame) -> list[bool]:
    """Whether rotation differs from zero in each row (p below .05)."""
    return [p < _LEVEL for p in column(frame, "p_value")]
