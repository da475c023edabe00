"""How far each layer moves the output, drawn."""

import math

from flowscope.instruments.audit.depth_curves import along_depth, depth_line
from flowscope.instruments.audit.spans import spans
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.traces import curve, points
from flowscope.report.numerals import numeral
from flowscope.report.rows import above_zero
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = ["CONTROLS", "variation"]

CONTROLS = {
    "threshold": Look("gate threshold", theme.INK),
    "random_weights": Look("same architecture, random weights", theme.VERMILION, "dash"),
    "linear_interpolation": Look("straight line between the same ends", theme.GREEN, "dot"),
}
"""Reference values of a segment, and how each is drawn."""

_JUMP = Look("jump", theme.VERMILION, symbol="diamond")


def variation(source: Source) -> Picture:
    """Relative step of each layer on a logarithmic axis, with segments, jumps and controls."""
    frame = source.table("layers", "layer", "relative_step")
    steps = frame[[layer > 0 for layer in column(frame, "layer")]]
    traces = depth_line(steps, "relative_step", place=above_zero)
    traces += [*_controls(source), *_jumps(source)]
    y = theme.axis("relative step ‖Δz‖² / ‖z‖²", type="log", exponentformat="power", dtick=1)
    y["range"] = _range(traces)
    return {"data": traces, "layout": along_depth(y, spans(source), 400, labels=True)}


def _controls(source: Source) -> list[Picture]:
    """Each reference value over the layers of its segment."""
    frame = source.rows("segments", "first_layer", "last_layer")
    first, last = column(frame, "first_layer"), column(frame, "last_layer")
    return [
        curve([a - 0.42, (a + b) / 2, b + 0.42], [value] * 3, look,
              [f"{look.label}: {numeral(value)}"] * 3)
        for name, look in CONTROLS.items()
        for a, b, value in zip(first, last, column(frame, name), strict=True)
        if value > 0 and not math.isnan(a + b)
    ]  # fmt: skip


def _jumps(source: Source) -> list[Picture]:
    frame = source.rows("jumps", "layer", "relative_step")
    if frame.empty:
        return []
    said = notes(frame, "jump at layer {layer:g}", "relative step {relative_step}")
    return [points(column(frame, "layer"), column(frame, "relative_step"), _JUMP, said, size=13)]


def _range(traces: list[Picture]) -> list[float]:
    logs = [math.log10(v) for trace in traces for v in trace["y"] if 0 < v < math.inf]
    low, high = (min(logs), max(logs)) if logs else (-2.0, 0.0)
    room = 0.08 * max(high - low, 0.5)
    return [low - room, high + 2 * room]  # the names of the segments stand at the top
