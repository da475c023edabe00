"""Figures along time of a run of an image model: parity, smoothness, rotation, information.

Each function takes the tables and returns a plotly figure as plain data, or why there is none.
"""

import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.image.figures.axes import SAMPLERS, Clock, Panel, clock_of, stacked
from flowscope.instruments.image.figures.tables import window_of
from flowscope.records import Missing, Unavailable
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.log_axes import log_axis
from flowscope.report.marks import Look
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.rows import known, ordered, positive, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture
from flowscope.report.traces import band, curve, level, whiskers

__all__ = [
    "EXACT",
    "STATISTICS",
    "above_null",
    "channel_name",
    "information_figure",
    "line",
    "parity_channels",
    "parity_figure",
    "rotation_figure",
    "rotation_rows",
    "smoothness_figure",
    "smoothness_is_log",
    "uturn_figure",
]

STATISTICS = {"tv": "total variation", "ks": "Kolmogorov–Smirnov"}
"""Distances between two histograms: the prefix of their columns and their name."""

EXACT = Look(label="closed form", colour=theme.GREEN, dash="dash")
_GREY = "#7b8791"
_WIDE = 20.0
"""Ratio of the largest to the least step from which the axis is logarithmic."""


def line(
    x: Sequence[float], rows: pd.DataFrame, names: tuple[str, str, str], look: Look,
    texts: Sequence[str],
) -> list[Picture]:  # fmt: skip
    """Curve of a column with the band between two others."""
    value, low, high = (column(rows, name) for name in names)
    shade = band(x, low, high, look.colour)
    for area in shade:
        area["fillcolor"] = theme.faded(look.colour, 0.16)
    style = (look.label, look.colour, look.dash)
    dots = {"size": 6, "color": look.colour, "symbol": look.symbol}
    return [*shade, curve(x, value, style, texts, mode="lines+markers", marker=dots)]


def _told(rows: pd.DataFrame, names: tuple[str, str, str], lead: str, *more: str) -> list[str]:
    """Hover texts of a column with its interval, then further columns by their name."""
    parts = [column(rows, name) for name in ("time", "log_snr", *names)]
    others = {name: column(rows, name) for name in more}
    texts = []
    for k, (time, snr, value, low, high) in enumerate(zip(*parts, strict=True)):
        lines = [
            f"time {numeral(time, 6)}, log snr {numeral(snr)}",
            f"{lead} {numeral(value)} {bounds(low, high)}".strip(),
        ]
        lines += [f"{name.replace('_', ' ')} {numeral(own[k], 6)}" for name, own in others.items()
                  if math.isfinite(own[k])]  # fmt: skip
        texts.append(hover(lines))
    return texts


def parity_channels(source: Source) -> list[str]:
    """Channels of the table ``parity``, their mean first."""
    frame = source.table("parity", "log_snr", "channel", "tv")
    found = list(dict.fromkeys(words(frame, "channel")))
    return sorted(found, key=lambda name: (name != "all", found.index(name)))


def channel_name(channel: str) -> str:
    """Words for a channel in a list of channels."""
    return "all channels (mean)" if channel == "all" else f"channel {channel}"


def above_null(rows: pd.DataFrame, name: str) -> list[bool]:
    """Whether each distance lies above the 95 % line of its null."""
    pairs = zip(column(rows, name), column(rows, f"{name}_null_high"), strict=True)
    return [value > top for value, top in pairs]


def parity_figure(source: Source, channel: str) -> Picture:
    """Distance between the two samplers over time above that between two runs of one."""
    frame = source.table("parity", "log_snr", "channel", "tv")
    rows = ordered(rows_where(frame, "channel", channel), "log_snr")
    if rows.empty:
        raise Missing("the table “parity” has no rows of this channel")
    clock = clock_of(rows)
    panels = [
        Panel(title=title, traces=_distance(rows, clock, name), axis={"rangemode": "tozero"})
        for name, title in STATISTICS.items()
        if known(column(rows, name))
    ]
    if not panels:
        raise Missing("the table “parity” holds no distance")
    return stacked(panels, clock.axis(), 250)


