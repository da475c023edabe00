"""What the last layers are worth, drawn."""

import math
from collections.abc import Callable

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import BEND, bent, bent_axis
from flowscope.report.drawing.traces import Style, band, curve, extent, level, upright
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["depth_loss", "free_layers"]


def free_layers(frame: pd.DataFrame) -> float:
    """Most layers that can be removed without a loss that can be told; NaN if not recorded."""
    pairs = zip(column(frame, "removed"), words(frame, "free"), strict=True)
    return max((k for k, free in pairs if free == "True" and math.isfinite(k)), default=math.nan)


def depth_loss(source: Source) -> Picture:
    """Rise of the loss as the last layers are removed, above the mobility that was left there."""
    frame = source.table("depth_loss", "removed", "increase")
    removed, free = column(frame, "removed"), free_layers(frame)
    if not any(map(math.isfinite, removed)):
        raise Missing("the column removed of the table “depth_loss” holds no number")
    rises = [v for part in _ends("increase") for v in column(frame, part) if math.isfinite(v)]
    bends = max(map(abs, rises), default=0.0) > BEND
    traces = [
        *_loss_panel(frame, "increase", ("rise of the loss", theme.BLUE, "solid"), "y", bent),
        *_loss_panel(frame, "mobility", ("mobility left", theme.GREEN, "dash"), "y2"),
    ]
    marks = [upright(free)] if math.isfinite(free) else []
    marks += [level(BEND, yref="y", line={"color": theme.MUTED, "width": 1})] if bends else []
    known = [place for place in removed if math.isfinite(place)]
    x = theme.axis("layers removed from the end", showgrid=False, anchor="y2")
    x["range"] = extent(known)
    title = "rise of loss (nats; log above 1)" if bends else "rise of loss (nats)"
    above = bent_axis(title, rises, domain=[0.38, 1])
    below = theme.axis("mobility left", domain=[0, 0.28], rangemode="tozero", nticks=4)
    layout = theme.layout(x, above, 520, yaxis2=below, shapes=marks)
    if math.isfinite(free):
        layout["annotations"] = [_free_label(free, near_end=free > sum(extent(known)) / 2)]
    return {"data": traces, "layout": layout}


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _loss_panel(
    frame: pd.DataFrame,
    name: str,
    style: Style,
    axis: str,
    place: Callable[[float], float] = float,
) -> list[Picture]:
    """Curve with its band; ``place`` gives the height of a value, ``customdata`` holds values."""
    parts = ("removed", *_ends(name), "layer")
    removed, values, low, high, layers = (column(frame, part) for part in parts)
    notes = [
        hover(
            [
                f"{numeral(removed[k], 6)} layers removed (read at layer {numeral(layers[k], 6)})",
                f"{style[0]} {numeral(values[k])} {bounds(low[k], high[k])}",
            ]
        )
        for k in range(len(removed))
    ]
    return [
        *band(removed, list(map(place, low)), list(map(place, high)), style[1], yaxis=axis),
        curve(removed, list(map(place, values)), style, notes, yaxis=axis, customdata=values),
    ]


def _free_label(free: float, *, near_end: bool) -> Picture:
    return {
        "x": free,
        "y": 1,
        "xref": "x",
        "yref": "paper",
        "xanchor": "right" if near_end else "left",
        "yanchor": "top",
        "xshift": -6 if near_end else 6,
        "text": _free_words(free),
        "showarrow": False,
        "font": {"size": 12, "color": theme.MUTED},
    }


def _free_words(free: float) -> str:
    if free == 0:
        return "none can go"
    return "the last one can go" if free == 1 else f"the last {free:g} can go"
