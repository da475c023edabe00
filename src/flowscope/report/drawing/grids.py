"""Heat maps over the layers and heads of a model."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.notes import notes
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HEAD", "head_map", "head_table"]

HEAD = "layer {layer:g}, head {head:g}"
"""First line of a hover text."""


def head_table(source: Source, table: str, name: str, *, less: str = "") -> pd.DataFrame:
    """Rows of a table of heads, with a column ``value``: a column of theirs, or less another one.

    Raises
    ------
    Missing
        The table or a column is not there, or no head has the number.
    """
    frame = source.table(table, "layer", "head", name, *filter(None, [less]))
    value = pd.Series(column(frame, name), frame.index)
    if less:
        value -= pd.Series(column(frame, less), frame.index)
    if value.isna().all():
        raise Missing(
            f"no head has both {name} and {less} in the table “{table}”"
            if less
            else f"the column {name} of the table “{table}” holds no number"
        )
    return frame.assign(value=value)


def head_map(
    frame: pd.DataFrame,
    *lines: str,
    limits: tuple[float, float] | None = None,
    crossed: tuple[str, str] = ("", ""),
    place: Callable[[float], float] = float,
    **bar: Any,
) -> Picture:
    """Heat map over layers and heads; the first layer is at the top.

    Parameters
    ----------
    frame
        Table of `head_table`.
    *lines
        Hover text of a cell, see `flowscope.report.drawing.notes`.
    limits
        Numbers at the ends of the colours. Without them the values are differences: no colour at
        0, blue above it, orange below it.
    crossed
        Column and word of the heads that are crossed out.
    place
        Place of a value on the scale of the colours.
    **bar
        Settings of the colour bar.
    """
    keys = list(zip(column(frame, "layer"), column(frame, "head"), strict=True))
    layers, heads = (sorted(set(side)) for side in zip(*keys, strict=True))
    cells = dict(zip(keys, map(place, column(frame, "value")), strict=True))
    texts = dict(zip(keys, notes(frame, *lines), strict=True))
    largest = max((abs(cell) for cell in cells.values() if not math.isnan(cell)), default=0) or 1.0
    least, most = limits or (-largest, largest)
    heat = {
        "type": "heatmap",
        "x": heads,
        "y": layers,
        "z": [[cells.get((layer, head), math.nan) for head in heads] for layer in layers],
        "zmin": least,
        "zmax": most,
        "xgap": 1,
        "ygap": 1,
        "colorscale": theme.colour_scale(theme.SCALE if limits else theme.DIVERGING),
        "colorbar": {"thickness": 10, "len": 1, "outlinewidth": 0, **bar},
        "hovertext": [[texts.get((layer, head), "") for head in heads] for layer in layers],
        "hoverinfo": "text",
    }
    x = theme.axis("head", showgrid=False, nticks=16)
    y = theme.axis("layer", showgrid=False, autorange="reversed")
    height = 120 + 11 * max(20, min(len(layers), 60))
    name, word = crossed
    out = [key for key, flag in zip(keys, words(frame, name), strict=True) if flag == word]
    marks = [_crosses(out)] if name else []
    return {"data": [heat, *marks], "layout": theme.layout(x, y, height)}


def _crosses(keys: list[tuple[float, float]]) -> Picture:
    """Crosses over some heads of a heat map."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [head for _, head in keys],
        "y": [layer for layer, _ in keys],
        "marker": {"symbol": "x-thin", "size": 7, "line": {"width": 2, "color": theme.VERMILION}},
        "hoverinfo": "skip",
    }
