"""Curves of the internal gap by layer, and of the energies of modes over the steps."""

import itertools
import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.sync.series import BANDS, Series, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import band, compact, curve, depth_axis, level, line, upright
from flowscope.report.numerals import numeral
from flowscope.report.rows import above_zero, known, ordered, rows_where
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = [
    "beyond_null",
    "default_layer",
    "energy_figure",
    "energy_layers",
    "gap_figure",
    "gap_panel",
    "gap_range",
]


_NULL = "#7b8791"


_MOST = 36_000
"""Numbers that the energies of all layers may put on the page."""


def beyond_null(rows: pd.DataFrame) -> list[bool]:
    """Whether each gap lies outside the band of its exchange null."""
    values, low, high = (column(rows, name) for name in ("log_gap", "null_low", "null_high"))
    return [v < a or v > b for v, a, b in zip(values, low, high, strict=True)]


def gap_figure(source: Source) -> Picture:
    """Log ratio of trailing to leading modes by layer, all couplings in one frame."""
    frame = source.table("internal_gap", "g", "layer", "log_gap")
    traces = [_gap_line(ordered(rows_of(frame, one), "layer"), one)
              for one in series_of(source, "internal_gap")]  # fmt: skip
    x, y = depth_axis(column(frame, "layer")), theme.axis("gap: log (trailing / leading)")
    return {"data": compact(traces), "layout": theme.layout(x, y, 360, shapes=[level(0.0)])}


def _gap_line(rows: pd.DataFrame, one: Series) -> Picture:
    joint = [f" (over all layers {numeral(p)})" if math.isfinite(p) else ""
             for p in column(rows, "p_all")]  # fmt: skip
    said = (
        f"{one.label}, layer {{layer:6}}, step {{step:6}}",
        "log ratio {log_gap} {low..high}",
        "exchange null {null_low..null_high}, p = {p}{joint!s}",
        "G_int as published {naive}",
    )
    marks = [one.symbol if out else f"{one.symbol}-open" for out in beyond_null(rows)]
    marker = {"size": 8, "color": one.colour, "symbol": marks}
    look = Look(one.label, one.colour, symbol=one.symbol)
    return line("layer", rows.assign(joint=joint), ("log_gap",), look, *said, marker=marker)[0]


def gap_range(frame: pd.DataFrame) -> list[float]:
    """Range of the panels: all gaps, intervals and nulls; the naive ratio at most as far again."""
    parts = ("log_gap", "low", "high", "null_low", "null_high")
    core = [v for name in parts for v in column(frame, name) if math.isfinite(v)] or [0.0]
    low, high = min([0.0, *core]), max([0.0, *core])
    room = high - low or 1.0
    naive = [math.log(v) for v in column(frame, "naive") if 0 < v < math.inf] or [0.0]
    low, high = max(min([low, *naive]), low - room / 2), min(max([high, *naive]), high + room / 2)
    edge = 0.06 * (high - low) or 1.0
    return [low - edge, high + edge]


def gap_panel(source: Source, one: Series) -> Picture:
    """Gap of one coupling with its interval, the exchange null and the naive ratio."""
    frame = source.table("internal_gap", "g", "layer", "log_gap")
    rows = ordered(rows_of(frame, one), "layer")
    if rows.empty:
        raise Missing(f"the table “internal_gap” has no rows at {one.label}")
    layers = column(rows, "layer")
    faint = Look("naive", theme.faded(theme.INK, 0.4), "dot")
    logs = [math.log(v) if 0 < v < math.inf else math.nan for v in column(rows, "naive")]
    traces = [
        *band(layers, column(rows, "null_low"), column(rows, "null_high"), _NULL),
        curve(layers, logs, faint, line={"color": faint.colour, "width": 1.3, "dash": "dot"}),
        *band(layers, column(rows, "low"), column(rows, "high"), one.colour),
        _gap_line(rows, one),
    ]
    x = depth_axis(column(frame, "layer"), nticks=8)
    y = theme.axis("log ratio", range=gap_range(frame), nticks=6)
    return {"data": compact(traces), "layout": theme.layout(x, y, 260, shapes=[level(0.0)])}


def energy_layers(source: Source) -> list[float]:
    """Layers whose energies were recorded, in order."""
    frame = source.table("energies", "g", "layer", "step", "lead", "trail")
    found = sorted({layer for layer in column(frame, "layer") if math.isfinite(layer)})
    if not found:
        raise Missing("the table “energies” names no layer")
    return found


def default_layer(layers: Sequence[float]) -> int:
    """Index of the layer shown first: near the end, where 004 sees its gap.

    Examples
    --------
    >>> default_layer([1.0, 2.0, 3.0]), default_layer(range(1, 29))
    (2, 25)
    """
    return max(len(layers) - 1 - len(layers) // 10, 0)


def energy_figure(source: Source, layer: float) -> Picture:
    """Energies of both bands and the size of the difference over the steps, logarithmic axes."""
    frame = source.table("energies", "g", "layer", "step", "lead", "trail")
    stride = math.ceil(3 * len(frame) / _MOST)
    own, every = rows_where(frame, "layer", layer), series_of(source, "energies")
    energies, sizes = [], []
    for one in every:
        rows = ordered(rows_of(own, one), "step").iloc[::stride]
        for name, (title, dash) in BANDS.items():
            energies.append(_timeline(rows, name, one, dash, f"{one.label}, {title}"))
        sizes.append(_timeline(rows, "difference", one, "solid", f"{one.label}, difference"))
    panels = [
        Panel(title=title, traces=traces, share=share,
              axis=log_axis(title, [v for trace in traces for v in trace["y"]]))
        for title, traces, share in (("energy of the band (start = 1)", energies, 1.0),
                                     ("difference", sizes, 0.52))
    ]  # fmt: skip
    x = theme.axis("reverse step (0: noise)", showgrid=False)
    read = [mark for one in every for mark in _read_at(source, one)]
    return stacked(panels, x, 287, gap=0.09, shapes=read)


def _timeline(rows: pd.DataFrame, name: str, one: Series, dash: str, label: str) -> Picture:
    return {
        "type": "scatter",
        "mode": "lines",
        **_places(column(rows, "step")),
        "y": [above_zero(value) for value in column(rows, name)],
        "line": {"color": one.colour, "width": 1.8, "dash": dash},
        "hovertemplate": f"{label}<br>step %{{x}}: %{{y:.3g}}<extra></extra>",
    }


def _places(steps: list[float]) -> Picture:
    """Steps along the axis: as start and stride where they are even, which takes less room."""
    strides = {b - a for a, b in itertools.pairwise(steps)}
    return {"x0": steps[0], "dx": strides.pop()} if len(strides) == 1 else {"x": steps}


def _read_at(source: Source, one: Series) -> list[Picture]:
    """Step at which the internal gap of this coupling was read."""
    frame = source.rows("internal_gap", "g", "step")
    steps = sorted(set(known(column(rows_of(frame, one), "step"))))
    return [upright(step, line={"color": one.colour, "width": 1, "dash": "dot"}) for step in steps]
