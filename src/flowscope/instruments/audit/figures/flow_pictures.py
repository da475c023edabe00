"""The PNG figures of the flow, its rotation and a study, in the look of the page."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flowscope.instruments.audit.figures.flow_figures import (
    BOUNDS,
    FORECASTS,
    VACUOUS,
    budget_points,
    forecast_parts,
    free_layers,
    with_gaps,
)
from flowscope.instruments.audit.figures.rotation_figures import HALF, OFFSET, rotation_rows
from flowscope.instruments.audit.figures.spans import shade
from flowscope.instruments.audit.figures.sweep_figures import DISTANCES, PANELS, refinements
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import DASHES, canvas, titled
from flowscope.report.log_axes import log_ticks, slope_line
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.source import Source, column
from flowscope.report.traces import extent

__all__ = ["FLOW_PICTURES"]

_HORIZONS = {"onward": "From the first state onward", "one layer": "One layer ahead"}
_MARKERS = {"circle": "o", "diamond": "D", "diamond-open": "D", "triangle-up": "^"}


def _forecasts(source: Source) -> Figure | Unavailable:
    frame = source.table("adequacy", "layer", "horizon", "forecast", "tv")
    if isinstance(frame, Unavailable):
        return frame
    figure, axes = canvas(11, 4.4, len(_HORIZONS))
    for ax, (horizon, title) in zip(axes, _HORIZONS.items(), strict=True):
        shade(ax, source)
        for name, (label, colour, dash) in FORECASTS.items():
            text: str | None = label
            for part in forecast_parts(source, horizon, name):
                x, y, low, high = (column(part, end) for end in ("layer", "tv", "low", "high"))
                if name == "flow":
                    ax.fill_between(x, low, high, color=colour, alpha=0.22, lw=0)
                dots = "o" if name == "flow" else ""
                ax.plot(x, y, dots + DASHES[dash], color=colour, ms=4, label=text)
                text = None  # one entry in the legend for all segments
        _along(ax, column(frame, "layer"))
        ax.set_ylim(bottom=0)
        titled(ax, "layer", "total variation from the model", title)
    _legend(figure, axes[0], 4)
    return figure


def _legend(figure: Figure, ax: Any, columns: int) -> None:
    """Key of a panel under all panels, where it hides nothing."""
    drawn, labels = ax.get_legend_handles_labels()
    if drawn:
        figure.legend(drawn, labels, loc="outside lower center", ncols=columns, frameon=False,
                      fontsize=8)  # fmt: skip


def _along(ax: Any, layers: Sequence[float]) -> None:
    ax.set_xlim(*extent(layers))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _overlay(source: Source) -> Figure | Unavailable:
    frame = source.table("overlay", "layer", "tv")
    if isinstance(frame, Unavailable):
        return frame
    figure, (ax,) = canvas(8, 4.2, 1)
    shade(ax, source)
    rows = with_gaps(frame.sort_values("layer", kind="stable"))
    _along(ax, column(rows, "layer"))
    for name, (label, colour, dash) in BOUNDS.items():
        values = column(rows, name)
        if any(map(math.isfinite, values)):
            dots = "o" if name == "tv" else ""
            x = column(rows, "layer")
            ax.plot(x, values, dots + DASHES[dash], color=colour, ms=4, label=label)
    ax.axhline(VACUOUS, ls=":", lw=1, color=theme.MUTED, label="vacuous where above .99")
    ax.set_ylim(bottom=0)
    titled(ax, "layer", "total variation of one layer", "What bounds one layer")
    _legend(figure, ax, 5)
    return figure


def _budget(source: Source) -> Figure | Unavailable:
    frame = source.table("budget", "error", "budget")
    if isinstance(frame, Unavailable):
        return frame
    points = budget_points(frame)
    if points.empty:
        return Unavailable("the table “budget” holds no number")
    figure, (ax,) = canvas(6, 4.6, 1)
    x, y = column(points, "budget"), column(points, "error")
    ax.plot(x, y, "o", ms=3, mew=0, alpha=0.4, color=theme.BLUE, label="one token")
    right, top = (1.05 * max(values) or 1.0 for values in (x, y))
    end = min(right, top)
    ax.plot([0, end], [0, end], "--", color=theme.VERMILION, label="error = budget")
    ax.set_xlim(0, right)
    ax.set_ylim(0, top)
    titled(ax, "budget Ξ", "worst error (total variation)", "Budget against error")
    _legend(figure, ax, 2)
    return figure


def _depth_loss(source: Source) -> Figure | Unavailable:
    frame = source.table("depth_loss", "removed", "increase")
    if isinstance(frame, Unavailable):
        return frame
    panels = {
        "increase": ("rise of loss (nats)", theme.BLUE, "o-", "What the last layers are worth"),
        "mobility": ("mobility left", theme.GREEN, "s--", "Mobility left where they begin"),
    }
    figure, axes = canvas(11, 4.2, len(panels))
    x, free = column(frame, "removed"), free_layers(frame)
    for ax, (name, (label, colour, line, title)) in zip(axes, panels.items(), strict=True):
        low, high = column(frame, f"{name}_low"), column(frame, f"{name}_high")
        ax.fill_between(x, low, high, color=colour, alpha=0.22, lw=0)
        ax.plot(x, column(frame, name), line, color=colour, ms=4)
        if math.isfinite(free):
            ax.axvline(free, ls=":", color=theme.MUTED, label=f"the last {free:g} can go")
        titled(ax, "layers removed from the end", label, title)
    _legend(figure, axes[0], 1)
    return figure


def _rotation(source: Source) -> Figure | Unavailable:
    frame = rotation_rows(source)
    if isinstance(frame, Unavailable):
        return frame
    figure, (ax,) = canvas(8, 4.4, 1)
    shade(ax, source)
    layers, values, low, high = (
        column(frame, part) for part in ("layer", "normalised", "low", "high")
    )
    ax.vlines(layers, low, high, color=theme.BLUE, lw=1.6)
    fills = [theme.BLUE if seen else "white" for seen in detected(frame)]
    ax.scatter(layers, values, s=46, c=fills, edgecolors=theme.BLUE, linewidths=1.6, zorder=3,
               label="share that turns (filled: p < .05)")  # fmt: skip
    for name, (label, colour, symbol, side) in CONTROLS.items():
        at = [layer + side * OFFSET for layer in layers]
        fill = "none" if symbol.endswith("open") else colour
        ax.plot(
            at, column(frame, name), _MARKERS[symbol], color=colour, mfc=fill, ms=5, label=label
        )
    ax.axhline(HALF, ls="--", lw=1.2, color=theme.INK, label="one half")
    low_end, high_end = ax.get_ylim()
    ax.set_ylim(min(low_end, -0.04), max(high_end, 1.04))
    _along(ax, layers)
    titled(ax, "layer", "share of the motion that turns", "Does the motion turn?")
    _legend(figure, ax, 4)
    return figure


def _identification(source: Source) -> Figure | Unavailable:
    rows = refinements(source)
    if isinstance(rows, Unavailable):
        return rows
    figure, (ax,) = canvas(6, 4.4, 1)
    n = column(rows, "n")
    drawn: list[float] = []
    ax.set_xscale("log")
    ax.set_yscale("log")
    for name, (label, colour, symbol) in DISTANCES.items():
        values, slope = column(rows, f"{name}_to_next"), column(rows, f"{name}_order")[0]
        ax.plot(n, values, _MARKERS[symbol], color=colour, label=f"{label}, slope {slope:.2f}")
        ax.plot(n, slope_line(n, values, slope), ":", color=colour)
        drawn += values
    for axis, ticks in ((ax.xaxis, n), (ax.yaxis, log_ticks(drawn))):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    titled(ax, "steps per layer, n", "relative distance to the next n", "Does depth settle?")
    _legend(figure, ax, 2)
    return figure


def _temperatures(source: Source) -> Figure | Unavailable:
    frame = source.table("output_temperature", "temperature", *PANELS)
    if isinstance(frame, Unavailable):
        return frame
    figure, axes = canvas(12, 3.8, len(PANELS))
    x = column(frame, "temperature")
    known = [place for place in x if place > 0]
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        values, low, high = (column(frame, f"{name}{end}") for end in ("", "_low", "_high"))
        ax.fill_between(x, low, high, color=theme.BLUE, alpha=0.22, lw=0)
        ax.plot(x, values, "o-", color=theme.BLUE, ms=5)
        ax.axvline(1, ls=":", color=theme.MUTED)
        if known:
            ax.set_xscale("log")
            ax.set_xticks(known, [f"{place:g}" for place in known], minor=False)
            ax.minorticks_off()
        titled(ax, "temperature τ of the output", title, title[:1].upper() + title[1:])
    return figure


FLOW_PICTURES: dict[str, Callable[[Source], Figure | Unavailable]] = {
    "forecasts": _forecasts,
    "overlay": _overlay,
    "budget": _budget,
    "depth_loss": _depth_loss,
    "rotation": _rotation,
    "identification": _identification,
    "output_temperature": _temperatures,
}
"""Pictures of the flow, its rotation and of a study by the name of their file."""
