"""What every PNG shares: the empty axes, their titles, the shading of segments."""

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.figure import Figure

from flowscope.report import theme
from flowscope.report.source import Source, spans

__all__ = ["DASHES", "canvas", "shade", "titled"]

DASHES = {"solid": "-", "dash": "--", "dot": ":"}
"""The dashes of the page in matplotlib's words."""


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


def shade(ax: Any, source: Source) -> None:
    """Tint the segments behind a panel along depth."""
    for span in spans(source):
        tint = theme.PASSING if span.passes else theme.ABSTAINED
        ax.axvspan(span.first - 0.5, span.last + 0.5, color=tint, lw=0, zorder=0)
