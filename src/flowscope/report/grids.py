"""Heat maps over the layers and heads of a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import COLOUR_MAP, canvas, titled
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["HeadGrid", "crosses", "grid_picture", "head_grid"]


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """One column of a table of heads as layers × heads; NaN where a head was not measured."""

    layers: list[float]
    heads: list[float]
    cells: list[list[float]]
    marked: list[tuple[float, float]]


def head_grid(
    source: Source, name: str, *, table: str, mark: tuple[str, str]
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


def grid_picture(
    grids: dict[str, HeadGrid | Unavailable], scale: Normalize, label: str
) -> Figure | Unavailable:
    """Heat maps over layers and heads side by side; the first is the model, with its marks."""
    first = next(iter(grids.values()))
    if isinstance(first, Unavailable):
        return first
    present = {name: grid for name, grid in grids.items() if not isinstance(grid, Unavailable)}
    height = max(4.0, min(0.14 * len(first.layers) + 1.2, 9))
    figure, axes = canvas(4.6 * len(present), height, len(present))
    for ax, (title, grid) in zip(axes, present.items(), strict=True):
        sides = (
            grid.heads[0] - 0.5,
            grid.heads[-1] + 0.5,
            grid.layers[-1] + 0.5,
            grid.layers[0] - 0.5,
        )
        image = ax.imshow(grid.cells, cmap=COLOUR_MAP, norm=scale, aspect="auto",
                          interpolation="nearest", extent=sides)  # fmt: skip
        if grid is first and grid.marked:
            layers, heads = zip(*grid.marked, strict=True)
            ax.plot(heads, layers, "x", color=theme.VERMILION, ms=5, mew=1.6)
        titled(ax, "head", "layer", title)
        ax.grid(False)
        figure.colorbar(image, ax=ax, label=label)
    return figure
