"""Attention entropy of every head, beside the same network with random weights."""

from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.grids import HeadGrid, crosses, head_grid
from flowscope.report.numerals import bounds, percent
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["entropy_grid", "heads"]


def entropy_grid(source: Source, name: str) -> HeadGrid | Unavailable:
    """One column of the attention entropies over layers and heads; collapsed heads are marked."""
    return head_grid(source, name, table="heads", mark=("collapsed", "True"))


def heads(source: Source, name: str) -> Picture | Unavailable:
    """Heat map of ``entropy_share`` or ``random_weights`` over layers and heads."""
    grid, frame = entropy_grid(source, name), source.table("heads")
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
