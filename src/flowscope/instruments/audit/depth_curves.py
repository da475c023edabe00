"""Curves along depth that several figures share."""

import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.audit.spans import Span, shading, spans
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["CONTROLS"]


CONTROLS = {
    "threshold": ("gate threshold", theme.INK, "solid"),
    "random_weights": ("same architecture, random weights", theme.VERMILION, "dash"),
    "linear_interpolation": ("straight line between the same ends", theme.GREEN, "dot"),
}
"""Reference values of a segment: their name, colour and dash."""


def depth_curve(source: Source, name: str, y: Picture) -> Picture:
    frame = source.table("layers", "layer", name)
    traces = [*depth_band(frame, name, theme.BLUE), depth_line(frame, name, theme.BLUE)]
    return {"data": traces, "layout": along_depth(y, spans(source), 300)}


def along_depth(
    y: Picture, stretches: Sequence[Span], height: int, *, labels: bool = False, **more: float
) -> Picture:
    x = theme.axis("layer", showgrid=False, rangemode="tozero")
    marks = [_label(span) for span in stretches if labels and span.last - span.first >= 3]
    return theme.layout(x, y, height, shapes=shading(stretches), annotations=marks, **more)


def _label(span: Span) -> Picture:
    return {
        "x": (span.first + span.last) / 2,
        "y": 1,
        "xref": "x",
        "yref": "paper",
        "yanchor": "top",
        "text": f"{span.first}–{span.last} " + ("passes" if span.passes else "abstained"),
        "showarrow": False,
        "font": {"size": 12, "color": theme.MUTED},
    }


def depth_band(
    frame: pd.DataFrame, name: str, colour: str, *, floor: bool = False
) -> list[Picture]:
    rows = zip(
        *(column(frame, part) for part in ("layer", f"{name}_low", f"{name}_high")), strict=True
    )
    kept = [row for row in rows if not any(map(math.isnan, row)) and (row[1] > 0 or not floor)]
    if not kept:
        return []
    layers, low, high = zip(*kept, strict=True)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*layers, *reversed(layers)],
            "y": [*high, *reversed(low)],
            "fill": "toself",
            "fillcolor": theme.faded(colour, 0.22),
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]


def depth_line(frame: pd.DataFrame, name: str, colour: str) -> Picture:
    parts = (name, f"{name}_low", f"{name}_high")
    layers, states = column(frame, "layer"), words(frame, "status")
    values, low, high = (column(frame, part) for part in parts)
    texts = []
    for k, layer in enumerate(layers):
        lines = [f"layer {layer:g}" if layer else "embedding (layer 0)"]
        lines += [f"{name.replace('_', ' ')} {numeral(values[k])} {bounds(low[k], high[k])}"]
        texts.append(hover(lines + (["abstained here"] if states[k] == "abstained" else [])))
    grey = [state == "abstained" for state in states]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": layers,
        "y": values,
        "line": {"color": colour, "width": 1.6},
        "marker": {
            "size": 7,
            "color": ["#ffffff" if abstained else colour for abstained in grey],
            "line": {"width": 1.6, "color": ["#7b8791" if a else colour for a in grey]},
        },
        "hovertext": texts,
        "hoverinfo": "text",
    }


def log_range(traces: Sequence[Picture]) -> list[float]:
    logs = [math.log10(v) for trace in traces for v in trace["y"] if 0 < v < math.inf]
    low, high = (min(logs), max(logs)) if logs else (-2.0, 0.0)
    room = 0.08 * max(high - low, 0.5)
    return [low - room, high + 2 * room]  # the names of the segments stand at the top