def _distance(rows: pd.DataFrame, clock: Clock, name: str) -> list[Picture]:
    x, value = clock.at(column(rows, "log_snr")), column(rows, name)
    middle, top = column(rows, f"{name}_null"), column(rows, f"{name}_null_high")
    below = band(x, [0.0] * len(x), top, _GREY)
    quiet = {"hoverinfo": "skip"}
    lines = [
        curve(x, top, ("95 % of the null", _GREY, "solid"), [], **quiet),
        curve(x, middle, ("median of the null", _GREY, "dot"), [], **quiet),
    ]
    ends = (name, f"{name}_low", f"{name}_high")
    more = (f"{name}_null", f"{name}_null_high", f"{name}_p", "outside", "images")
    texts = _told(rows, ends, STATISTICS[name], *more)
    own = line(x, rows, ends, Look(label=name, colour=theme.BLUE), texts)
    filled = above_null(rows, name)
    own[-1]["marker"] = {
        "size": 7,
        "color": [theme.BLUE if out else "#ffffff" for out in filled],
        "line": {"width": 1.6, "color": theme.BLUE},
    }
    own[-1]["y"] = value
    return [*below, *lines, *own]


def smoothness_is_log(frame: pd.DataFrame) -> bool:
    """Whether the sizes differ so much that their axis is logarithmic."""
    sizes = known(column(frame, "size"))
    return bool(sizes) and 0 < min(sizes) * _WIDE < max(sizes)


def smoothness_figure(source: Source) -> Picture:
    """Size of the steps of both samplers over time."""
    frame = source.table("smoothness", "sampler", "log_snr", "size")
    log, clock = smoothness_is_log(frame), clock_of(frame)
    traces: list[Picture] = []
    for name, look in SAMPLERS.items():
        rows = ordered(rows_where(frame, "sampler", name), "log_snr")
        if rows.empty:
            continue
        own = rows.assign(**{part: positive(column(rows, part)) for part in ("size", "low", "high")
                             }) if log else rows  # fmt: skip
        texts = _told(rows, ("size", "low", "high"), f"{look.label}, step")
        places = clock.at(column(rows, "log_snr"))
        traces += line(places, own, ("size", "low", "high"), look, texts)
    if not traces:
        raise Missing("the table “smoothness” names neither sampler")
    title = "rms step per pixel"
    ends = [v for own in traces for v in own["y"]]
    scale = log_axis(title, ends, most=9) if log else {"rangemode": "tozero"}
    panel = Panel(title=title, traces=traces, axis=scale)
    return stacked([panel], clock.axis(), 290)


def rotation_rows(source: Source) -> pd.DataFrame:
    """Times at which the rotation of the score was measured, in order."""
    frame = source.table("rotation", "log_snr", "normalised")
    kept = frame[[math.isfinite(value) for value in column(frame, "normalised")]]
    if kept.empty:
        reasons = [reason for reason in words(frame, "because") if reason]
        raise Missing(reasons[0] if reasons else "the table “rotation” holds no number")
    return ordered(kept, "log_snr")


def rotation_figure(source: Source) -> Picture:
    """Share of the score that turns over time with its controls; below, the gradient part."""
    frame = rotation_rows(source)
    clock = clock_of(frame)
    x = clock.at(column(frame, "log_snr"))
    apart = 0.006 * (clock.room[1] - clock.room[0])
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [place + side * apart for place in x],
            "y": column(frame, name),
            "marker": {"size": 8, "symbol": symbol, "color": colour,
                       "line": {"width": 1.6, "color": colour}},
            "hovertext": _told(frame, (name, "", ""), label),
            "hoverinfo": "text",
        }
        for name, (label, colour, symbol, side) in CONTROLS.items()
    ]  # fmt: skip
    more = ("p_value", "planted_share", "points", "images")
    texts = _told(frame, ("normalised", "low", "high"), "share that turns", *more)
    ends = (column(frame, "low"), column(frame, "high"))
    look = (theme.BLUE, detected(frame))
    traces.append(whiskers(x, column(frame, "normalised"), ends, look, texts))
    panels = [Panel(title="R, share that turns", traces=traces, shapes=[level(0.0)])]
    if known(column(frame, "gradient_error")):
        panels.append(_gradient(frame, x))
    return stacked(panels, clock.axis(), 250)


