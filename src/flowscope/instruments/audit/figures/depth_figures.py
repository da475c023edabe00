"""Figures along depth: the size of each step, entropy, agreement, locking depth.

Each function takes the tables and returns a plotly figure as plain data, or why there is none.
"""

import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.audit.figures.spans import Span, shading, spans
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["CONTROLS", "agreement", "entropy", "locking_depth", "variation"]

CONTROLS = {
    "threshold": ("gate threshold", theme.INK, "solid"),
    "random_weights": ("same architecture, random weights", theme.VERMILION, "dash"),
    "linear_interpolation": ("straight line between the same ends", theme.GREEN, "dot"),
}
"""Reference values of a segment: their name, colour and dash."""


def variation(source: Source) -> Picture:
    """Relative step of each layer on a logarithmic axis, with segments, jumps and controls."""
    frame = source.table("layers", "layer", "relative_step")
    steps = frame[[layer > 0 for layer in column(frame, "layer")]]
    traces = [*_band(steps, "relative_step", theme.BLUE, floor=True)]
    traces += [_line(steps, "relative_step", theme.BLUE), *_controls(source), *_jumps(source)]
    y = theme.axis("relative step ‖Δz‖² / ‖z‖²", type="log", exponentformat="power", dtick=1)
    y["range"] = _log_range(traces)
    return {"data": traces, "layout": _along_depth(y, spans(source), 400, labels=True)}


def entropy(source: Source) -> Picture:
    """Entropy of the output distribution read at each layer, in nats."""
    return _curve(source, "entropy", theme.axis("entropy (nats)", rangemode="tozero"))


def agreement(source: Source) -> Picture:
    """Share of tokens whose top token at a layer is the one of the output."""
    y = theme.axis("share of tokens", range=[0, 1.03], tickformat=".0%")
    return _curve(source, "agreement", y)


def locking_depth(source: Source) -> Picture:
    """Histogram of the first layer after which the top token never changes."""
    frame = source.table("locking_depth", "layer", "share")
    layers, shares, counts = (column(frame, name) for name in ("layer", "share", "count"))
    texts = [
        hover([f"layer {layer:g}", f"{percent(share)} of tokens", f"{numeral(count, 6)} tokens"])
        for layer, share, count in zip(layers, shares, counts, strict=True)
    ]
    bars = {
        "type": "bar",
        "x": layers,
        "y": shares,
        "marker": {"color": theme.BLUE},
        "hovertext": texts,
        "hoverinfo": "text",
    }
    y = theme.axis("share of tokens", tickformat=".0%", rangemode="tozero")
    return {"data": [bars], "layout": _along_depth(y, [], 300, bargap=0.15)}


def _curve(source: Source, name: str, y: Picture) -> Picture:
    frame = source.table("layers", "layer", name)
    traces = [*_band(frame, name, theme.BLUE), _line(frame, name, theme.BLUE)]
    return {"data": traces, "layout": _along_depth(y, spans(source), 300)}


def _along_depth(
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


def _band(frame: pd.DataFrame, name: str, colour: str, *, floor: bool = False) -> list[Picture]:
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


def _line(frame: pd.DataFrame, name: str, colour: str) -> Picture:
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


def _controls(source: Source) -> list[Picture]:
    frame = source.rows("segments", "first_layer", "last_layer")
    first, last = column(frame, "first_layer"), column(frame, "last_layer")
    traces = []
    for name, (label, colour, dash) in CONTROLS.items():
        for a, b, value in zip(first, last, column(frame, name), strict=True):
            if value > 0 and not math.isnan(a + b):
                traces.append(_reference(a - 0.42, b + 0.42, value, (label, colour, dash)))
    return traces


def _reference(start: float, end: float, value: float, style: tuple[str, str, str]) -> Picture:
    label, colour, dash = style
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [start, (start + end) / 2, end],
        "y": [value] * 3,
        "line": {"color": colour, "width": 1.6, "dash": dash},
        "hovertext": hover([f"{label}: {numeral(value)}"]),
        "hoverinfo": "text",
    }


def _jumps(source: Source) -> list[Picture]:
    frame = source.rows("jumps", "layer", "relative_step")
    if frame.empty:
        return []
    layers, sizes = column(frame, "layer"), column(frame, "relative_step")
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": layers,
            "y": sizes,
            "marker": {"symbol": "diamond", "size": 13, "color": theme.VERMILION},
            "hovertext": [
                hover([f"jump at layer {layer:g}", f"relative step {numeral(size)}"])
                for layer, size in zip(layers, sizes, strict=True)
            ],
            "hoverinfo": "text",
        }
    ]


def _log_range(traces: Sequence[Picture]) -> list[float]:
    logs = [math.log10(v) for trace in traces for v in trace["y"] if 0 < v < math.inf]
    low, high = (min(logs), max(logs)) if logs else (-2.0, 0.0)
    room = 0.08 * max(high - low, 0.5)
    return [low - room, high + 2 * room]  # the names of the segments stand at the top
