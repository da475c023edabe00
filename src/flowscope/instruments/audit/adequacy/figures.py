"""Forecasts of a flow, bounds and the budget, drawn."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.traces import band, curve, depth_axis, level, line, points
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = [
    "BOUNDS",
    "DIAGONAL",
    "FORECASTS",
    "VACUOUS",
    "budget",
    "budget_points",
    "forecast",
    "forecast_parts",
    "overlay",
    "with_gaps",
]


FORECASTS = {
    "flow": Look("flow, fitted on other prompts", theme.BLUE, symbol="circle"),
    "mean": Look("mean step of each layer", theme.ORANGE, "dash"),
    "scaled": Look("mean step and a scale per layer", theme.ORANGE, "dot"),
    "lookup": Look("lookup by token and position", theme.INK, "dash"),
    "persistence": Look("nothing moves (persistence)", theme.VERMILION, "dash"),
    "floor": Look("the true coordinates (floor)", theme.GREEN, "dot"),
    "line": Look("straight line that knows the end", "#7b8791"),
}
"""Forecasts that are drawn, and how."""


BOUNDS = {
    "tv": Look("measured movement", theme.BLUE, symbol="circle"),
    "first_order": Look("movement to first order", theme.GREEN, "dot"),
    "restricted": Look("restricted bound", theme.VERMILION, "dash"),
    "budget": Look("drift budget", theme.INK),
}
"""Columns of the table ``overlay`` that are drawn, and how."""


DIAGONAL = Look("error = budget", theme.VERMILION, "dash")


VACUOUS = 0.99
"""A bound on a total variation that lies above this says nothing."""


_MOST_POINTS = 2000


def _joined(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables one after another, with an empty row between two: no line crosses it."""
    gap = pd.DataFrame({"layer": [math.nan]})
    return pd.concat([piece for part in parts for piece in (part, gap)][:-1])


def forecast_parts(source: Source, horizon: str, name: str) -> list[pd.DataFrame]:
    """Rows of one forecast and horizon (``"onward"``, ``"one layer"``), one table per segment."""
    frame = source.rows("adequacy", "layer", "horizon", "forecast", "tv")
    own = ordered(rows_where(rows_where(frame, "horizon", horizon), "forecast", name), "layer")
    firsts = sorted(set(known(column(own, "first_layer"))))
    parts = [rows_where(own, "first_layer", first) for first in firsts]
    return [part for part in parts if known(column(part, "tv"))]


def forecast(source: Source, horizon: str) -> Picture:
    """Total variation between forecast and model at each layer, segment by segment."""
    source.table("adequacy", "layer", "horizon", "forecast", "tv")
    traces: list[Picture] = []
    for name, look in reversed(FORECASTS.items()):
        parts = forecast_parts(source, horizon, name)
        for part in parts if name == "flow" else ():
            layers, low, high = (column(part, side) for side in ("layer", "low", "high"))
            traces += band(layers, low, high, look.colour)
        if parts:
            traces += line("layer", _joined(parts), ("tv",), look, f"{look.label}, {_SAID[0]}",
                           *_SAID[1:])  # fmt: skip
    if not traces:
        raise Missing(f"the table “adequacy” holds no forecast of the horizon “{horizon}”")
    x = depth_axis([place for trace in traces for place in trace["x"]])
    y = theme.axis("total variation from the model", rangemode="tozero")
    return {"data": traces, "layout": theme.layout(x, y, 340, shapes=shading(spans(source)))}


_SAID = (
    "layer {layer:g}",
    "total variation {tv} {low..high}",
    "skill over persistence {skill} {skill_low..skill_high}",
    "{tokens:6} tokens",
)


def overlay(source: Source) -> Picture:
    """Movement of each layer beside its first order and two bounds; above .99 a bound is empty."""
    frame = with_gaps(ordered(source.table("overlay", "layer", "tv"), "layer"))
    traces = [
        trace
        for name, look in reversed(BOUNDS.items())
        if known(column(frame, name))
        for trace in line("layer", frame, (name,), look, f"{look.label}, layer {{layer:g}}",
                          "median {}", f"?below .99 for {{{name}_informative:%}} of tokens")
    ]  # fmt: skip
    if not traces:
        raise Missing("the table “overlay” holds no number")
    top = max([1.06, *(1.06 * y for trace in traces for y in known(trace["y"]))])
    x = depth_axis(column(frame, "layer"))
    y = theme.axis("total variation of one layer", range=[0, top])
    shapes = [*shading(spans(source)), level(VACUOUS, yref="y")]
    return {"data": traces, "layout": theme.layout(x, y, 340, shapes=shapes)}


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with an empty one wherever layers are left out between two."""
    layers = column(frame, "layer")
    starts = [k for k in range(1, len(layers)) if layers[k] > layers[k - 1] + 1]
    return _joined(frame.iloc[a:b] for a, b in pairwise([0, *starts, len(layers)]))


def budget_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Tokens with an error and a budget, evenly thinned to what a page can draw."""
    pairs = zip(column(frame, "budget"), column(frame, "error"), strict=True)
    kept = frame[[all(map(math.isfinite, pair)) for pair in pairs]]
    return kept.iloc[:: max(1, -(-len(kept) // _MOST_POINTS))]


def budget(source: Source) -> Picture:
    """Worst error of each token's forecast against its budget Ξ, with the diagonal."""
    rows = budget_points(source.table("budget", "error", "budget"))
    if rows.empty:
        raise Missing("the table “budget” holds no number")
    allowed, error = column(rows, "budget"), column(rows, "error")
    said = notes(rows, "prompt {prompt!s}", "budget Ξ {budget}", "worst error {error}")
    token = Look("one token", theme.faded(theme.BLUE, 0.4), symbol="circle")
    dots = points(allowed, error, token, said, size=5, line={"width": 0})
    right, top = 1.05 * max(allowed), 1.05 * max(error)
    ends = [0.0, min(right, top)]
    x = theme.axis("budget Ξ", range=[0, right or 1])
    y = theme.axis("worst error (total variation)", range=[0, top or 1])
    drawn = [dots, curve(ends, ends, DIAGONAL, [DIAGONAL.label] * 2)]
    return {"data": drawn, "layout": theme.layout(x, y, 340)}
