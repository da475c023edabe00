"""Panels on top of each other or side by side as one picture, and its key as part of its data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry, swatch_trace
from flowscope.report.drawing.traces import compact
from flowscope.report.escaping import plotly_text
from flowscope.report.theme import Picture

__all__ = [
    "PANEL_TITLE",
    "WIDTH",
    "Panel",
    "axis_name",
    "beside",
    "panel_row",
    "stacked",
    "with_key",
]

WIDTH = 820
"""Width of a picture in pixels, where its layout names none."""

PANEL_TITLE = "panel title"
"""Name of the annotation that is the title of a panel."""

_GAP = 90
"""Pixels between two panels."""


def axis_name(short: str) -> str:
    """Name of an axis in a layout.

    Examples
    --------
    >>> axis_name("x"), axis_name("y3")
    ('xaxis', 'yaxis3')
    """
    return f"{short[0]}axis{short[1:]}"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One of several frames on top of each other: title of its axis, traces, lines behind them."""

    title: str
    traces: Sequence[Picture]
    shapes: Sequence[Picture] = ()
    share: float = 1.0
    axis: Mapping[str, Any] = field(default_factory=dict)


def stacked(
    panels: Sequence[Panel], x: Picture, height: int, *, gap: float = 0.035, **layout: Any
) -> Picture:
    """Panels on top of each other over one axis.

    Parameters
    ----------
    panels
        From top to bottom.
    x
        The axis, below the last panel.
    height
        Height of a panel of share 1 in pixels.
    gap
        Share of the height between two panels.
    **layout
        Settings of the layout; ``shapes`` run through all panels.
    """
    total = sum(panel.share for panel in panels)
    room, top = 1 - gap * (len(panels) - 1), 1.0
    traces: list[Picture] = []
    shapes = list(layout.pop("shapes", ()))
    names = [f"y{k + 1}" if k else "y" for k in range(len(panels))]
    for name, panel in zip(names, panels, strict=True):
        bottom = max(top - room * panel.share / total, 0.0)
        axis = theme.axis(panel.title, nticks=6, domain=[round(bottom, 4), round(top, 4)])
        layout[axis_name(name)] = {**axis, **panel.axis}
        traces += [{**trace, "yaxis": name} for trace in panel.traces]
        shapes += [{**shape, "yref": name} for shape in panel.shapes]
        top = bottom - gap
    below = {**x, "anchor": names[-1]}
    drawn = theme.layout(below, layout.pop("yaxis"), round(height * total) + 64, shapes=shapes)
    return {"data": compact(traces), "layout": {**drawn, **layout}}


def panel_row(draws: Mapping[str, Callable[[Any], Picture]]) -> Callable[[Any], Picture]:
    """Drawing of panels side by side, by their titles; one whose table is missing is left out."""

    def draw(source: Any) -> Picture:
        pictures: dict[str, Picture] = {}
        lacks: list[Missing] = []
        for title, panel in draws.items():
            try:
                pictures[title] = panel(source)
            except Missing as lack:
                lacks.append(lack)
        if not pictures:
            raise lacks[0] if lacks else Missing("the tables of this figure name no series")
        return beside(pictures)

    return draw


def beside(pictures: Mapping[str, Picture]) -> Picture:
    """One picture of several, from left to right, each under its title."""
    panels = len(pictures)
    width = max(WIDTH, panels * (520 if panels < 3 else 400))
    gap = _GAP / width
    share = (1 - gap * (panels - 1)) / panels
    layouts = [picture["layout"] for picture in pictures.values()]
    layout = {key: part for key, part in layouts[0].items() if key[1:5] != "axis"}
    layout |= {"width": width, "height": max(each["height"] for each in layouts), "shapes": [],
               "annotations": [], "margin": {**layout["margin"], "t": 40}}  # fmt: skip
    traces: list[Picture] = []
    used = {"x": 0, "y": 0}
    for k, (title, picture) in enumerate(pictures.items()):
        start = k * (share + gap)
        names = _renamed(picture["layout"], used)
        layout |= _moved_axes(picture["layout"], names, [round(start, 4), round(start + share, 4)])
        traces += [_moved_trace(trace, names, start + share) for trace in picture["data"]]
        for part in ("shapes", "annotations"):
            items = picture["layout"].get(part, ())
            layout[part] += [_moved(item, names, start, share) for item in items]
        layout["annotations"].append(_title(title, round(start, 4)))
    return {"data": traces, "layout": layout}


def _renamed(layout: Picture, used: dict[str, int]) -> dict[str, str]:
    """New names of the axes of a panel; ``used`` counts those of the panels before it."""
    names = {}
    for key in layout:
        if key[1:5] == "axis":
            side = key[0]
            used[side] += 1
            names[side + key[5:]] = side if used[side] == 1 else f"{side}{used[side]}"
    return names


def _moved_axes(layout: Picture, names: Mapping[str, str], domain: list[float]) -> Picture:
    moved = {}
    for old, new in names.items():
        axis = {**layout[axis_name(old)]}
        axis["anchor"] = names[axis.get("anchor", "y" if old[0] == "x" else "x")]
        if "matches" in axis:
            axis["matches"] = names[axis["matches"]]
        moved[axis_name(new)] = axis | ({"domain": domain} if old[0] == "x" else {})
    return moved


def _moved_trace(trace: Picture, names: Mapping[str, str], right: float) -> Picture:
    axes = {f"{side}axis": names[trace.get(f"{side}axis", side)] for side in "xy"}
    bar = {"colorbar": {**trace["colorbar"], "x": round(right, 4)}} if "colorbar" in trace else {}
    return {**trace, **axes, **bar}


def _moved(item: Picture, names: Mapping[str, str], start: float, share: float) -> Picture:
    """Shape or annotation in its new place; the paper of a panel is a part of the whole."""
    references = {side: item.get(f"{side}ref", side) for side in "xy"}
    moved = {**item, **{f"{side}ref": names.get(r, r) for side, r in references.items()}}
    if references["x"] == "paper":
        places = [key for key in ("x", "x0", "x1") if key in item]
        moved |= {key: round(start + share * item[key], 4) for key in places}
    return moved


def _title(text: str, start: float) -> Picture:
    return {"name": PANEL_TITLE, "text": plotly_text(text), "xref": "paper", "yref": "paper",
            "x": start, "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 8,
            "showarrow": False, "font": {"size": 14, "color": theme.INK}}  # fmt: skip


def with_key(picture: Picture, entries: Sequence[Entry | Drawn]) -> Picture:
    """Picture whose key is a legend: an empty trace with a name for each entry."""
    if not entries:
        return picture
    traces = [{**trace, "showlegend": False} for trace in picture["data"]]
    keys = [swatch_trace(entry) for entry in entries]
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0}
    layout = {**picture["layout"], "showlegend": True, "legend": legend}
    return {"data": [*traces, *keys], "layout": layout}
