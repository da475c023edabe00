"""Attention entropy of every head, beside the same network with random weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HeadGrid", "crosses", "head_grid", "heads"]


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """One column of a table of heads as layers × heads; NaN where a head was not measured."""

    layers: list[float]
    heads: list[float]
    cells: list[list[float]]
    marked: list[tuple[float, float]]


def head_grid(
    source: Source,
    name: str,
    *,
    table: str = "heads",
    mark: tuple[str, str] = ("collapsed", "True"),
) -> HeadGrid | Unavailable:
    """One column of every head, and the heads in which the column ``mark[0]`` says ``mark[1]``."""
    frame = source.table(table, "layer", "head", name)
    if isinstance(frame, Unavailable):
        return frame
    keys = list(zip(column(frame, "layer"), column(frame, "head"), strict=True))
    values = column(frame, name)
    if all(map(math.isnan, values)):
        return Unavailable(f"the column {name} of the table “{table}” holds no number")
    cells = dict(zip(keys, values, strict=True))
    layers, numbers = sorted({key[0] for key in keys}), sorted({key[1] for key in keys})
    flags = zip(keys, words(frame, mark[0]), strict=True)
    return HeadGrid(
        layers=layers,
        heads=numbers,
        cells=[[cells.get((layer, head), math.nan) for head in numbers] for layer in layers],
        marked=[key for key, flag in flags if flag == mark[1]],
    )


def heads(source: Source, name: str) -> Picture | Unavailable:
    """Heat map of ``entropy_share`` or ``random_weights`` over layers and heads."""
    grid, frame = head_grid(source, name), source.table("heads")
    if isinstance(grid, Unavailable):
        return grid
    if isinstance(frame, Unavailable):
        return frame
    keys = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    limits = map(bounds, column(frame, "low"), column(frame, "high"))
    notes = dict(zip(keys, limits, strict=True)) if name == "entropy_share" else {}
    texts = [
        [_note(grid, i, j, notes) for j in range(len(grid.heads))] for i in range(len(grid.layers))
    ]
    heat = {
        "type": "heatmap",
        "x": grid.heads,
        "y": grid.layers,
        "z": grid.cells,
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorscale": theme.colour_scale(),
        "colorbar": {"thickness": 10, "len": 1, "outlinewidth": 0, "tickformat": ".0%"},
        "hovertext": texts,
        "hoverinfo": "text",
    }
    x = theme.axis("head", showgrid=False, nticks=16)
    y = theme.axis("layer", showgrid=False, autorange="reversed")
    height = 120 + 11 * max(20, min(len(grid.layers), 60))
    marks = [crosses(grid.marked)] if notes else []
    return {"data": [heat, *marks], "layout": theme.layout(x, y, height)}


def _note(grid: HeadGrid, i: int, j: int, notes: dict[tuple[float, float], str]) -> str:
    layer, head, share = grid.layers[i], grid.heads[j], percent(grid.cells[i][j])
    lines = [f"layer {layer:g}, head {head:g}"]
    if not notes:
        return hover([*lines, f"random weights: {share} of the largest entropy"])
    lines += [f"{share} of the largest entropy"]
    lines += [f"interval {notes.get((layer, head)) or 'not given'}"]
    return hover(lines + ["collapsed"] * ((layer, head) in grid.marked))


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
