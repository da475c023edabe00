"""Heat maps over the layers and heads of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HeadGrid", "crosses", "difference_grid", "difference_map", "head_grid", "heat_map"]


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """One column of a table of heads as layers × heads; NaN where a head was not measured."""

    layers: list[float]
    heads: list[float]
    cells: list[list[float]]
    marked: list[tuple[float, float]]


def head_grid(source: Source, name: str, *, table: str, mark: tuple[str, str]) -> HeadGrid:
    """One column of every head, and the heads in which the column ``mark[0]`` says ``mark[1]``.

    Raises
    ------
    Missing
        The table or the column is not there, or holds no number.
    """
    frame = source.table(table, "layer", "head", name)
    keys = list(zip(column(frame, "layer"), column(frame, "head"), strict=True))
    values = column(frame, name)
    if all(map(math.isnan, values)):
        raise Missing(f"the column {name} of the table “{table}” holds no number")
    cells = dict(zip(keys, values, strict=True))
    layers, numbers = sorted({key[0] for key in keys}), sorted({key[1] for key in keys})
    flags = zip(keys, words(frame, mark[0]), strict=True)
    return HeadGrid(
        layers=layers,
        heads=numbers,
        cells=[[cells.get((layer, head), math.nan) for head in numbers] for layer in layers],
        marked=[key for key, flag in flags if flag == mark[1]],
    )


def difference_grid(
    source: Source, names: tuple[str, str], *, table: str, mark: tuple[str, str]
) -> HeadGrid:
    """The first of two columns less the second, of every head; marks as in `head_grid`.

    Raises
    ------
    Missing
        The table or one of the columns is not there, or no head has both numbers.
    """
    first, second = (head_grid(source, name, table=table, mark=mark) for name in names)
    cells = [
        [a - b for a, b in zip(*rows, strict=True)]
        for rows in zip(first.cells, second.cells, strict=True)
    ]
    if all(math.isnan(cell) for row in cells for cell in row):
        raise Missing(f"no head has both {names[0]} and {names[1]} in the table “{table}”")
    return replace(first, cells=cells)


def difference_map(grid: HeadGrid, label: str, *marks: Picture, **bar: Any) -> Picture:
    """Heat map of differences: no colour at 0, blue above it, orange below it.

    Parameters
    ----------
    grid
        The differences.
    label
        What the difference is, in the hover text of each cell.
    *marks, **bar
        Traces over the map, and settings of the colour bar.
    """
    largest = max(abs(cell) for row in grid.cells for cell in row if not math.isnan(cell)) or 1.0
    texts = [
        [
            hover([f"layer {layer:g}, head {head:g}", f"{label} {numeral(cell)}"])
            for head, cell in zip(grid.heads, row, strict=True)
        ]
        for layer, row in zip(grid.layers, grid.cells, strict=True)
    ]
    picture = heat_map(grid, (-largest, largest), texts, *marks, **bar)
    picture["data"][0]["colorscale"] = theme.colour_scale(theme.DIVERGING)
    return picture


def crosses(keys: Sequence[tuple[float, float]]) -> Picture:
    """Crosses over some heads of a heat map."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [head for _, head in keys],
        "y": [layer for layer, _ in keys],
        "marker": {"symbol": "x-thin", "size": 7, "line": {"width": 2, "color": theme.VERMILION}},
        "hoverinfo": "skip",
    }


def heat_map(
    grid: HeadGrid,
    limits: tuple[float, float],
    texts: Sequence[Sequence[str]],
    *marks: Picture,
    **bar: Any,
) -> Picture:
    """Heat map over layers and heads.

    Parameters
    ----------
    grid
        The numbers; the first layer is drawn at the top.
    limits
        Numbers at the ends of the colour scale.
    texts
        Hover text of each cell.
    *marks
        Traces over the map.
    **bar
        Settings of the colour bar.
    """
    heat = {
        "type": "heatmap",
        "x": grid.heads,
        "y": grid.layers,
        "z": grid.cells,
        "zmin": limits[0],
        "zmax": limits[1],
        "xgap": 1,
        "ygap": 1,
        "colorscale": theme.colour_scale(),
        "colorbar": {"thickness": 10, "len": 1, "outlinewidth": 0, **bar},
        "hovertext": texts,
        "hoverinfo": "text",
    }
    x = theme.axis("head", showgrid=False, nticks=16)
    y = theme.axis("layer", showgrid=False, autorange="reversed")
    height = 120 + 11 * max(20, min(len(grid.layers), 60))
    return {"data": [heat, *marks], "layout": theme.layout(x, y, height)}
