"""Curves along depth that several figures share."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from flowscope.instruments.audit.spans import Span, shading, spans
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.traces import ends, label, line
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["along_depth", "depth_curve", "depth_line"]


def depth_curve(source: Source, name: str, y: Picture) -> Picture:
    """Column of the table ``layers`` along depth, with its interval."""
    traces = depth_line(source.table("layers", "layer", name), name)
    return {"data": traces, "layout": along_depth(y, spans(source), 300)}


def along_depth(
    y: Picture, stretches: Sequence[Span], height: int, *, labels: bool = False, **more: float
) -> Picture:
    """Layout of a figure along depth, with its stretches shaded and, on demand, named."""
    x = theme.axis("layer", showgrid=False, rangemode="tozero")
    marks = [
        label((span.first + span.last) / 2, f"{span.first}–{span.last} {span.outcome}",
              yanchor="top")
        for span in stretches
        if labels and span.last - span.first >= 3
    ]  # fmt: skip
    return theme.layout(x, y, height, shapes=shading(stretches), annotations=marks, **more)


def depth_line(frame: pd.DataFrame, name: str, **options: Any) -> list[Picture]:
    """Column along depth with its band; the dots of abstained layers are hollow."""
    grey = [state == "abstained" for state in words(frame, "status")]
    layers = column(frame, "layer")
    frame = frame.assign(
        where=[f"layer {layer:g}" if layer else "embedding (layer 0)" for layer in layers],
        state=["abstained here" if abstained else "" for abstained in grey],
    )
    said = ("{where!s}", f"{name.replace('_', ' ')} {{}}", "{state!s}")
    look = Look(name, theme.BLUE, symbol="circle")
    drawn = line("layer", frame, ends(name), look, *said, **options)
    drawn[-1]["line"]["width"] = 1.6
    drawn[-1]["marker"] = {
        "size": 7,
        "color": ["#ffffff" if abstained else theme.BLUE for abstained in grey],
        "line": {"width": 1.6, "color": ["#7b8791" if a else theme.BLUE for a in grey]},
    }
    return drawn
