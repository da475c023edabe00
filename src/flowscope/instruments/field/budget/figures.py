"""Figures of the budget: turn, work and spread along depth, parts of attention, spectra, tokens."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import bent, bent_ticks
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, beside, stacked
from flowscope.report.drawing.traces import ends, level, line
from flowscope.report.figure_html import shown
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "budget", "budget_section", "spectra", "spectra_section", "token_map"]

_ATTENTION = Look("attention", theme.BLUE, "solid", "circle")
_FEED_FORWARD = Look("feed-forward part", theme.VERMILION, "solid", "square")
_STREAM = Look("stream after the block", theme.INK, "dot", "triangle-up")
_WRITES = {"attention": _ATTENTION, "feed_forward": _FEED_FORWARD}
_PARTS = {
    "part_self": Look("the token itself", theme.BLUE, "solid", "circle"),
    "part_others": Look("other tokens", theme.VERMILION, "solid", "square"),
    "part_sink": Look("sinks", theme.GREEN, "dash", "diamond"),
}
_SPECTRA = {
    "high_frequency_stream": _STREAM,
    "high_frequency_attention": _ATTENTION,
    "high_frequency_feed_forward": _FEED_FORWARD,
}
_INTERVALS = "Means over prompts with 95 % intervals."


def _lines(
    frame: pd.DataFrame, looks: Mapping[str, Look], place: Callable[[float], float] = float
) -> list[Picture]:
    """A line with its band for each column that holds a number."""
    traces: list[Picture] = []
    for name, look in looks.items():
        if known(column(frame, name)):
            said = "block {layer:g}", look.label + " {}"
            traces += line("layer", frame, ends(name), look, *said, place=place)
    if not traces:
        raise Missing(f"no block has a number in the columns {', '.join(looks)}")
    return traces


def budget(source: Source) -> Picture:
    """Turn, work and change of the spread by each write, along depth."""
    kinds = {"angular": "angular step", "energy": "work / energy", "spread": "change of spread"}
    frame = source.table("blocks", "layer", *(f"{k}_{w}" for k in kinds for w in _WRITES))
    panels = [
        _panel(frame, {f"{kind}_{write}": look for write, look in _WRITES.items()}, title)
        for kind, title in kinds.items()
    ]
    return stacked(panels, theme.axis("block"), 190)


def _panel(frame: pd.DataFrame, looks: Mapping[str, Look], title: str) -> Panel:
    """Lines on an axis that is logarithmic beyond 1: the first block often exceeds all others."""
    values = [value for name in looks for end in ends(name) for value in column(frame, end)]
    lines = _lines(frame, looks, bent)
    return Panel(title=title, traces=lines, shapes=(level(0.0),), axis=bent_ticks(values))


def parts(source: Source) -> Picture:
    """Where attention's write comes from, along depth."""
    frame = source.table("blocks", "layer", *_PARTS)
    axes = theme.axis("block"), theme.axis("size over that of the write", rangemode="tozero")
    return {"data": _lines(frame, _PARTS), "layout": theme.layout(*axes, 280)}


def spectra(source: Source) -> Picture:
    """Share of high frequencies in the stream and in each write, along depth."""
    frame = source.table("blocks", "layer", *_SPECTRA)
    axes = theme.axis("block"), theme.axis("share of energy", rangemode="tozero")
    layout = theme.layout(*axes, 300, shapes=[level(0.5)])
    return {"data": _lines(frame, _SPECTRA), "layout": layout}


