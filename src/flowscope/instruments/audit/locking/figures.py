"""Movement against tail mass, and its slope by layer, drawn."""

import math
from collections.abc import Sequence
from typing import Any

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.traces import extent, level, whiskers
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["locking", "locking_slope"]

_SPREAD = 0.1
"""Standard deviation of log tail mass below which a slope is noise over nothing."""


def locking(source: Source) -> Picture:
    """Movement of the output against tail mass, with the exact bound and where it says anything."""
    frame = source.table("locking", "tail_mass_low", "tail_mass_high", "tv_median")
    low, high = column(frame, "tail_mass_low"), column(frame, "tail_mass_high")
    parts = ("tv_median", "tv_q25", "tv_q75", "bound_median", "informative_share", "n")
    median, q25, q75, bound, share, n = (column(frame, part) for part in parts)
    bins = [(a if a > 0 else b / 10, b) for a, b in zip(low, high, strict=True)]
    centre = [math.sqrt(a * b) for a, b in bins]
    texts = [
        hover(
            [
                f"tail mass {numeral(low[k])} to {numeral(high[k])} (n = {numeral(n[k], 6)})",
                f"median TV {numeral(median[k])}, quartiles {bounds(q25[k], q75[k])}",
                f"exact bound, median {numeral(bound[k])}",
                f"bound informative in {percent(share[k])} of rows",
            ]
        )
        for k in range(len(centre))
    ]
    traces = [
        *_quartiles(centre, q25, q75),
        _curve(centre, bound, theme.VERMILION, dash="dash", hoverinfo="skip"),
        _curve(centre, median, theme.BLUE, hovertext=texts, hoverinfo="text"),
    ]
    traces += [
        _step(edges, level, text) for edges, level, text in zip(bins, share, texts, strict=True)
    ]
    return {"data": traces, "layout": _locking_layout()}


def locking_slope(source: Source) -> Picture:
    """Locking slope of each layer with its interval; layers that the verdict uses are filled."""
    frame = source.table("locking_slopes", "layer", "slope", "mixed")
    spread = zip(column(frame, "slope"), column(frame, "log_tail_sd"), strict=True)
    frame = frame[[math.isfinite(slope) and sd >= _SPREAD for slope, sd in spread]]
    if frame.empty:
        raise Missing("the table “locking_slopes” holds no slope: no layer has spread in tail mass")
    parts = ("layer", "slope", "slope_low", "slope_high", "size_slope", "decided", "tokens")
    layers, slopes, low, high, sizes, decided, tokens = (column(frame, part) for part in parts)
    mixed = [word == "True" for word in words(frame, "mixed")]
    texts = [
        hover(
            [
                f"layer {layer:g}: slope {numeral(slopes[k])} {bounds(low[k], high[k])}",
                f"slope of the step size {numeral(sizes[k])}",
                f"{percent(decided[k])} of {numeral(tokens[k], 6)} tokens decided before it",
                "used by the verdict" if mixed[k] else "not mixed: not used by the verdict",
            ]
        )
        for k, layer in enumerate(layers)
    ]
    dots = whiskers(layers, slopes, (low, high), (theme.BLUE, mixed), texts)
    x = theme.axis("layer", showgrid=False, range=extent(layers))
    y = theme.axis("slope on log δ")
    return {"data": [dots], "layout": theme.layout(x, y, 340, shapes=[level(0.0, yref="y")])}


def _step(edges: tuple[float, float], level: float, text: str) -> Picture:
    low, high = edges
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [low, math.sqrt(low * high), high],
        "y": [level] * 3,
        "yaxis": "y2",
        "line": {"width": 1, "color": theme.VERMILION},
        "fill": "tozeroy",
        "fillcolor": theme.faded(theme.VERMILION, 0.55),
        "hovertext": text,
        "hoverinfo": "text",
    }


def _locking_layout() -> Picture:
    log: dict[str, Any] = {"type": "log", "exponentformat": "power", "dtick": 1}
    x = theme.axis("tail mass δ = 1 − p_max", **log, anchor="y2")
    y = theme.axis("TV of one step", **log, domain=[0.32, 1])
    below = theme.axis("informative", range=[0, 1], domain=[0, 0.2], tickformat=".0%", nticks=3)
    return theme.layout(x, y, 420, yaxis2=below)


def _curve(x: Sequence[float], y: Sequence[float], colour: str, **more: Any) -> Picture:
    dash = more.pop("dash", "solid")
    return {
        "type": "scatter",
        "mode": "lines" if dash != "solid" else "lines+markers",
        "x": list(x),
        "y": [value if value > 0 else None for value in y],
        "line": {"color": colour, "width": 1.8, "dash": dash},
        "marker": {"size": 7, "color": colour},
        **more,
    }


def _quartiles(x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[Picture]:
    kept = [row for row in zip(x, low, high, strict=True) if row[1] > 0 and row[2] > 0]
    if not kept:
        return []
    centre, bottom, top = zip(*kept, strict=True)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*centre, *reversed(centre)],
            "y": [*top, *reversed(bottom)],
            "fill": "toself",
            "fillcolor": theme.faded(theme.BLUE, 0.22),
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]
