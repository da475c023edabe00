"""Figure of the rotation: R_norm of each layer beside gradients, and bounds of the share."""

import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.traces import band, curve, extent, whiskers
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HALF", "LEVEL", "detected", "rotation", "rotation_rows"]

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


def rotation(source: Source) -> Picture:
    """R_norm of each layer with its interval and controls; below, bounds of the whole share."""
    frame = rotation_rows(source)
    layers = column(frame, "layer")
    x = theme.axis("layer", showgrid=False, range=extent(layers), anchor="y2")
    above = theme.axis("R_norm", range=_range(frame), domain=[0.46, 1], nticks=6)
    below = theme.axis("share of all motion", range=[-0.03, 1.03], domain=[0, 0.34], nticks=5)
    half = {
        "type": "line",
        "xref": "paper",
        "yref": "y2",
        "x0": 0,
        "x1": 1,
        "y0": HALF,
        "y1": HALF,
        "line": {"color": theme.INK, "width": 1.4, "dash": "dash"},
    }
    return {
        "data": [*_controls(frame), _shares(frame), *_amounts(frame)],
        "layout": theme.layout(x, above, 520, yaxis2=below, shapes=[*shading(spans(source)), half]),
    }


def _range(frame: pd.DataFrame) -> list[float]:
    """Range of R_norm: that of the data, cut where next to nothing is represented."""
    parts = ("normalised", "low", "high", "control_least", "control_most")
    values = [v for part in parts for v in column(frame, part) if math.isfinite(v)]
    low, high = max(min([0.0, *values]), -0.25), min(max([0.1, *values]), 1.1)
    room = 0.05 * (high - low)
    return [low - room, high + room]


def _shares(frame: pd.DataFrame) -> Picture:
    layers, values, low, high = (
        column(frame, part) for part in ("layer", "normalised", "low", "high")
    )
    look = (theme.BLUE, detected(frame))
    return whiskers(layers, values, (low, high), look, _notes(frame))


def _notes(frame: pd.DataFrame) -> list[str]:
    parts = ("layer", "normalised", "low", "high", "control", "p_value", "p_adjusted", "tokens")
    represented, reasons = column(frame, "represented"), words(frame, "because")
    notes = []
    for k, row in enumerate(zip(*(column(frame, part) for part in parts), strict=True)):
        layer, value, low, high, control, p, adjusted, tokens = row
        lines = [
            f"layer {layer:g}",
            f"R_norm {numeral(value)} {bounds(low, high)}",
            f"gradients on the same states {numeral(control)}",
            f"p {numeral(p)}, adjusted for all layers {numeral(adjusted)}",
            f"{percent(represented[k])} of the motion is represented",
            f"{numeral(tokens, 6)} tokens",
        ]
        notes.append(hover(lines + ([reasons[k]] if reasons[k] else [])))
    return notes


def _controls(frame: pd.DataFrame) -> list[Picture]:
    layers = column(frame, "layer")
    mean, least, most = (
        column(frame, part) for part in ("control", "control_least", "control_most")
    )
    texts = [
        hover(
            [
                f"nine gradients on the states of layer {layer:g}",
                f"mean {numeral(mean[k])}, from {numeral(least[k])} to {numeral(most[k])}",
            ]
        )
        for k, layer in enumerate(layers)
    ]
    style = ("gradients", theme.GREEN, "dash")
    return [*band(layers, least, most, theme.GREEN), curve(layers, mean, style, texts)]


def _amounts(frame: pd.DataFrame) -> list[Picture]:
    """Bounds R/E and 1 − G/E with their intervals, and the room between them."""
    layers = column(frame, "layer")
    R, R_low, R_high, G, G_low, G_high = (
        column(frame, f"{part}_share{end}")
        for part in ("rotation", "gradient")
        for end in ("", "_low", "_high")
    )
    upper, lowest, highest = ([1 - value for value in side] for side in (G, G_high, G_low))
    return [
        *band(layers, R, upper, theme.MUTED, yaxis="y2"),
        _bound(layers, R, (R_low, R_high), (theme.BLUE, "circle", "at least")),
        _bound(layers, upper, (lowest, highest), (theme.ORANGE, "triangle-up", "at most")),
    ]


def _bound(
    layers: Sequence[float],
    values: Sequence[float],
    ends: tuple[Sequence[float], Sequence[float]],
    look: tuple[str, str, str],
) -> Picture:
    colour, symbol, word = look
    texts = [
        hover(
            [f"layer {layer:g}", f"{word} {numeral(value)} {bounds(low, high)} of all motion turns"]
        )
        for layer, value, low, high in zip(layers, values, *ends, strict=True)
    ]
    dots = whiskers(layers, values, ends, (colour, [True] * len(texts)), texts, yaxis="y2")
    return {**dots, "marker": {"size": 9, "symbol": symbol, "color": colour}}
