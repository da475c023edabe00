"""Curves, bands and dots of a plotly figure, as plain data."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn
from flowscope.report.drawing.notes import notes
from flowscope.report.source import column
from flowscope.report.theme import Picture

__all__ = [
    "band",
    "compact",
    "curve",
    "depth_axis",
    "dots",
    "ends",
    "label",
    "level",
    "line",
    "points",
    "stretch",
    "upright",
    "whiskers",
]


def ends(name: str) -> tuple[str, str, str]:
    """Column of a value and those of the ends of its interval.

    Examples
    --------
    >>> ends("rate")
    ('rate', 'rate_low', 'rate_high')
    """
    return name, f"{name}_low", f"{name}_high"


def line(
    x: str | Sequence[float],
    frame: pd.DataFrame,
    names: Sequence[str],
    look: Drawn,
    *lines: str,
    place: Callable[[float], float] = float,
    opacity: float = 0.22,
    **more: Any,
) -> list[Picture]:
    """Curve of a column of a table, above the band between two others.

    Parameters
    ----------
    x
        Column along the axis, or its values.
    frame
        The table.
    names
        Column of the values; then, for a band, those of its lower and its upper end.
    look
        Colour, dash and mark.
    *lines
        Hover text of a point, see `notes`; without any, the curve is silent.
    place
        Where a value is drawn, for an axis that is not linear.
    opacity
        Opacity of the band.
    **more
        Settings of the curve.
    """
    at = column(frame, x) if isinstance(x, str) else x
    values, *limits = ([place(v) for v in column(frame, name)] for name in names)
    shade = band(at, limits[0], limits[1], look.colour, opacity) if limits else []
    return [*shade, curve(at, values, look, notes(frame, *lines, names=names), **more)]


def dots(
    x: str | Sequence[float],
    frame: pd.DataFrame,
    names: Sequence[str],
    look: Drawn,
    *lines: str,
    filled: Sequence[bool] = (),
    size: float = 10,
) -> Picture:
    """Dots of a column of a table with their intervals; see `line`.

    Parameters
    ----------
    x, frame, names, look, *lines
        As of `line`.
    filled
        Whether each dot is filled; all of them are where this is not said.
    size
        Diameter in pixels.
    """
    at = column(frame, x) if isinstance(x, str) else x
    values, low, high = (column(frame, name) for name in names)
    colours = [look.colour if full else "#ffffff" for full in filled] or look.colour
    drawn = points(at, values, look, notes(frame, *lines, names=names), size=size, color=colours)
    drawn["marker"]["line"]["width"] = 2
    drawn["error_y"] = whiskers(values, low, high, look.colour)
    return drawn


def whiskers(
    values: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, **more: Any
) -> Picture:
    """Error bars from the ends of intervals; a side that is undefined has none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [b - v for v, b in zip(values, high, strict=True)],
        "arrayminus": [v - a for v, a in zip(values, low, strict=True)],
        "color": colour,
        "thickness": 1.6,
        "width": 4,
        **more,
    }


def curve(
    x: Sequence[float], y: Sequence[float], look: Drawn, texts: Sequence[str] = (), **more: Any
) -> Picture:
    """Curve, with marks where its look has one, and a hover text at each point or none."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if look.symbol else "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": look.colour, "width": 1.8, "dash": look.dash},
        "marker": {"size": 6, "color": look.colour, "symbol": look.symbol or "circle"},
        **_hover(texts),
        **more,
    }


def points(
    x: Sequence[float], y: Sequence[float], look: Drawn, texts: Sequence[str], **marker: Any
) -> Picture:
    """Marks without a line."""
    outline = {"width": 1.6, "color": look.colour}
    marker = {"size": 8, "symbol": look.symbol, "color": look.colour, "line": outline, **marker}
    return {"type": "scatter", "mode": "markers", "x": list(x), "y": list(y), "marker": marker,
            **_hover(texts)}  # fmt: skip


def _hover(texts: Sequence[str]) -> Picture:
    return {"hovertext": list(texts), "hoverinfo": "text"} if texts else {"hoverinfo": "skip"}


def band(
    x: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    colour: str,
    opacity: float = 0.22,
) -> list[Picture]:
    """Area between two curves, or nothing where no point has both sides."""
    rows = [row for row in zip(x, low, high, strict=True) if all(map(math.isfinite, row))]
    if not rows:
        return []
    places, lower, upper = zip(*rows, strict=True)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*places, *reversed(places)],
            "y": [*upper, *reversed(lower)],
            "fill": "toself",
            "fillcolor": theme.faded(colour, opacity),
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]


def compact(traces: Sequence[Picture]) -> list[Picture]:
    """Traces with their numbers to four figures, as many as a picture can show.

    Examples
    --------
    >>> compact([{"x": [1.0, 2.0], "y": [0.123456, float("inf")], "yaxis": "y2"}])
    [{'x': [1, 2], 'y': [0.1235, inf], 'yaxis': 'y2'}]
    """
    return [
        {**trace, **{side: list(map(_brief, trace[side])) for side in ("x", "y") if side in trace}}
        for trace in traces
    ]


def _brief(value: float) -> float:
    if not math.isfinite(value):
        return value
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short


def depth_axis(places: Sequence[float], title: str = "layer", **settings: Any) -> Picture:
    """Axis along depth, with room for half a layer at either end."""
    finite = [place for place in places if math.isfinite(place)] or [1.0]
    room = [min(finite) - 0.6, max(finite) + 0.6]
    return theme.axis(title, showgrid=False, range=room, **settings)


def level(y: float, **more: Any) -> Picture:
    """Dotted line from left to right."""
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": _DOTTED,
            **more}  # fmt: skip


def upright(x: float, **more: Any) -> Picture:
    """Dotted line from bottom to top, across all panels."""
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
            "line": _DOTTED, **more}  # fmt: skip


def label(x: float, text: str, **more: Any) -> Picture:
    """Small grey words at the top of the frame, at a place along the axis."""
    return {"x": x, "y": 1, "xref": "x", "yref": "paper", "text": text, "showarrow": False,
            "font": {"size": 12, "color": theme.MUTED}, **more}  # fmt: skip


def stretch(start: float, end: float, **more: Any) -> Picture:
    """Tint behind a part of the axis, across all panels."""
    return {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1,
            "layer": "below", "fillcolor": theme.PASSING, "line": {"width": 0},
            **more}  # fmt: skip


_DOTTED = {"color": theme.MUTED, "width": 1.2, "dash": "dot"}
