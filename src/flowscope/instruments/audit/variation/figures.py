"""How far each layer moves the output, drawn."""

import math

from flowscope.instruments.audit.depth_curves import (
    CONTROLS,
    along_depth,
    depth_band,
    depth_line,
    log_range,
)
from flowscope.instruments.audit.spans import spans
from flowscope.report import theme
from flowscope.report.escaping import hover
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["variation"]


def variation(source: Source) -> Picture:
    """Relative step of each layer on a logarithmic axis, with segments, jumps and controls."""
    frame = source.table("layers", "layer", "relative_step")
    steps = frame[[layer > 0 for layer in column(frame, "layer")]]
    traces = [*depth_band(steps, "relative_step", theme.BLUE, floor=True)]
    traces += [depth_line(steps, "relative_step", theme.BLUE), *_controls(source), *_jumps(source)]
    y = theme.axis("relative step ‖Δz‖² / ‖z‖²", type="log", exponentformat="power", dtick=1)
    y["range"] = log_range(traces)
    return {"data": traces, "layout": along_depth(y, spans(source), 400, labels=True)}


def _controls(source: Source) -> list[Picture]:
    frame = source.rows("segments", "first_layer", "last_layer")
    first, last = column(frame, "first_layer"), column(frame, "last_layer")
    traces = []
    for name, (label, colour, dash) in CONTROLS.items():
        for a, b, value in zip(first, last, column(frame, name), strict=True):
            if value > 0 and not math.isnan(a + b):
                traces.append(_reference(a - 0.42, b + 0.42, value, (label, colour, dash)))
    return traces


def _reference(start: float, end: float, value: float, style: tuple[str, str, str]) -> Picture:
    label, colour, dash = style
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [start, (start + end) / 2, end],
        "y": [value] * 3,
        "line": {"color": colour, "width": 1.6, "dash": dash},
        "hovertext": hover([f"{label}: {numeral(value)}"]),
        "hoverinfo": "text",
    }


def _jumps(source: Source) -> list[Picture]:
    frame = source.rows("jumps", "layer", "relative_step")
    if frame.empty:
        return []
    layers, sizes = column(frame, "layer"), column(frame, "relative_step")
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": layers,
            "y": sizes,
            "marker": {"symbol": "diamond", "size": 13, "color": theme.VERMILION},
            "hovertext": [
                hover([f"jump at layer {layer:g}", f"relative step {numeral(size)}"])
                for layer, size in zip(layers, sizes, strict=True)
            ],
            "hoverinfo": "text",
        }
    ]
