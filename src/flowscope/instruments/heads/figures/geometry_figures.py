"""Maps of a statistic over layers and heads, as plain data.

On the page a script draws these maps, because a reader picks the statistic and the head in them.
"""

import math

from flowscope.instruments.heads.figures.map_figures import STATISTICS, ColourScale, colour_limits
from flowscope.report.escaping import hover
from flowscope.report.grids import HeadGrid, crosses, head_grid, heat_map
from flowscope.report.numerals import numeral
from flowscope.report.source import Source
from flowscope.report.theme import Picture

__all__ = ["geometry_map"]


def geometry_map(source: Source, name: str, *, random: bool = False) -> Picture:
    """Heat map of one statistic; heads that abstain are crossed out.

    Parameters
    ----------
    source
        The run.
    name
        Column of the table ``geometry``.
    random
        Whether the same heads with random weights are shown; both share one scale.

    Raises
    ------
    Missing
        The table or the column is not there, or holds no number.
    """
    mark = ("status", "abstained")
    grid = head_grid(source, f"{name}_random" if random else name, table="geometry", mark=mark)
    scale = colour_limits(source.table("geometry"), name)
    title = STATISTICS[name][0]
    texts = [
        [hover([f"layer {layer:g}, head {head:g}", f"{title} {numeral(value)}"])
         for head, value in zip(grid.heads, row, strict=True)]
        for layer, row in zip(grid.layers, grid.cells, strict=True)
    ]  # fmt: skip
    marks = [] if random else [crosses(grid.marked)]
    return heat_map(_placed(grid, scale), _ends(scale), texts, *marks, **_bar(scale))


def _ends(scale: ColourScale) -> tuple[float, float]:
    ends = (scale.low, scale.high)
    return (math.log10(ends[0]), math.log10(ends[1])) if scale.log else ends


def _placed(grid: HeadGrid, scale: ColourScale) -> HeadGrid:
    """Numbers as places on the colour scale: logarithms where the scale is logarithmic."""
    if not scale.log:
        return grid
    low = math.log10(scale.low)
    cells = [[math.log10(v) if v > scale.low else (low if v == v else v) for v in row]
             for row in grid.cells]  # fmt: skip
    return HeadGrid(layers=grid.layers, heads=grid.heads, cells=cells, marked=grid.marked)


def _bar(scale: ColourScale) -> Picture:
    title = {"title": {"text": "nats per step"}}
    if not scale.log:
        return title
    low, high = _ends(scale)
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    places = powers if len(powers) > 1 else [low, high]
    return {**title, "tickvals": places, "ticktext": [numeral(10**place) for place in places]}
