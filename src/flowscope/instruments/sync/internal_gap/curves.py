"""Curves of the internal gap by layer, and of the energies of modes over the steps."""

import itertools
import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.sync.series import BANDS, Series, rows_by, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis
from flowscope.report.drawing.traces import band, compact, curve, extent, level, upright
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import rows_where
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
    traces = [_gap_line(rows_by(rows_of(frame, one), "layer"), one)
              for one in series_of(source, "internal_gap")]  # fmt: skip
    x = theme.axis("layer", showgrid=False, range=extent(column(frame, "layer")))
    y = theme.axis("gap: log (trailing / leading)")
    return {"data": compact(traces), "layout": theme.layout(x, y, 360, shapes=[level(0.0)])}


def _gap_line(rows: pd.DataFrame, one: Series) -> Picture:
    layers, values = column(rows, "layer"), column(rows, "log_gap")
    outside = beyond_null(rows)
    marks = [one.symbol if out else f"{one.symbol}-open" for out in outside]
    marker = {"size": 8, "color": one.colour, "symbol": marks}
    style = (one.label, one.colour, "solid")
    return curve(layers, values, style, _gap_notes(rows, one), mode="lines+markers", marker=marker)


def _gap_notes(rows: pd.DataFrame, one: Series) -> list[str]:
    names = ("layer", "log_gap", "low", "high", "null_low", "null_high", "p", "naive", "step",
             "p_all")  # fmt: skip
    notes = []
    for layer, v, low, high, a, b, p, naive, step, joint in zip(
        *(column(rows, name) for name in names), strict=True
    ):
        lines = [
            f"{one.label}, layer {numeral(layer, 6)}, step {numeral(step, 6)}",
            f"log ratio {numeral(v)} {bounds(low, high)}".strip(),
            f"exchange null {bounds(a, b) or 'not given'}, p = {numeral(p)}",
            f"G_int as published {numeral(naive)}",
        ]
        lines[2] += f" (over all layers {numeral(joint)})" if math.isfinite(joint) else ""
        notes.append(hover(lines))
    return notes


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
    rows = rows_by(rows_of(frame, one), "layer")
    if rows.empty:
        raise Missing(f"the table “internal_gap” has no rows at {one.label}")
    layers = column(rows, "layer")
    null = band(layers, column(rows, "null_low"), column(rows, "null_high"), _NULL)
    logs = [math.log(v) if 0 < v < math.inf else math.nan for v in column(rows, "naive")]
    faint = curve(layers, logs, ("naive", theme.faded(theme.INK, 0.4), "dot"), [],
                  hoverinfo="skip")  # fmt: skip
    faint["line"]["width"] = 1.3
    shade = band(layers, column(rows, "low"), column(rows, "high"), one.colour)
    x = theme.axis("layer", showgrid=False, range=extent(column(frame, "layer")), nticks=8)
    y = theme.axis("log ratio", range=gap_range(frame), nticks=6)
    layout = theme.layout(x, y, 260, shapes=[level(0.0)])
    traces = [*null, faint, *shade, _gap_line(rows, one)]
    return {"data": compact(traces), "layout": layout}


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
    own = rows_where(frame, "layer", layer)
    traces: list[Picture] = []
    every = series_of(source, "energies")
    for one in every:
        rows = rows_by(rows_of(own, one), "step").iloc[::stride]
        steps = column(rows, "step")
        for name, (title, dash) in BANDS.items():
            traces.append(_timeline(steps, column(rows, name), one, dash, f"{one.label}, {title}"))
        sizes = column(rows, "difference")
        traces.append(_timeline(steps, sizes, one, "solid", f"{one.label}, difference", "y2"))
    y = _log_axis("energy of the band (start = 1)", traces, "y") | {"domain": [0.4, 1]}
    below = _log_axis("difference", traces, "y2") | {"domain": [0, 0.31]}
    x = theme.axis("reverse step (0: noise)", anchor="y2", showgrid=False)
    read = [line for one in every for line in _read_at(source, one)]
    return {"data": compact(traces), "layout": theme.layout(x, y, 500, yaxis2=below, shapes=read)}


def _log_axis(title: str, traces: Sequence[Picture], name: str) -> Picture:
    return log_axis(title, [v for trace in traces if trace["yaxis"] == name for v in trace["y"]])


def _timeline(
    steps: list[float], values: list[float], one: Series, dash: str, name: str, axis: str = "y"
) -> Picture:
    return {
        "type": "scatter",
        "mode": "lines",
        **_places(steps),
        "y": [v if 0 < v < math.inf else math.nan for v in values],
        "yaxis": axis,
        "line": {"color": one.colour, "width": 1.8, "dash": dash},
        "hovertemplate": f"{name}<br>step %{{x}}: %{{y:.3g}}<extra></extra>",
    }


def _places(steps: list[float]) -> Picture:
    """Steps along the axis: as start and stride where they are even, which takes less room."""
    strides = {b - a for a, b in itertools.pairwise(steps)}
    return {"x0": steps[0], "dx": strides.pop()} if len(strides) == 1 else {"x": steps}


def _read_at(source: Source, one: Series) -> list[Picture]:
    """Step at which the internal gap of this coupling was read."""
    frame = source.rows("internal_gap", "g", "step")
    steps = {step for step in column(rows_of(frame, one), "step") if math.isfinite(step)}
    line = {"color": one.colour, "width": 1, "dash": "dot"}
    return [upright(step) | {"line": line} for step in sorted(steps)]
