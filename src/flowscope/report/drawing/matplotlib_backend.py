"""Pictures of the page drawn by matplotlib.

A picture is a plotly figure as plain data: traces and a layout. The page hands it to a script of
the browser; this module draws the same data with matplotlib, for PNG files and for Python. A pixel
of the page is a hundredth of an inch here, so that both look alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import blended_transform_factory

from flowscope.report import theme
from flowscope.report.drawing.matplotlib_traces import POINT, colour, draw_trace, handle, line_style
from flowscope.report.drawing.panels import PANEL_TITLE, WIDTH, axis_name
from flowscope.report.escaping import from_plotly
from flowscope.report.theme import Picture

__all__ = ["as_matplotlib"]

_INCH = 100
"""Pixels of the page in an inch."""

_TITLE, _KEY_ROW, _SWATCH, _LETTER = 0.25, 0.2, 0.6, 0.068
"""Inches: height of a title and of a row of the key, width of a swatch and of a letter there."""

_ANCHORS = {"top": "top", "bottom": "bottom", "middle": "center", "left": "left",
            "right": "right", "center": "center"}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class _Frame:
    """One pair of axes: their names, their settings, and what matplotlib made of them."""

    names: tuple[str, str]
    settings: tuple[Picture, Picture]
    ax: Any
    lowest: bool


def as_matplotlib(picture: Picture, title: str = "") -> Figure:
    """Figure of matplotlib that shows a picture.

    Parameters
    ----------
    picture
        Traces (scatter, bar or heat map) and layout, as the figures of a page return them.
    title
        Text above the first panel, where the panels have no titles of their own.

    Raises
    ------
    InvalidInputError
        The picture has a trace of another type; the message names the type.
    """
    layout, notes = picture["layout"], picture["layout"].get("annotations", ())
    keys = [trace for trace in picture["data"] if trace.get("showlegend")]
    traces = [trace for trace in picture["data"] if not trace.get("showlegend")]
    width = layout.get("width", WIDTH) / _INCH
    columns, rows = _key_shape([trace["name"] for trace in keys], width)
    height = layout["height"] / _INCH + _TITLE + _KEY_ROW * rows
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    frames = _frames(figure, layout, traces)
    for order, trace in enumerate(traces):
        names = (trace.get("xaxis", "x"), trace.get("yaxis", "y"))
        ax = next(frame.ax for frame in frames if frame.names == names)
        draw_trace(ax, trace, 2 + 0.01 * order)
    for frame in frames:
        _finish(frame)
    _match(frames)
    for shape in layout.get("shapes", ()):
        _shape(frames, shape)
    for note in notes:
        _annotate(frames, note)
    if title and not any(note.get("name") == PANEL_TITLE for note in notes):
        _head(frames[0].ax, title)
    if keys:
        drawn = figure.legend(handles=list(map(handle, keys)), loc="outside lower center",
                              ncols=columns, frameon=False, fontsize=8)  # fmt: skip
        for text in drawn.get_texts():
            text.set_parse_math(False)
    return figure


def _key_shape(labels: Sequence[str], width: float) -> tuple[int, int]:
    """Columns and rows of the key: as many columns as fit."""
    widest = _SWATCH + _LETTER * max(map(len, labels), default=0)
    columns = max(1, min(len(labels), int(width / widest)))
    return columns, -(-len(labels) // columns)


def _domain(axis: Picture) -> tuple[float, float]:
    start, end = axis.get("domain", (0.0, 1.0))
    return float(start), float(end)


def _frames(figure: Figure, layout: Picture, traces: Sequence[Picture]) -> list[_Frame]:
    """Axes of the figure, column by column, from top to bottom in each."""
    used = dict.fromkeys((t.get("xaxis", "x"), t.get("yaxis", "y")) for t in traces)
    pairs = list(used) or [("x", "y")]
    settings = {name: layout.get(axis_name(name), {}) for pair in pairs for name in pair}
    domains = sorted({_domain(settings[x]) for x, _ in pairs})
    grid = figure.add_gridspec(1, len(domains), width_ratios=[b - a for a, b in domains])
    frames: list[_Frame] = []
    for k, place in enumerate(domains):
        column = [pair for pair in pairs if _domain(settings[pair[0]]) == place]
        column.sort(key=lambda pair: -_domain(settings[pair[1]])[0])
        spans = [_domain(settings[y]) for _, y in column]
        inner = grid[0, k].subgridspec(len(column), 1, height_ratios=[b - a for a, b in spans])
        first: Any = None
        for row, names in enumerate(column):
            ax = figure.add_subplot(inner[row, 0], sharex=first)
            first = first or ax
            both = (settings[names[0]], settings[names[1]])
            frame = _Frame(names=names, settings=both, ax=ax, lowest=row == len(column) - 1)
            _prepare(frame)
            frames.append(frame)
    return frames


def _prepare(frame: _Frame) -> None:
    """Give the axes the look of the page and the scales of the picture."""
    ax = frame.ax
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#aab4bd")
    ax.tick_params(which="both", color="#aab4bd", labelcolor=theme.MUTED, labelsize=9)
    ax.set_axisbelow(True)
    for side, axis in enumerate((ax.xaxis, ax.yaxis)):
        settings = frame.settings[side]
        if settings.get("type") == "log":
            (ax.set_xscale, ax.set_yscale)[side]("log")
        if settings.get("showgrid", True):
            axis.grid(True, which="major", color=theme.RULE, lw=0.8)
        if settings.get("ticks") == "":
            axis.set_tick_params(which="both", length=0)
        if not settings.get("visible", True):
            axis.set_visible(False)
            ax.spines[["bottom", "left"][side]].set_visible(False)


def _finish(frame: _Frame) -> None:
    """Set ranges, ticks and titles, after the traces have set the limits."""
    ax = frame.ax
    for side, axis in enumerate((ax.xaxis, ax.yaxis)):
        settings = frame.settings[side]
        limit = (ax.set_xlim, ax.set_ylim)[side]
        log = settings.get("type") == "log"
        if "range" in settings:
            limit(*(10**end if log else end for end in settings["range"]))
        elif settings.get("rangemode") == "tozero" and not log and ax.dataLim.min[side] >= 0:
            limit(0.0, (ax.get_xlim, ax.get_ylim)[side]()[1])
        if settings.get("autorange") == "reversed":
            axis.set_inverted(True)
        whole = any(isinstance(drawn, QuadMesh) for drawn in ax.collections)  # cells have numbers
        _ticks(axis, settings, log=log, whole=whole)
        if side == 0 and not frame.lowest:
            axis.set_tick_params(which="both", labelbottom=False)
        else:
            text = from_plotly(settings.get("title", {}).get("text", ""))
            axis.set_label_text(text, color=theme.MUTED, parse_math=False)


def _ticks(axis: Any, settings: Picture, *, log: bool, whole: bool) -> None:
    if "tickvals" in settings:
        places = settings["tickvals"]
        texts = settings.get("ticktext", [f"{place:g}" for place in places])
        size = 9 * settings.get("tickfont", {}).get("size", 12) / 12
        axis.set_ticks(places, list(map(from_plotly, texts)), parse_math=False, fontsize=size)
        axis.set_ticks([], minor=True)
        return
    if not log:
        most = settings.get("nticks", 9)
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole))
    if "%" in settings.get("tickformat", ""):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))


def _match(frames: Sequence[_Frame]) -> None:
    """Give an axis the limits of the one that it ``matches``: those that hold both."""
    for frame in frames:
        for other in frames:
            if other.names[1] == frame.settings[1].get("matches"):
                ends = (*frame.ax.get_ylim(), *other.ax.get_ylim())
                frame.ax.set_ylim(min(ends), max(ends))
                other.ax.set_ylim(min(ends), max(ends))


def _crossed(frames: Sequence[_Frame], item: Picture) -> list[_Frame]:
    """Frames that a shape or annotation lies in: those of its axes, all of them on paper."""
    wanted = [item.get(f"{side}ref", side) for side in "xy"]
    return [frame for frame in frames
            if all(w in ("paper", name) for w, name in zip(wanted, frame.names, strict=True))
            and all(a <= 1 and b >= 0 for a, b in (_ends(frame, item, side) for side in "xy"))
            ]  # fmt: skip


def _ends(frame: _Frame, item: Picture, side: str) -> tuple[float, float]:
    """Shares of the frame between which an item on paper lies; (0, 1) where it has an axis."""
    if item.get(f"{side}ref", side) != "paper":
        return 0.0, 1.0
    places = [_place(frame, item, key) for key in (f"{side}0", f"{side}1") if key in item]
    return (min(places), max(places)) if places else (0.0, 1.0)


def _place(frame: _Frame, item: Picture, key: str) -> float:
    """Place in the coordinates of the frame: on paper a share of it, else of the axis."""
    if item.get(f"{key[0]}ref", key[0]) != "paper":
        return float(item[key])
    start, end = _domain(frame.settings["xy".index(key[0])])
    return (float(item[key]) - start) / (end - start)


def _coordinates(frame: _Frame, item: Picture) -> Any:
    systems = [frame.ax.transAxes if item.get(f"{side}ref", side) == "paper" else frame.ax.transData
               for side in "xy"]  # fmt: skip
    return blended_transform_factory(*systems)


def _shape(frames: Sequence[_Frame], shape: Picture) -> None:
    """Draw a line or a rectangle in each frame that it crosses; limits stay as they are."""
    for frame in _crossed(frames, shape):
        x0, x1, y0, y1 = (_place(frame, shape, key) for key in ("x0", "x1", "y0", "y1"))
        where = _coordinates(frame, shape)
        if shape["type"] == "line":
            drawn: Any = Line2D([x0, x1], [y0, y1], zorder=1.9, **line_style(shape["line"]))
        else:
            fill = colour(shape["fillcolor"])
            drawn = Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=fill, lw=0, zorder=0.4)
        drawn.set_transform(where)
        frame.ax.add_artist(drawn)  # unlike plot and add_patch, this leaves the limits alone


def _annotate(frames: Sequence[_Frame], note: Picture) -> None:
    text = from_plotly(note["text"])
    if note.get("name") == PANEL_TITLE:
        start = min(frames, key=lambda frame: abs(_domain(frame.settings[0])[0] - note["x"]))
        _head(start.ax, text)
        return
    frame, font = _crossed(frames, note)[0], note.get("font", {})
    frame.ax.annotate(
        text, (_place(frame, note, "x"), _place(frame, note, "y")),
        xycoords=_coordinates(frame, note), textcoords="offset points",
        xytext=(POINT * note.get("xshift", 0), POINT * note.get("yshift", 0)),
        fontsize=POINT * font.get("size", 12), color=colour(font.get("color", theme.INK)),
        ha=_ANCHORS[note.get("xanchor", "center")], va=_ANCHORS[note.get("yanchor", "middle")],
        parse_math=False,
    )  # fmt: skip


def _head(ax: Any, title: str) -> None:
    ax.set_title(title, loc="left", color=theme.INK, fontsize=11, fontweight="bold",
                 parse_math=False)  # fmt: skip
