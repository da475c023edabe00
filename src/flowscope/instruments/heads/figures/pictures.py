"""The PNG figures of a run about the heads, from the same tables as the page and in its look."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from flowscope.instruments.heads.figures.map_figures import (
    SIDES,
    colour_limits,
    dial_axis,
    dial_labels,
    dial_place,
    dial_rows,
)
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import canvas, titled
from flowscope.report.grids import grid_picture, head_grid
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column

__all__ = ["GEOMETRY_PICTURES"]

_MARKERS = {"circle": "o", "diamond-open": "D"}


def _geometry(source: Source) -> Figure | Unavailable:
    titles = {
        "entropy_production": "Entropy production, this model",
        "entropy_production_random": "Entropy production, random weights",
    }
    grids = {
        titles[name]: head_grid(source, name, table="geometry", mark=("status", "abstained"))
        for name in titles
    }
    frame = source.table("geometry")
    if isinstance(frame, Unavailable):
        return frame
    limits = colour_limits(frame, "entropy_production")
    scale = (LogNorm if limits.log else Normalize)(limits.low, limits.high)
    return grid_picture(grids, scale, "nats per step")


def _dials(source: Source) -> Figure | Unavailable:
    """Change of the loss at each setting beside that of a random change of equal size."""
    frame = dial_rows(source)
    if isinstance(frame, Unavailable):
        return frame
    labels, (bent, marks) = dial_labels(frame), dial_axis(frame)
    figure, (ax,) = canvas(8, 1.5 + 0.26 * len(labels), 1)
    ax.axvline(0, color=theme.MUTED, lw=1, ls=":")
    for name in SIDES:
        _side(ax, frame, name, bent)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
    ax.grid(False, axis="y")
    ax.grid(True, axis="x", color=theme.RULE, lw=0.8)
    if bent:
        ax.set_xticks([dial_place(mark, bent) for mark in marks], [numeral(m) for m in marks])
    beyond = ", logarithmic beyond ±0.01" if bent else ""
    titled(ax, f"change of the loss (nats){beyond}", "", "What the dials do")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _side(ax: Any, frame: pd.DataFrame, name: str, bent: bool) -> None:
    title, colour, symbol, shift = SIDES[name]
    values, low, high = (column(frame, f"{name}{end}") for end in ("", "_low", "_high"))
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        if math.isfinite(a) and math.isfinite(b):
            ends = [dial_place(end, bent) for end in (a, b)]
            ax.plot(ends, [k + shift] * 2, "-", color=colour, lw=1.6)
    face = "white" if symbol.endswith("open") else colour
    ax.plot([dial_place(v, bent) for v in values], [k + shift for k in range(len(values))],
            _MARKERS[symbol], color=colour, mfc=face, ms=5, label=title)  # fmt: skip


GEOMETRY_PICTURES: dict[str, Callable[[Source], Figure | Unavailable]] = {
    "geometry": _geometry,
    "dials": _dials,
}
"""Pictures of a report about the heads by the name of their file."""
