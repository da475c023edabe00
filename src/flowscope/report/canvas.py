"""What every PNG shares: empty axes, their titles, marks and colours; and how it is written.

The bytes depend on the tables and the version of matplotlib alone: no date, no software name,
and a fixed font that comes with it.
"""

import io
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.source import Source

__all__ = ["COLOUR_MAP", "DASHES", "MARKERS", "canvas", "png", "titled"]

DASHES = {"solid": "-", "dash": "--", "dot": ":"}
"""The dashes of the page in matplotlib's words."""

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^",
            "triangle-down": "v", "hexagon": "h"}  # fmt: skip
"""Marks of the page in matplotlib's words."""

COLOUR_MAP = LinearSegmentedColormap.from_list("flowscope", list(theme.SCALE))
"""The sequential scale of the page."""

_DPI = 130


def canvas(
    width: float, height: float, panels: int, *, constrained: bool = True
) -> tuple[Figure, Sequence[Any]]:
    """Empty figure of so many panels side by side, and their axes."""
    layout: Literal["constrained"] | None = "constrained" if constrained else None
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color("#aab4bd")
        ax.tick_params(colors=theme.MUTED, labelsize=9)
        ax.grid(True, axis="y", color=theme.RULE, lw=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def titled(ax: Any, x: str, y: str, title: str) -> None:
    """Name the axes and the panel; no text is read as a formula."""
    ax.set_xlabel(x, color=theme.MUTED)
    ax.set_ylabel(y, color=theme.MUTED)
    ax.set_title(title, loc="left", color=theme.INK, fontsize=11, fontweight="bold",
                 parse_math=False)  # fmt: skip


def png(source: Source, name: str) -> bytes | Unavailable:
    """Picture of that name, of those of its page, or why there is none."""
    drawn = source.page.pictures[name](source)
    if isinstance(drawn, Unavailable):
        return drawn
    content = io.BytesIO()
    FigureCanvasAgg(drawn)
    with warnings.catch_warnings():
        # A token may be in a script the font does not have; its box is what can be shown.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        drawn.savefig(content, format="png", dpi=_DPI, metadata={"Software": None})
    return content.getvalue()
