"""Traces of a plotly figure, which are plain data, drawn on the axes of matplotlib."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.report import theme
from flowscope.report.escaping import from_plotly
from flowscope.report.theme import Picture

__all__ = ["POINT", "colour", "draw_trace", "handle", "line_style"]

POINT = 0.78
"""Points of matplotlib in a pixel of the page."""

_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^",
            "triangle-down": "v", "hexagon": "h", "x-thin": "x"}  # fmt: skip
_SIZES = {"diamond": 0.76, "square": 0.88}
"""The two programs measure some marks differently: along the side, or across."""

Places = NDArray[np.float64]


def colour(text: str) -> tuple[float, float, float, float]:
    """Colour of plotly (``#rrggbb`` or ``rgba(r,g,b,a)``) as numbers."""
    if not text.startswith("rgba("):
        return to_rgba(text)
    red, green, blue, opacity = map(float, text[len("rgba(") : -1].split(","))
    return red / 255, green / 255, blue / 255, opacity


def line_style(line: Picture, otherwise: str = theme.BLUE) -> dict[str, Any]:
    """Colour, width and dash of a line for matplotlib."""
    return {
        "color": colour(line.get("color", otherwise)),
        "lw": POINT * line.get("width", 2),
        "ls": _DASHES[line.get("dash", "solid")],
    }


def draw_trace(ax: Any, trace: Picture, order: float) -> None:
    """Draw a trace; of two traces the one with the larger ``order`` lies in front.

    Raises
    ------
    InvalidInputError
        The trace is of a type that this back end cannot draw; the message names the type.
    """
    kind = trace.get("type", "scatter")
    if kind not in _KINDS:
        raise InvalidInputError(
            f"The matplotlib back end draws traces of the types {', '.join(_KINDS)}; this figure "
            f"has one of the type {kind!r}. Use plotly for this figure."
        )
    _KINDS[kind](ax, trace, order)


def _scatter(ax: Any, trace: Picture, order: float) -> None:
    x, y = _places(trace)
    mode, line = trace.get("mode", "lines"), trace.get("line", {})
    if trace.get("fill") == "toself":
        ax.fill(x, y, facecolor=colour(trace["fillcolor"]), lw=0, zorder=order)
    elif trace.get("fill") == "tozeroy":
        ax.fill_between(x, 0, y, facecolor=colour(trace["fillcolor"]), lw=0, zorder=order)
    if "lines" in mode and line.get("width", 2) > 0:
        ax.plot(x, y, zorder=order, **line_style(line, _marker_colour(trace)))
    for side in "xy":
        if f"error_{side}" in trace:
            _whiskers(ax, (x, y), side, trace[f"error_{side}"], order)
    if "markers" in mode:
        _markers(ax, (x, y), trace, order + 0.001)


def _places(trace: Picture) -> tuple[Places, Places]:
    y = _numbers(trace["y"])
    if "x" not in trace:
        return trace.get("x0", 0) + trace.get("dx", 1) * np.arange(len(y)), y
    return _numbers(trace["x"]), y


def _numbers(values: Sequence[Any]) -> Places:
    return np.array([math.nan if value is None else float(value) for value in values])


def _marker_colour(trace: Picture) -> str:
    given = trace.get("marker", {}).get("color", theme.BLUE)
    return given if isinstance(given, str) else theme.BLUE


def _whiskers(
    ax: Any, places: tuple[Places, Places], side: str, error: Picture, order: float
) -> None:
    """Draw intervals; one without a finite size is left out."""
    size = len(places[0])
    arms = [np.maximum(_numbers(error[name])[:size], 0) for name in ("arrayminus", "array")]
    if size:
        ax.errorbar(*places, **{f"{side}err": arms}, fmt="none", ecolor=colour(error["color"]),
                    elinewidth=POINT * error.get("thickness", 2), capthick=POINT,
                    capsize=POINT * error.get("width", 4) / 2, zorder=order)  # fmt: skip


def _markers(ax: Any, places: tuple[Places, Places], trace: Picture, order: float) -> None:
    """Draw marks; those of one symbol are one collection."""
    x, y = places
    marker, size = trace.get("marker", {}), len(x)
    fill = marker.get("color", trace.get("line", {}).get("color", theme.BLUE))
    faces = _each(fill, size)
    edges = _each(marker.get("line", {}).get("color", fill), size)
    symbols = _each(marker.get("symbol", "circle"), size)
    for symbol in dict.fromkeys(symbols):
        rows = [k for k in range(size) if symbols[k] == symbol]
        mark, width, edge, hollow = _mark(marker, symbol)
        rims = [colour(edges[k]) for k in rows]
        paint: dict[str, Any] = {"facecolors": [colour(faces[k]) for k in rows], "edgecolors": rims}
        if hollow:
            paint["facecolors"] = "none"
        if mark == "x":
            paint = {"color": rims}
        ax.scatter(x[rows], y[rows], s=width**2, marker=mark, linewidths=edge, zorder=order,
                   **paint)  # fmt: skip


def _mark(marker: Picture, symbol: str) -> tuple[str, float, float, bool]:
    """Mark of matplotlib, its size, the width of its edge, and whether it is hollow."""
    base = symbol.removesuffix("-open")
    hollow = base != symbol
    edge = marker.get("line", {}).get("width", 1.4 if hollow else 0)
    size = POINT * marker.get("size", 6) * _SIZES.get(base, 1.0)
    return _MARKERS[base], size, POINT * edge, hollow


def _each(value: Any, size: int) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value] * size


