"""Figure of the rotation: R_norm of each layer beside gradients, and bounds of the share."""

import math

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import band, depth_axis, dots, ends, level, line
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["GRADIENTS", "HALF", "LEVEL", "detected", "rotation", "rotation_rows"]

HALF, LEVEL = 0.5, 0.05


def rotation_rows(source: Source) -> pd.DataFrame:
    """Layers where rotation was measured, in order."""
    frame = source.table("rotation", "layer", "normalised")
    pairs = zip(words(frame, "status"), column(frame, "normalised"), strict=True)
    rows = frame[[state != "abstained" and math.isfinite(value) for state, value in pairs]]
    if rows.empty:
        reasons = [reason for reason in words(frame, "because") if reason]
        raise Missing(
            f"rotation could be measured at no layer: {reasons[0]}"
            if reasons
            else "the column normalised of the table “rotation” holds no number"
        )
    return rows.sort_values("layer", kind="stable")


def detected(frame: pd.DataFrame) -> list[bool]:
    """Whether each layer rotates more than gradients (adjusted p at most .05)."""
    return [p <= LEVEL for p in column(frame, "p_adjusted")]


_SHARE = Look("R_norm", theme.BLUE, symbol="circle")
GRADIENTS = Look("nine gradients: mean, and their range as a band", theme.GREEN, "dash")
_LEAST = Look("at least", theme.BLUE, symbol="circle")
_MOST = Look("at most", theme.ORANGE, symbol="triangle-up")
_HALF = {"color": theme.INK, "width": 1.4, "dash": "dash"}
_LAYER = "layer {layer:g}"
_SAID = (
    _LAYER,
    "R_norm {}",
    "gradients on the same states {control}",
    "p {p_value}, adjusted for all layers {p_adjusted}",
    "{represented:%} of the motion is represented",
    "{tokens:6} tokens",
    "{because!s}",
)
_CONTROL = ("control", "control_least", "control_most")


def rotation(source: Source) -> Picture:
    """R_norm of each layer with its interval and controls; below, bounds of the whole share."""
    frame = rotation_rows(source)
    controls = line("layer", frame, _CONTROL, GRADIENTS,
                    "nine gradients on the states of layer {layer:g}",
                    "mean {control}, from {control_least} to {control_most}")  # fmt: skip
    names = ("normalised", "low", "high")
    shares = dots("layer", frame, names, _SHARE, *_SAID, filled=detected(frame))
    panels = [
        Panel(title="R_norm", traces=[*controls, shares], axis={"range": _range(frame)}),
        Panel(
            title="share of all motion",
            traces=_amounts(frame),
            shapes=[level(HALF, line=_HALF)],
            axis={"range": [-0.03, 1.03], "nticks": 5},
            share=0.63,
        ),
    ]
    x = depth_axis(column(frame, "layer"))
    return stacked(panels, x, 280, gap=0.12, shapes=shading(spans(source)))


def _range(frame: pd.DataFrame) -> list[float]:
    """Range of R_norm: that of the data, cut where next to nothing is represented."""
    parts = ("normalised", "low", "high", "control_least", "control_most")
    values = [v for part in parts for v in column(frame, part) if math.isfinite(v)]
    low, high = max(min([0.0, *values]), -0.25), min(max([0.1, *values]), 1.1)
    room = 0.05 * (high - low)
    return [low - room, high + room]


def _amounts(frame: pd.DataFrame) -> list[Picture]:
    """Bounds R/E and 1 − G/E with their intervals, and the room between them."""
    G, low, high = (column(frame, name) for name in ends("gradient_share"))
    rest = {"": G, "_low": high, "_high": low}  # what is not a gradient: its ends change places
    frame = frame.assign(**{f"rest{end}": [1 - v for v in side] for end, side in rest.items()})
    layers, least, most = (column(frame, name) for name in ("layer", "rotation_share", "rest"))
    said = "{} of all motion rotates"
    return [
        *band(layers, least, most, theme.MUTED),
        dots("layer", frame, ends("rotation_share"), _LEAST, _LAYER, f"at least {said}", size=9),
        dots("layer", frame, ends("rest"), _MOST, _LAYER, f"at most {said}", size=9),
    ]