def _gradient(frame: pd.DataFrame, x: Sequence[float]) -> Panel:
    names = ("gradient_error", "gradient_error_low", "gradient_error_high")
    value, low, high = (column(frame, name) for name in names)
    clear = [a > 0 or b < 0 for a, b in zip(low, high, strict=True)]
    texts = _told(frame, names, "gradient part of the error")
    dots = whiskers(x, value, (low, high), (theme.VERMILION, clear), texts)
    dots["marker"]["symbol"] = "square"
    return Panel(title="gradient part", traces=[dots], shapes=[level(0.0)], share=0.75)


def information_figure(source: Source) -> Picture:
    """What is not yet known of the class over time, the rate below, and the window of most."""
    frame = source.table("information", "log_snr", "entropy")
    rows = ordered(frame, "log_snr")
    clock = clock_of(rows)
    x, blue = clock.at(column(rows, "log_snr")), Look(label="measured", colour=theme.BLUE)
    names = ("entropy", "low", "high")
    own = line(x, rows, names, blue, _told(rows, names, "H(Y | x)", "exact", "images"))
    top = max(known(v for name in (*names, "exact") for v in column(rows, name)), default=1.0)
    room = [-0.04 * top, 1.06 * top]
    panels = [
        Panel(
            title="H(Y | x) (nats)",
            traces=[*own, *_exact(x, rows)],
            axis={"range": room},
        )
    ]
    if known(column(rows, "rate")):
        names = ("rate", "rate_low", "rate_high")
        drawn = line(x, rows, names, blue, _told(rows, names, "gain per unit of log snr"))
        panels.append(Panel(title="nats per log snr", traces=drawn, shapes=[level(0.0)], share=0.7))
    window = window_of(rows)
    return stacked(panels, clock.axis(), 260, across=[] if isinstance(window, Unavailable) else [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": window.first, "x1": window.last,
         "y0": 0, "y1": 1, "layer": "below", "fillcolor": theme.PASSING, "line": {"width": 0}}
    ])  # fmt: skip


def _exact(x: Sequence[float], rows: pd.DataFrame) -> list[Picture]:
    """Closed form, where there is one."""
    exact = column(rows, "exact")
    if not known(exact):
        return []
    style = (EXACT.label, EXACT.colour, EXACT.dash)
    return [curve(x, exact, style, _told(rows, ("exact", "", ""), EXACT.label))]


def uturn_figure(source: Source) -> Picture:
    """Share of images that come back as the class they were, and how like their first selves."""
    frame = source.table("uturn", "log_snr", "same_class")
    rows = ordered(frame, "log_snr")
    clock = clock_of(rows)
    x, panels = clock.at(column(rows, "log_snr")), []
    names = ("same_class", "low", "high")
    blue = Look(label="same class", colour=theme.BLUE)
    if known(column(rows, "same_class")) or known(column(rows, "exact")):
        more = ("exact", "chance", "steps", "images")
        own = line(x, rows, names, blue, _told(rows, names, "come back as their class", *more))
        chance = curve(x, column(rows, "chance"), ("chance", theme.MUTED, "dot"), [],
                       hoverinfo="skip")  # fmt: skip
        panels.append(Panel(title="same class", traces=[chance, *own, *_exact(x, rows)],
                            axis={"range": [-0.03, 1.05]}))  # fmt: skip
    if known(column(rows, "correlation")):
        names = ("correlation", "correlation_low", "correlation_high")
        look = Look(label="correlation", colour=theme.VERMILION, symbol="diamond")
        own = line(x, rows, names, look, _told(rows, names, "correlation", "steps", "images"))
        apart = column(rows, "correlation_chance")
        other = curve(x, apart, ("other images", theme.MUTED, "dot"), [], hoverinfo="skip")
        panels.append(Panel(title="correlation", traces=[other, *own] if known(apart) else own,
                            shapes=[] if known(apart) else [level(0.0)],
                            axis={"range": [min([-0.05, *known(column(rows, names[1]))]), 1.05]},
                            share=0.8))  # fmt: skip
    if not panels:
        raise Missing("the table “uturn” holds no number")
    return stacked(panels, clock.axis(), 260)
