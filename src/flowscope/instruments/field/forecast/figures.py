"""Figures of the forecast: cost of rounding along depth, and forecast against measured cost."""

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.traces import line, points
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.rows import above_zero, known, rows_where
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "agreement", "forecast_section", "rounding"]

_LOOKS = {
    ("predicted", "low", "high"): Look("forecast", theme.BLUE, "solid", "circle"),
    ("measured", "measured_low", "measured_high"): Look(
        "measured", theme.VERMILION, "dash", "square"
    ),
}
_KINDS = {
    "quantise": Look("weights rounded", theme.BLUE, "solid", "circle"),
    "scale": Look("writes × 0.9", theme.GREEN, "solid", "diamond"),
    "skip": Look("block left out", theme.VERMILION, "solid", "square"),
}
_EQUAL = Look("measured = forecast", theme.MUTED, "dot")


def rounding(source: Source) -> Picture:
    """Cost of rounding each block, forecast and measured."""
    columns = [name for names in _LOOKS for name in names]
    frame = rows_where(source.table("forecast", "kind", "layer", *columns), "kind", "quantise")
    traces = [
        trace
        for names, look in _LOOKS.items()
        for trace in line("layer", frame, names, look, "block {layer:g}", look.label + " {} nats")
    ]
    axes = theme.axis("block"), theme.axis("nats per token", rangemode="tozero")
    return {"data": traces, "layout": theme.layout(*axes, 300)}


def agreement(source: Source) -> Picture:
    """Measured cost of every change against its forecast."""
    frame = source.table("forecast", "kind", "layer", "predicted", "measured")
    traces = [
        _dots(rows_where(frame, "kind", kind), look)
        for kind, look in _KINDS.items()
        if len(rows_where(frame, "kind", kind))
    ]
    values = [v for trace in traces for side in ("x", "y") for v in known(trace[side])]
    if not values:
        raise Missing("no change has both a forecast and a measured cost above 0")
    ends = [min(values), max(values)]
    equal = {
        "type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
        "line": {"color": theme.MUTED, "width": 1.2, "dash": "dot"},
    }  # fmt: skip
    log = {"type": "log", "exponentformat": "power", "dtick": 1}
    axes = theme.axis("forecast, nats per token", **log), theme.axis("measured", **log)
    return {"data": [equal, *traces], "layout": theme.layout(*axes, 340)}


def _dots(frame: pd.DataFrame, look: Look) -> Picture:
    x, y = ([above_zero(v) for v in column(frame, name)] for name in ("predicted", "measured"))
    lines = f"{look.label}, block {{layer:g}}", "forecast {predicted} nats", "measured {measured}"
    return points(x, y, look, notes(frame, *lines))


def _rounding_said(source: Source) -> str:
    return (
        "What rounding the weights of one block costs: forecast from gradients (blue) and measured "
        "on other prompts (red), with 95 % intervals. Other changes are in the table."
    )


def _agreement_said(source: Source) -> str:
    return (
        "Every change of one block, a dot each. On the dotted line the forecast is the cost; a "
        "kind that leaves it by more than a factor of 2 is only ranked. Forecast and measurement "
        "are on different prompts. The table compares ranks with what peers see: error of the "
        "output, turn of the state (block influence), error of the weights."
    )


def forecast_section(source: Source) -> str:
    """Section of the forecast."""
    drawn = "".join(shown(source, name, figure) for name, figure in FIGURES.items())
    there = len(source.rows("forecast_kinds"))
    return drawn + (numbers(source, "forecast_kinds") if there else "")


FIGURES: dict[str, Figure] = {
    "rounding": Figure(
        title="Cost of rounding a block",
        draw=rounding,
        caption=_rounding_said,
        key=tuple(_LOOKS.values()),
        table="forecast",
        verdicts=("F3",),
        measurements=("forecast",),
    ),
    "agreement": Figure(
        title="Forecast against measured cost",
        draw=agreement,
        caption=_agreement_said,
        key=(*_KINDS.values(), _EQUAL),
        table="forecast",
        verdicts=("F3",),
        measurements=("forecast",),
    ),
}
"""Figures of the forecast."""
