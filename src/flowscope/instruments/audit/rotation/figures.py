"""Figure of the rotation: how much of the motion at each layer turns, beside its two controls."""

import math

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.traces import extent, whiskers
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HALF", "OFFSET", "rotation", "rotation_rows"]

HALF, OFFSET = 0.5, 0.22


def rotation_rows(source: Source) -> pd.DataFrame:
    """Layers where rotation was measured, in order."""
    frame = source.table("rotation", "layer", "normalised")
    read = zip(words(frame, "status"), column(frame, "normalised"), strict=True)
    kept = frame[[state != "abstained" and math.isfinite(value) for state, value in read]]
    if kept.empty:
        reasons = [reason for reason in words(frame, "because") if reason]
        raise Missing(
            f"rotation could be measured at no layer: {reasons[0]}"
            if reasons
            else "the column normalised of the table “rotation” holds no number"
        )
    return kept.sort_values("layer", kind="stable")


def rotation(source: Source) -> Picture:
    """Share of the motion that turns at each layer, with interval, controls and one half."""
    frame = rotation_rows(source)
    layers = column(frame, "layer")
    traces = [_control(frame, name) for name in CONTROLS] + [_shares(frame)]
    drawn = [v for n in ("normalised", "low", "high", *CONTROLS) for v in column(frame, n)]
    known = [v for v in drawn if math.isfinite(v)]
    low, high = min([0.0, *known]), max([1.0, *known])
    x = theme.axis("layer", showgrid=False, range=extent(layers))
    y = theme.axis("share of the motion that turns", range=[low - 0.04, high + 0.04])
    half = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": HALF,
        "y1": HALF,
        "line": {"color": theme.INK, "width": 1.4, "dash": "dash"},
    }
    shapes = [*shading(spans(source)), half]
    return {"data": traces, "layout": theme.layout(x, y, 380, shapes=shapes)}


def _shares(frame: pd.DataFrame) -> Picture:
    layers, values, low, high = (
        column(frame, part) for part in ("layer", "normalised", "low", "high")
    )
    look = (theme.BLUE, detected(frame))
    return whiskers(layers, values, (low, high), look, _notes(frame))


def _notes(frame: pd.DataFrame) -> list[str]:
    parts = ("layer", "normalised", "low", "high", "p_value", "tokens", *CONTROLS)
    reasons = words(frame, "because")
    notes = []
    for k, row in enumerate(zip(*(column(frame, part) for part in parts), strict=True)):
        layer, value, low, high, p, tokens, gradient, planted = row
        lines = [
            f"layer {layer:g}",
            f"share that turns {numeral(value)} {bounds(low, high)}",
            f"p against no rotation {numeral(p)}",
            f"gradient field {numeral(gradient)}, with rotation planted {numeral(planted)}",
            f"{numeral(tokens, 6)} tokens",
        ]
        notes.append(hover(lines + ([reasons[k]] if reasons[k] else [])))
    return notes


def _control(frame: pd.DataFrame, name: str) -> Picture:
    label, colour, symbol, side = CONTROLS[name]
    layers, values = column(frame, "layer"), column(frame, name)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [layer + side * OFFSET for layer in layers],
        "y": values,
        "marker": {
            "size": 8,
            "symbol": symbol,
            "color": colour,
            "line": {"width": 1.6, "color": colour},
        },
        "hovertext": [
            hover([f"{label}, layer {layer:g}", numeral(value)])
            for layer, value in zip(layers, values, strict=True)
        ],
        "hoverinfo": "text",
    }
