"""The PNG figure of the dials, from the same table as the page and in its look."""

import math
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import canvas, titled
from flowscope.report.geometry_figures import (
    SIDES,
    dial_axis,
    dial_labels,
    dial_place,
    dial_rows,
)
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column

__all__ = ["dials_picture"]

_MARKERS = {"circle": "o", "diamond-open": "D"}


def dials_picture(source: Source) -> Figure | Unavailable:
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
