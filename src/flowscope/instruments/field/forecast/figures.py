"""Forecast cost of each change beside the measured one."""

from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.traces import line
from flowscope.report.figure_html import shown
from flowscope.report.source import Source
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "forecast_section", "rounding"]

_LOOKS = {
    ("predicted", "low", "high"): Look("forecast", theme.BLUE),
    ("measured", "measured_low", "measured_high"): Look("measured", theme.VERMILION),
}


def rounding(source: Source) -> Picture:
    """Cost of rounding each block, forecast and measured."""
    columns = [name for names in _LOOKS for name in names]
    frame = source.table("forecast", "kind", "layer", *columns)
    frame = frame[frame["kind"] == "quantise"]
    traces = [
        trace
        for names, look in _LOOKS.items()
        for trace in line("layer", frame, names, look, "block {layer:g}", look.label + " {} nats")
    ]
    axes = theme.axis("block"), theme.axis("nats per token")
    return {"data": traces, "layout": theme.layout(*axes, 300)}


def _caption(source: Source) -> str:
    return (
        "What rounding the weights of one block costs: forecast from gradients (blue) and measured "
        "on other prompts (red), with 95 % intervals over prompts. Other changes are in the table."
    )


def forecast_section(source: Source) -> str:
    """Section of the forecast."""
    return shown(source, "rounding", FIGURES["rounding"])


FIGURES: dict[str, Figure] = {
    "rounding": Figure(title="Cost of rounding a block", draw=rounding, caption=_caption)
}
