"""Forecasts of a flow, bounds and the budget, drawn."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pandas as pd

from flowscope.instruments.audit.spans import shading, spans
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.traces import Style, band, curve, extent
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = [
    "BOUNDS",
    "FORECASTS",
    "VACUOUS",
    "budget",
    "budget_points",
    "forecast",
    "forecast_parts",
    "overlay",
    "with_gaps",
]


FORECASTS: dict[str, Style] = {
    "flow": ("flow, fitted on other prompts", theme.BLUE, "solid"),
    "mean": ("mean step of each layer", theme.ORANGE, "dash"),
    "scaled": ("mean step and a scale per layer", theme.ORANGE, "dot"),
    "lookup": ("lookup by token and position", theme.INK, "dash"),
    "persistence": ("nothing moves (persistence)", theme.VERMILION, "dash"),
    "floor": ("the true coordinates (floor)", theme.GREEN, "dot"),
    "line": ("straight line that knows the end", "#7b8791", "solid"),
}
"""Forecasts that are drawn: their name, colour and dash."""


BOUNDS: dict[str, Style] = {
    "tv": ("measured movement", theme.BLUE, "solid"),
    "first_order": ("movement to first order", theme.GREEN, "dot"),
    "restricted": ("restricted bound", theme.VERMILION, "dash"),
    "budget": ("drift budget", theme.INK, "solid"),
}
"""Columns of the table ``overlay`` that are drawn: their name, colour and dash."""


VACUOUS = 0.99
"""A bound on a total variation that lies above this says nothing."""


_MOST_POINTS = 2000


_GAP = pd.DataFrame({"layer": [math.nan]})


def forecast_parts(source: Source, horizon: str, name: str) -> list[pd.DataFrame]:
    """Rows of one forecast and horizon (``"onward"``, ``"one layer"``), one table per segment."""
    frame = source.rows("adequacy", "layer", "horizon", "forecast", "tv")
    asked = zip(words(frame, "horizon"), words(frame, "forecast"), strict=True)
    own = frame[[pair == (horizon, name) for pair in asked]]
    firsts = column(own, "first_layer")
    parts = [
        own[[other == first for other in firsts]].sort_values("layer", kind="stable")
        for first in sorted({first for first in firsts if math.isfinite(first)})
    ]
    return [part for part in parts if any(map(math.isfinite, column(part, "tv")))]


def forecast(source: Source, horizon: str) -> Picture:
    """Total variation between forecast and model at each layer, segment by segment."""
    source.table("adequacy", "layer", "horizon", "forecast", "tv")
    traces: list[Picture] = []
    for name, style in reversed(FORECASTS.items()):
        parts = forecast_parts(source, horizon, name)
        if name == "flow":
            for part in parts:
                layers, low, high = (column(part, end) for end in ("layer", "low", "high"))
                traces += band(layers, low, high, style[1])
        if parts:
            joined = pd.concat([piece for part in parts for piece in (part, _GAP)][:-1])
            notes = _forecast_notes(joined, style[0])
            traces.append(curve(column(joined, "layer"), column(joined, "tv"), style, notes))
    if not traces:
        raise Missing(f"the table “adequacy” holds no forecast of the horizon “{horizon}”")
    places = [place for trace in traces for place in trace["x"]]
    x = theme.axis("layer", showgrid=False, range=extent(places))
    y = theme.axis("total variation from the model", rangemode="tozero")
    return {"data": traces, "layout": theme.layout(x, y, 340, shapes=shading(spans(source)))}


def _forecast_notes(frame: pd.DataFrame, label: str) -> list[str]:
    parts = ("layer", "tv", "low", "high", "skill", "skill_low", "skill_high", "tokens")
    rows = zip(*(column(frame, part) for part in parts), strict=True)
    return [
        hover(
            [
                f"{label}, layer {layer:g}",
                f"total variation {numeral(tv)} {bounds(low, high)}",
                f"skill over persistence {numeral(skill)} {bounds(worse, better)}",
                f"{numeral(tokens, 6)} tokens",
            ]
        )
        for layer, tv, low, high, skill, worse, better, tokens in rows
    ]


def overlay(source: Source) -> Picture:
    """Movement of each layer beside its first order and two bounds; above .99 a bound is empty."""
    frame = source.table("overlay", "layer", "tv")
    frame = with_gaps(frame.sort_values("layer", kind="stable"))
    layers = column(frame, "layer")
    shares = {
        name: column(frame, f"{name}_informative") if f"{name}_informative" in frame else None
        for name in BOUNDS
    }
    traces = []
    for name, style in reversed(BOUNDS.items()):
        values, told = column(frame, name), shares[name]
        if any(map(math.isfinite, values)):
            notes = [
                hover(
                    [f"{style[0]}, layer {layer:g}", f"median {numeral(value)}"]
                    + ([f"below .99 for {percent(told[k])} of tokens"] if told else [])
                )
                for k, (layer, value) in enumerate(zip(layers, values, strict=True))
            ]
            traces.append(curve(layers, values, style, notes))
    if not traces:
        raise Missing("the table “overlay” holds no number")
    shapes = [*shading(spans(source)), _across(VACUOUS)]
    x = theme.axis("layer", showgrid=False, range=extent(layers))
    y = theme.axis("total variation of one layer", range=[0, _top(traces, 1.06)])
    return {"data": traces, "layout": theme.layout(x, y, 340, shapes=shapes)}


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with an empty one wherever layers are left out between two."""
    layers = column(frame, "layer")
    starts = [k for k in range(1, len(layers)) if layers[k] > layers[k - 1] + 1]
    ends = [0, *starts, len(layers)]
    pieces = [frame.iloc[a:b] for a, b in pairwise(ends)]
    return pd.concat([part for piece in pieces for part in (piece, _GAP)][:-1])


