"""The PNG figures of a run of an image model, from the same tables as the page, in its look."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from flowscope.instruments.image.figures.axes import SAMPLERS, Clock, clock_of
from flowscope.instruments.image.figures.order_figures import (
    Doubling,
    doublings,
    error_range,
    family_looks,
    family_null,
    reference,
)
from flowscope.instruments.image.figures.strips import sample_strip, uturn_strip
from flowscope.instruments.image.figures.tables import window_of
from flowscope.instruments.image.figures.time_figures import (
    EXACT,
    STATISTICS,
    above_null,
    channel_name,
    parity_channels,
    rotation_rows,
    smoothness_is_log,
)
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.canvas import DASHES, MARKERS, canvas, titled
from flowscope.report.marks import Look
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column
from flowscope.report.strips import Strip

__all__ = ["IMAGE_PICTURES"]

_GREY = "#7b8791"
_SNR = "log snr (noise → image)"


def _timed(ax: Any, clock: Clock) -> None:
    places, texts = clock.marks
    ax.set_xticks(places, texts)
    ax.set_xlim(*clock.room)


def _line(
    ax: Any, x: Sequence[float], rows: pd.DataFrame, names: tuple[str, str, str], look: Look
) -> None:
    value, low, high = (column(rows, name) for name in names)
    ax.fill_between(x, low, high, color=look.colour, alpha=0.16, lw=0)
    ax.plot(x, value, MARKERS[look.symbol] + DASHES[look.dash], color=look.colour, ms=4, lw=1.6,
            label=look.label)  # fmt: skip


def _bars(ax: Any, x: Sequence[float], ends: tuple[Sequence[float], Sequence[float]], colour: str
          ) -> None:  # fmt: skip
    """Intervals, without their dots; those that are not known are left out."""
    rows = [row for row in zip(x, *ends, strict=True) if all(map(math.isfinite, row))]
    if rows:
        places, low, high = zip(*rows, strict=True)
        ax.vlines(places, low, high, color=colour, lw=1.4)


def _parity(source: Source) -> Figure | Unavailable:
    channels = parity_channels(source)
    if isinstance(channels, Unavailable):
        return channels
    own = rows_where(source.tables["parity"], "channel", channels[0])
    rows = ordered(own, "log_snr")
    clock = clock_of(rows)
    x = clock.at(column(rows, "log_snr"))
    shown = [name for name in STATISTICS if known(column(rows, name))]
    if not shown:
        return Unavailable("the table “parity” holds no distance")
    figure, axes = canvas(5.6 * len(shown), 3.9, len(shown))
    for ax, name in zip(axes, shown, strict=True):
        top = column(rows, f"{name}_null_high")
        ax.fill_between(x, 0, top, color=_GREY, alpha=0.22, lw=0, label="SDE against SDE, 95 %")
        ax.plot(x, column(rows, f"{name}_null"), ":", color=_GREY, label="its median")
        ends = (name, f"{name}_low", f"{name}_high")
        _line(ax, x, rows, ends, Look(label="ODE against SDE", colour=theme.BLUE))
        faces = [theme.BLUE if out else "white" for out in above_null(rows, name)]
        ax.scatter(x, column(rows, name), s=24, c=faces, edgecolors=theme.BLUE, zorder=3)
        titled(ax, _SNR, STATISTICS[name], f"Parity, {channel_name(channels[0])}")
        ax.set_ylim(bottom=0)
        _timed(ax, clock)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _order(source: Source) -> Figure | Unavailable:
    found = {name: doublings(source, name) for name in SAMPLERS}
    present = {name: own for name, own in found.items() if not isinstance(own, Unavailable)}
    if not present:
        lack = next(iter(found.values()))
        return lack if isinstance(lack, Unavailable) else Unavailable("no error was measured")
    figure, axes = canvas(5.4 * len(present), 4.2, len(present))
    for ax, (name, every) in zip(axes, present.items(), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.plot(*reference(every), "-", color="#9aa4ad", lw=1.2, label="slope −1")
        for own in every:
            _doubling(ax, own)
        counts = sorted({k for own in every for k in own.steps if k > 0})
        ax.set_xticks(counts, [f"{k:g}" for k in counts], minor=False)
        ax.minorticks_off()
        ax.set_ylim(*error_range(every))
        titled(ax, "number of steps K", "|change from K to 2K|", SAMPLERS[name].label)
        ax.legend(frameon=False, fontsize=8)
    return figure


def _doubling(ax: Any, own: Doubling) -> None:
    colour = own.look.colour
    ax.plot(own.steps, own.fitted(), "-", color=colour, lw=1.4)
    floor = [max(low, 1e-3 * size) for low, size in zip(own.low, own.size, strict=True)]
    _bars(ax, own.steps, (floor, own.high), colour)
    faces = [colour if seen else "white" for seen in own.resolved]
    ax.scatter(own.steps, own.size, s=34, c=faces, edgecolors=colour, zorder=3,
               marker=MARKERS[own.look.symbol])  # fmt: skip
    # One entry of the legend, with the mark as it looks where the difference is resolved.
    ax.plot([], [], MARKERS[own.look.symbol] + "-", color=colour, label=own.look.label)


def _smoothness(source: Source) -> Figure | Unavailable:
    frame = source.table("smoothness", "sampler", "log_snr", "size")
    if isinstance(frame, Unavailable):
        return frame
    clock = clock_of(frame)
    figure, (ax,) = canvas(7, 4.0, 1)
    for name, look in SAMPLERS.items():
        rows = ordered(rows_where(frame, "sampler", name), "log_snr")
        _line(ax, clock.at(column(rows, "log_snr")), rows, ("size", "low", "high"), look)
    if smoothness_is_log(frame):
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    titled(ax, _SNR, "rms step per pixel", "Size of the steps")
    _timed(ax, clock)
    ax.legend(frameon=False, fontsize=8)
    return figure


def _rotation(source: Source) -> Figure | Unavailable:
    frame = rotation_rows(source)
    if isinstance(frame, Unavailable):
        return frame
    clock = clock_of(frame)
    x = clock.at(column(frame, "log_snr"))
    names = {"normalised": ("low", "high", theme.BLUE, "o", "share that turns"),
             "gradient_error": ("gradient_error_low", "gradient_error_high", theme.VERMILION, "s",
                                "gradient part of the error")}  # fmt: skip
    shown = [name for name in names if known(column(frame, name))]
    figure, axes = canvas(5.6 * len(shown), 3.9, len(shown))
    for ax, name in zip(axes, shown, strict=True):
        low, high, colour, mark, title = names[name]
        ends = (column(frame, low), column(frame, high))
        filled = detected(frame) if name == "normalised" else [
            a > 0 or b < 0 for a, b in zip(*ends, strict=True)]  # fmt: skip
        _bars(ax, x, ends, colour)
        ax.scatter(x, column(frame, name), s=36, marker=mark, edgecolors=colour, zorder=3,
                   c=[colour if full else "white" for full in filled], label=title)  # fmt: skip
        ax.axhline(0, color=theme.MUTED, lw=1, ls=":")
        titled(ax, _SNR, "share of the energy of the score", title.capitalize())
        _timed(ax, clock)
    for name, (label, colour, symbol, _) in CONTROLS.items():
        mark, face = ("D", "white") if symbol.endswith("open") else ("^", colour)
        axes[0].plot(x, column(frame, name), mark, color=colour, mfc=face, ms=5, label=label)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _information(source: Source) -> Figure | Unavailable:
    frame = source.table("information", "log_snr", "entropy")
    if isinstance(frame, Unavailable):
        return frame
    rows = ordered(frame, "log_snr")
    clock, window = clock_of(rows), window_of(rows)
    x, look = clock.at(column(rows, "log_snr")), Look(label="measured", colour=theme.BLUE)
    titles = {"entropy": ("nats", "Open about the class, H(Y | x)"),
              "rate": ("nats per unit of log snr", "Settled per unit of log snr")}  # fmt: skip
    shown = [name for name in titles if known(column(rows, name))]
    if not shown:
        return Unavailable("the table “information” holds no number")
    figure, axes = canvas(5.6 * len(shown), 3.9, len(shown))
    for ax, name in zip(axes, shown, strict=True):
        ends = ("low", "high") if name == "entropy" else ("rate_low", "rate_high")
        if not isinstance(window, Unavailable):
            ax.axvspan(window.first, window.last, color=theme.PASSING, lw=0, zorder=0,
                       label="10 % to 90 % of what is gained")  # fmt: skip
        _line(ax, x, rows, (name, *ends), look)
        if name == "entropy":
            _exact(ax, x, rows)
        titled(ax, _SNR, *titles[name])
        _timed(ax, clock)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _exact(ax: Any, x: Sequence[float], rows: pd.DataFrame) -> None:
    if known(column(rows, "exact")):
        ax.plot(x, column(rows, "exact"), DASHES[EXACT.dash], color=EXACT.colour, label=EXACT.label)


def _uturn(source: Source) -> Figure | Unavailable:
    frame = source.table("uturn", "log_snr", "same_class")
    if isinstance(frame, Unavailable):
        return frame
    rows = ordered(frame, "log_snr")
    clock = clock_of(rows)
    x = clock.at(column(rows, "log_snr"))
    figure, (ax,) = canvas(7, 4.2, 1)
    if known(column(rows, "same_class")):
        look = Look(label="come back as their class", colour=theme.BLUE)
        _line(ax, x, rows, ("same_class", "low", "high"), look)
        ax.plot(x, column(rows, "chance"), ":", color=theme.MUTED, label="chance")
    _exact(ax, x, rows)
    look = Look(label="correlation of the images", colour=theme.VERMILION, symbol="diamond")
    _line(ax, x, rows, ("correlation", "correlation_low", "correlation_high"), look)
    titled(ax, _SNR, "share, correlation", "Noise it and come back")
    _timed(ax, clock)
    ax.legend(frameon=False, fontsize=8)
    return figure


def _family(source: Source) -> Figure | Unavailable:
    looks = family_looks(source)
    if isinstance(looks, Unavailable):
        return looks
    frame = source.tables["family"]
    titles = {"accuracy": "Class accuracy", "tv": "Total variation to the finest SDE run"}
    shown = [name for name in titles if known(column(frame, name))]
    if not shown:
        return Unavailable("the table “family” holds neither accuracy nor total variation")
    figure, axes = canvas(5.4 * len(shown), 4.0, len(shown))
    for ax, name in zip(axes, shown, strict=True):
        if name == "tv":
            lams, middle, top = family_null(frame)
            ax.fill_between(lams, 0, top, color=_GREY, alpha=0.22, lw=0, label="null, 95 %")
            ax.plot(lams, middle, ":", color=_GREY)
        for k, (steps, look) in enumerate(looks.items()):
            rows = ordered(rows_where(frame, "steps", steps), "lam")
            x = [lam + 0.006 * (k - (len(looks) - 1) / 2) for lam in column(rows, "lam")]
            ends = (column(rows, f"{name}_low"), column(rows, f"{name}_high"))
            _bars(ax, x, ends, look.colour)
            ax.plot(x, column(rows, name), MARKERS[look.symbol] + "-", color=look.colour, ms=5,
                    label=look.label)  # fmt: skip
        titled(ax, "λ (0: ODE, 1: SDE)", name if name == "accuracy" else "TV", titles[name])
    axes[-1].legend(frameon=False, fontsize=8)
    return figure


def _sheet(strip: Strip | Unavailable) -> Figure | Unavailable:
    """Strip of images as a figure: a row of axes for each row."""
    if isinstance(strip, Unavailable):
        return strip
    rows, columns, _, height, width, _ = strip.images.shape
    size = (1.1 + 0.75 * columns, 0.35 + 0.75 * rows * height / width)
    figure = Figure(figsize=size, facecolor="white")
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(left=1.1 / size[0], right=0.99, bottom=0.01, top=1 - 0.3 / size[1],
                           wspace=0.05, hspace=0.05)  # fmt: skip
    for i in range(rows):
        for j in range(columns):
            ax = axes[i, j]
            ax.imshow(strip.images[i, j, 0], interpolation="nearest", aspect="auto")
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            if i == 0:
                ax.set_title(strip.columns[j], fontsize=8, color=theme.MUTED, pad=2)
        axes[i, 0].set_ylabel(strip.rows[i], fontsize=8, color=theme.INK, rotation=0, ha="right",
                              va="center")  # fmt: skip
    figure.text(0.01, 0.99, strip.corner, fontsize=8, color=theme.MUTED, va="top")
    return figure


IMAGE_PICTURES: dict[str, Callable[[Source], Figure | Unavailable]] = {
    "image_parity": _parity,
    "image_samples": lambda source: _sheet(sample_strip(source)),
    "image_weak_error": _order,
    "image_smoothness": _smoothness,
    "image_rotation": _rotation,
    "image_information": _information,
    "image_uturn": _uturn,
    "image_uturn_strip": lambda source: _sheet(uturn_strip(source)),
    "image_family": _family,
}
"""Pictures of a report about an image model by the name of their file."""
