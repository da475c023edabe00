"""Attention entropy of every head, beside the same network with random weights."""

from flowscope.report.drawing.grids import (
    HeadGrid,
    crosses,
    difference_grid,
    difference_map,
    head_grid,
    heat_map,
)
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, percent
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["heads", "heads_difference"]


def heads(source: Source, name: str) -> Picture:
    """Heat map of ``entropy_share`` or ``random_weights`` over layers and heads."""
    grid = head_grid(source, name, table="heads", mark=("collapsed", "True"))
    frame = source.table("heads")
    keys = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    limits = map(bounds, column(frame, "low"), column(frame, "high"))
    notes = dict(zip(keys, limits, strict=True)) if name == "entropy_share" else {}
    texts = [
        [_note(grid, i, j, notes) for j in range(len(grid.heads))] for i in range(len(grid.layers))
    ]
    marks = [crosses(grid.marked)] if notes else []
    return heat_map(grid, (0, 1), texts, *marks, tickformat=".0%")


def heads_difference(source: Source) -> Picture:
    """Heat map of ``entropy_share`` less ``random_weights``: what training changed."""
    names, mark = ("entropy_share", "random_weights"), ("collapsed", "True")
    grid = difference_grid(source, names, table="heads", mark=mark)
    label = "share of the largest entropy, less that of random weights:"
    return difference_map(grid, label, crosses(grid.marked), tickformat=".0%")


def _note(grid: HeadGrid, i: int, j: int, notes: dict[tuple[float, float], str]) -> str:
    layer, head, share = grid.layers[i], grid.heads[j], percent(grid.cells[i][j])
    lines = [f"layer {layer:g}, head {head:g}"]
    if not notes:
        return hover([*lines, f"random weights: {share} of the largest entropy"])
    lines += [f"{share} of the largest entropy"]
    lines += [f"interval {notes.get((layer, head)) or 'not given'}"]
    return hover(lines + ["collapsed"] * ((layer, head) in grid.marked))