def _across(level: float) -> Picture:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": level,
        "y1": level,
        "line": {"color": theme.MUTED, "width": 1, "dash": "dot"},
    }


def _top(traces: Iterable[Picture], least: float) -> float:
    known: list[float] = [y for trace in traces for y in trace["y"] if math.isfinite(y)]
    return max([least, *(1.06 * y for y in known)])


def budget_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Tokens with an error and a budget, evenly thinned to what a page can draw."""
    pairs = zip(column(frame, "budget"), column(frame, "error"), strict=True)
    kept = frame[[all(map(math.isfinite, pair)) for pair in pairs]]
    return kept.iloc[:: max(1, -(-len(kept) // _MOST_POINTS))]


def budget(source: Source) -> Picture:
    """Worst error of each token's forecast against its budget Ξ, with the diagonal."""
    frame = source.table("budget", "error", "budget")
    points = budget_points(frame)
    if points.empty:
        raise Missing("the table “budget” holds no number")
    allowed, error = column(points, "budget"), column(points, "error")
    prompts = words(points, "prompt")
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": allowed,
        "y": error,
        "marker": {"size": 5, "color": theme.faded(theme.BLUE, 0.4)},
        "hovertext": [
            hover([f"prompt {prompt}", f"budget Ξ {numeral(xi)}", f"worst error {numeral(e)}"])
            for prompt, xi, e in zip(prompts, allowed, error, strict=True)
        ],
        "hoverinfo": "text",
    }
    right, top = 1.05 * max(allowed), 1.05 * max(error)
    end = min(right, top)
    style = ("error = budget", theme.VERMILION, "dash")
    line = curve([0.0, end], [0.0, end], style, [hover(["error = budget"])] * 2)
    x = theme.axis("budget Ξ", range=[0, right or 1])
    y = theme.axis("worst error (total variation)", range=[0, top or 1])
    return {"data": [dots, line], "layout": theme.layout(x, y, 340)}