def token_map(source: Source) -> Picture:
    """How far each write turns each token of the first prompt, token by block."""
    frame = source.table("token_steps", "layer", "position", "token", *_WRITES)
    sizes = [v for name in _WRITES for v in map(_decade, column(frame, name)) if math.isfinite(v)]
    if not sizes:
        raise Missing("no token of the first prompt has an angular step")
    ordered = sorted(sizes)
    limits = ordered[len(ordered) // 50], ordered[-1 - len(ordered) // 50]
    return beside({look.label: _heat(frame, name, limits) for name, look in _WRITES.items()})


def _heat(frame: pd.DataFrame, name: str, limits: tuple[float, float]) -> Picture:
    keys = list(zip(column(frame, "layer"), column(frame, "position"), strict=True))
    layers, positions = (sorted(set(side)) for side in zip(*keys, strict=True))
    cells = dict(zip(keys, map(_decade, column(frame, name)), strict=True))
    lines = "block {layer:g}, position {position:g}", "“{token!s}”", f"turned by {{{name}}}"
    texts = dict(zip(keys, notes(frame, *lines), strict=True))
    ticks = list(range(math.floor(limits[0]), math.ceil(limits[1]) + 1))
    heat = {
        "type": "heatmap",
        "x": positions,
        "y": layers,
        "z": [[cells.get((row, at), math.nan) for at in positions] for row in layers],
        "zmin": limits[0],
        "zmax": limits[1],
        "colorscale": theme.colour_scale(theme.SCALE),
        "colorbar": {
            "thickness": 10, "len": 1, "outlinewidth": 0, "tickvals": ticks,
            "ticktext": [f"{10.0**tick:g}" for tick in ticks],
        },
        "hovertext": [[texts.get((row, at), "") for at in positions] for row in layers],
        "hoverinfo": "text",
    }  # fmt: skip
    x = theme.axis("position in the first prompt", showgrid=False)
    y = theme.axis("block", showgrid=False, autorange="reversed")
    return {"data": [heat], "layout": theme.layout(x, y, 120 + 9 * max(20, min(len(layers), 60)))}


def _decade(value: float) -> float:
    return math.log10(value) if 0 < value < math.inf else math.nan


def _said(text: str, source: Source) -> str:
    return text


def budget_section(source: Source) -> str:
    """Section of the budget."""
    names = ("budget", "parts", "token_map")
    return "".join(shown(source, name, FIGURES[name]) for name in names)


def spectra_section(source: Source) -> str:
    """Section of the spectra."""
    return shown(source, "spectra", FIGURES["spectra"])


FIGURES: dict[str, Figure] = {
    "budget": Figure(
        title="Budget along depth",
        draw=budget,
        caption=partial(
            _said,
            "Top: how far the writes of attention (blue) and of the feed-forward part (red) turn a "
            "token, relative to its length. Middle: the work of each write over the energy of the "
            "token; below 0 it shortens it. Bottom: its share in the change of the spread of the "
            f"tokens; below 0 it draws them together. Axes are logarithmic beyond 1. {_INTERVALS}",
        ),
        key=tuple(_WRITES.values()),
        measurements=("budget",),
    ),
    "parts": Figure(
        title="Where attention's write comes from",
        draw=parts,
        caption=partial(
            _said,
            "Size of the part of attention's write that comes from the token itself, from other "
            "tokens and from sinks (the first token, special and massive ones), over the size of "
            f"the write; parts may cancel. {_INTERVALS}",
        ),
        key=tuple(_PARTS.values()),
        measurements=("budget",),
    ),
    "token_map": Figure(
        title="Angular step of each token",
        draw=token_map,
        caption=partial(
            _said,
            "How far attention (left) and the feed-forward part (right) turn each token of the "
            "first prompt, relative to its length, on a logarithmic scale that leaves out a "
            "fiftieth at each end. A massive token turns little: it is long.",
        ),
        measurements=("budget",),
    ),
    "spectra": Figure(
        title="High frequencies along depth",
        draw=spectra,
        caption=partial(
            _said,
            "Share of the energy above half of the highest frequency over positions, without the "
            "mean. White noise has one half (dotted); a write below the stream smooths it. "
            f"{_INTERVALS}",
        ),
        key=tuple(_SPECTRA.values()),
    ),
}
"""Figures of the budget."""
