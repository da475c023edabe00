"""The PNG figures of a run of coupled replicas, from the same tables as the page, in its look."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from flowscope.instruments.sync.figures.agreement_figures import (
    Curve,
    agreement_curves,
    scale_curves,
    smooth_fit,
)
from flowscope.instruments.sync.figures.depth_figures import (
    CHANNELS,
    beyond_null,
    default_layer,
    energy_layers,
    gap_range,
    propagation_choices,
    settled_modes,
)
from flowscope.instruments.sync.figures.series import class_names, rows_of, series_of
from flowscope.instruments.sync.figures.strip import paired_samples
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import DASHES, MARKERS, canvas, titled
from flowscope.report.escaping import shortened
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, column

__all__ = ["REPLICA_PICTURES"]

_BANDS = {"lead": "-", "trail": ":"}
_MOST = 8
"""Panels side by side; further couplings and classes are on the page alone."""


def _agreement(source: Source) -> Figure | Unavailable:
    classes = list(class_names(source).items())[:_MOST] or [(0.0, "")]
    found = [(name, agreement_curves(source, label)) for label, name in classes]
    first = found[0][1]
    if isinstance(first, Unavailable):
        return first
    present = [(name, own) for name, own in found if not isinstance(own, Unavailable)]
    figure, axes = canvas(6.2 * len(present), 4.4, len(present))
    for ax, (name, own) in zip(axes, present, strict=True):
        _curves(ax, own)
        where = f", {shortened(name, 24)}" if name else ""
        titled(ax, "step at which the two are let go", "cosine of the features",
               f"When two replicas end alike{where}")  # fmt: skip
    return figure


def _scales(source: Source) -> Figure | Unavailable:
    label = next(iter(class_names(source)), 0.0)
    every = series_of(source, "agreement")[:_MOST]
    found = [(one, scale_curves(source, label, one)) for one in every]
    present = [(one, own) for one, own in found if not isinstance(own, Unavailable)]
    if not present:
        lack = source.table("agreement", "label", "g", "measure")
        return lack if isinstance(lack, Unavailable) else Unavailable("no curve of either scale")
    figure, axes = canvas(3.7 * len(present), 3.9, len(present))
    for ax, (one, own) in zip(axes, present, strict=True):
        _curves(ax, own)
        titled(ax, "step at which the two are let go", "agreement", f"Coarse and fine, {one.label}")
    return figure


def _curves(ax: Any, curves: list[Curve]) -> None:
    """Curves with their bands, fits and midpoints; a midpoint lies on the lower edge."""
    floor = min([v for own in curves for v in column(own.rows, "low") if math.isfinite(v)],
                default=0.0)  # fmt: skip
    step = 0.035
    for k, own in enumerate(curves):
        x, low, high = (column(own.rows, name) for name in ("step", "low", "high"))
        ax.fill_between(x, low, high, color=own.colour, alpha=0.12, lw=0)
        ax.plot(x, column(own.rows, "value"), MARKERS[own.symbol] + DASHES[own.dash], ms=4.5,
                lw=1.6, color=own.colour, alpha=0.75, label=own.name)  # fmt: skip
        ax.plot(*smooth_fit(own), "-", color=own.colour, lw=0.8)
        middle, a, b = own.midpoint()
        height = floor - step * (k + 1.5)
        if math.isfinite(middle):
            ax.plot([middle], [height], MARKERS[own.symbol], color=own.colour, ms=6)
            ax.plot([a, b], [height] * 2, "-", color=own.colour, lw=1.8)
    ax.set_ylim(floor - step * (len(curves) + 1.5), 1.05)
    ax.legend(frameon=False, fontsize=8)


def _gap(source: Source) -> Figure | Unavailable:
    frame = source.table("internal_gap", "g", "layer", "log_gap")
    if isinstance(frame, Unavailable):
        return frame
    every = series_of(source, "internal_gap")[:_MOST]
    if not every:
        return Unavailable("the table “internal_gap” names no coupling")
    figure, axes = canvas(3.7 * len(every), 3.8, len(every))
    for ax, one in zip(axes, every, strict=True):
        rows = rows_of(frame, one).sort_values("layer")
        x, y = column(rows, "layer"), column(rows, "log_gap")
        null = [column(rows, name) for name in ("null_low", "null_high")]
        ax.fill_between(x, *null, color="#7b8791", alpha=0.25, lw=0, label="exchange null")
        sides = [column(rows, name) for name in ("low", "high")]
        ax.fill_between(x, *sides, color=one.colour, alpha=0.22, lw=0)
        naive = [math.log(v) if 0 < v < math.inf else math.nan for v in column(rows, "naive")]
        ax.plot(x, naive, ":", color=theme.INK, alpha=0.45, lw=1.2, label="log G_int (E86)")
        ax.plot(x, y, "-", color=one.colour, lw=1.6)
        faces = [one.colour if out else "white" for out in beyond_null(rows)]
        ax.scatter(x, y, s=26, c=faces, edgecolors=one.colour, zorder=3)
        ax.axhline(0, color=theme.MUTED, lw=1, ls=":")
        ax.set_ylim(*gap_range(frame))
        titled(ax, "layer", "log (trailing / leading)", f"Gap inside, {one.label}")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _energies(source: Source) -> Figure | Unavailable:
    layers = energy_layers(source)
    if isinstance(layers, Unavailable):
        return layers
    layer = layers[default_layer(layers)]
    own = rows_where(source.tables["energies"], "layer", layer)
    figure, (ax,) = canvas(7.5, 4.4, 1)
    ax.set_yscale("log")
    for one in series_of(source, "energies"):
        rows = rows_of(own, one).sort_values("step")
        for name, dash in _BANDS.items():
            ax.plot(column(rows, "step"), column(rows, name), dash, color=one.colour, lw=1.8,
                    label=f"{one.label}, {name}")  # fmt: skip
    titled(ax, "reverse step (0: noise)", "energy (start = 1)", f"Modes over time, layer {layer:g}")
    ax.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def _strip(source: Source) -> Figure | Unavailable:
    strip = paired_samples(source)
    if isinstance(strip, Unavailable):
        return strip
    rows, columns = strip.images.shape[:2]
    height, width = strip.images.shape[3:5]
    figure = Figure(
        figsize=(0.9 + 0.75 * columns, 0.5 + 1.5 * rows * height / width), facecolor="white"
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(left=0.9 / (0.9 + 0.75 * columns), right=0.99, bottom=0.02, top=0.94,
                           wspace=0.05, hspace=0.05)  # fmt: skip
    for i in range(rows):
        for j in range(columns):
            ax = axes[i, j]
            above, below = strip.images[i, j]
            seam = np.ones_like(above[:1])
            ax.imshow(np.concatenate([above, seam, below]), interpolation="nearest",
                      aspect="auto")  # fmt: skip
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            if i == 0:
                ax.set_title(f"step {strip.columns[j]}", fontsize=8, color=theme.MUTED)
        axes[i, 0].set_ylabel(strip.rows[i], fontsize=8, color=theme.INK, rotation=0, ha="right")
    return figure


def _propagation(source: Source) -> Figure | Unavailable:
    choices = propagation_choices(source)
    if isinstance(choices, Unavailable):
        return choices
    one, step = choices[0]
    own = rows_where(rows_of(source.tables["propagation"], one), "step", step)
    figure, axes = canvas(13, 4.0, 3)
    for k, (name, dash) in enumerate(_BANDS.items()):
        rows = rows_where(own, "band", name).sort_values("layer")
        x = column(rows, "layer")
        axes[0].plot(x, column(rows, "gain"), "o" + dash, color=one.colour, ms=4, label=name)
        for part, (title, colour, mark) in CHANNELS.items():
            less = 1.0 if part == "direct" else 0.0
            axes[k + 1].plot(x, [v - less for v in column(rows, part)], MARKERS[mark] + "-",
                             color=colour, ms=4, lw=1.4, label=title)  # fmt: skip
        axes[k + 1].axhline(0, color=theme.MUTED, lw=1, ls=":")
        titled(axes[k + 1], "layer", "part of the gain", f"Parts, {name}ing modes")
    axes[0].axhline(1, color=theme.MUTED, lw=1, ls=":")
    titled(axes[0], "layer", "gain", f"Gain, {one.label}, step {step:g}")
    for ax in axes[:2]:
        ax.legend(frameon=False, fontsize=8)
    return figure


def _modes(source: Source) -> Figure | Unavailable:
    frame = source.table("mode_commitment", "g", "layer", "mode", "predicted", "measured")
    if isinstance(frame, Unavailable):
        return frame
    known = settled_modes(frame)
    if known.empty:
        return Unavailable("no mode has both a predicted and a measured step")
    figure, (ax,) = canvas(5.2, 5.0, 1)
    for one in series_of(source, "mode_commitment"):
        rows = rows_of(known, one)
        ax.plot(column(rows, "predicted"), column(rows, "measured"), MARKERS[one.symbol],
                color=one.colour, alpha=0.75, ms=5, label=one.label)  # fmt: skip
    ends = column(known, "predicted") + column(known, "measured")
    ax.plot([min(ends), max(ends)], [min(ends), max(ends)], ":", color=theme.MUTED)
    titled(ax, "predicted step (gain crosses 1)", "measured step", "Commitment of modes")
    ax.legend(frameon=False, fontsize=8)
    return figure


REPLICA_PICTURES: dict[str, Callable[[Source], Figure | Unavailable]] = {
    "sync_agreement": _agreement,
    "sync_scales": _scales,
    "sync_gap": _gap,
    "sync_energies": _energies,
    "sync_strip": _strip,
    "sync_propagation": _propagation,
    "sync_modes": _modes,
}
"""Pictures of a report about coupled replicas by the name of their file."""
