"""Curves and bands of a plotly figure, as plain data."""

import math
from collections.abc import Sequence
from typing import Any

from flowscope.report import theme
from flowscope.report.theme import Picture

__all__ = ["Style", "band", "compact", "curve", "extent", "level", "upright", "whiskers"]

Style = tuple[str, str, str]
"""Name, colour and dash of a curve."""


def curve(
    x: Sequence[float], y: Sequence[float], style: Style, texts: Sequence[str], **more: Any
) -> Picture:
    """Curve with a hover text at each point; markers where the line is solid and blue."""
    _, colour, dash = style
    bold = dash == "solid" and colour == theme.BLUE
    return {
        "type": "scatter",
        "mode": "lines+markers" if bold else "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": 1.8, "dash": dash},
        "marker": {"size": 6, "color": colour},
        "hovertext": list(texts),
        "hoverinfo": "text",
        **more,
    }


def band(
    x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, **more: Any
) -> list[Picture]:
    """Area between two curves, or nothing where no point has both sides."""
    rows = zip(x, low, high, strict=True)
    kept = [row for row in rows if all(map(math.isfinite, row))]
    if not kept:
        return []
    places, lower, upper = zip(*kept, strict=True)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*places, *reversed(places)],
            "y": [*upper, *reversed(lower)],
            "fill": "toself",
            "fillcolor": theme.faded(colour, 0.22),
            "line": {"width": 0},
            "hoverinfo": "skip",
            **more,
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


def extent(places: Sequence[float]) -> list[float]:
    """Range of an axis along depth, with room for half a layer at either end."""
    known = [place for place in places if math.isfinite(place)] or [1.0]
    return [min(known) - 0.6, max(known) + 0.6]


def whiskers(
    x: Sequence[float],
    y: Sequence[float],
    ends: tuple[Sequence[float], Sequence[float]],
    look: tuple[str, Sequence[bool]],
    texts: Sequence[str],
    **more: Any,
) -> Picture:
    """Dots with their intervals; the look is a colour and whether each dot is filled."""
    colour, filled = look
    low, high = ends
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [b - v for v, b in zip(y, high, strict=True)],
            "arrayminus": [v - a for v, a in zip(y, low, strict=True)],
            "color": colour,
            "thickness": 1.6,
            "width": 4,
        },
        "marker": {
            "size": 10,
            "color": [colour if full else "#ffffff" for full in filled],
            "line": {"width": 2, "color": colour},
        },
        "hovertext": list(texts),
        "hoverinfo": "text",
        **more,
    }


def level(y: float, **more: Any) -> Picture:
    """Dotted line from left to right."""
    line = {"color": theme.MUTED, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line,
            **more}  # fmt: skip


def upright(x: float) -> Picture:
    """Dotted line from bottom to top, across all panels."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": theme.MUTED, "width": 1.2, "dash": "dot"},
    }