def _bar(ax: Any, trace: Picture, order: float) -> None:
    x, y = _places(trace)
    steps = [b - a for a, b in pairwise(sorted(set(x.tolist())))]
    ax.bar(x, y, width=0.85 * min(steps, default=1.0), zorder=order,
           color=colour(_marker_colour(trace)))  # fmt: skip


def _heatmap(ax: Any, trace: Picture, order: float) -> None:
    cells = np.ma.masked_invalid([_numbers(row) for row in trace["z"]])
    scale = LinearSegmentedColormap.from_list("picture", [(p, c) for p, c in trace["colorscale"]])
    rims = {"edgecolors": "white", "linewidth": 0.5} if trace.get("xgap") else {}
    mesh = ax.pcolormesh(_edges(trace["x"]), _edges(trace["y"]), cells, cmap=scale,
                         vmin=trace.get("zmin"), vmax=trace.get("zmax"), zorder=order,
                         **rims)  # fmt: skip
    settings = trace.get("colorbar", {})
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color="#aab4bd", labelcolor=theme.MUTED, labelsize=9)
    if "tickvals" in settings:
        bar.set_ticks(settings["tickvals"], labels=list(map(from_plotly, settings["ticktext"])))
    elif "%" in settings.get("tickformat", ""):
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    title = from_plotly(settings.get("title", {}).get("text", ""))
    bar.set_label(title, color=theme.MUTED, parse_math=False)


def _edges(centres: Sequence[float]) -> Places:
    """Borders of cells around their centres; the outer ones lie as far out as those inside."""
    places = _numbers(centres)
    middle = (places[1:] + places[:-1]) / 2
    first = middle[0] - places[0] if len(middle) else 0.5
    last = places[-1] - middle[-1] if len(middle) else 0.5
    return np.concatenate([[places[0] - first], middle, [places[-1] + last]])


_KINDS: dict[str, Callable[[Any, Picture, float], None]] = {
    "scatter": _scatter,
    "bar": _bar,
    "heatmap": _heatmap,
}


def handle(trace: Picture) -> Any:
    """Entry of a legend for a trace: a patch for an area, else a line, a mark or both."""
    label, line = from_plotly(trace["name"]), trace.get("line", {})
    if trace.get("fill"):
        fill = colour(trace["fillcolor"])
        rim = colour(line["color"]) if "color" in line else fill
        return Patch(facecolor=fill, edgecolor=rim, lw=0.6, label=label)
    mode, marker = trace.get("mode", "lines"), trace.get("marker", {})
    style: dict[str, Any] = {"ls": "none"}
    if "lines" in mode:
        style = line_style(line, _marker_colour(trace))
    if "markers" in mode:
        mark, size, edge, hollow = _mark(marker, marker.get("symbol", "circle"))
        fill = colour(_marker_colour(trace))
        style |= {"marker": mark, "ms": size, "mew": edge, "mec": fill}
        style["mfc"] = "none" if hollow else fill
    return Line2D([], [], label=label, **style)
