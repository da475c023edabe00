"""Movement against tail mass, and its slope by layer, drawn."""

import math

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, depth_axis, dots, ends, level, line
from flowscope.report.rows import above_zero
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["BOUND", "TV", "locking", "locking_slope"]

_SPREAD = 0.1
"""Standard deviation of log tail mass below which a slope is noise over nothing."""


TV = Look("TV of a step, median", theme.BLUE, symbol="circle")
BOUND = Look("exact bound, median", theme.VERMILION, "dash")
_SAID = (
    "tail mass {tail_mass_low} to {tail_mass_high} (n = {n:6})",
    "median TV {tv_median}, quartiles {tv_q25..tv_q75}",
    "exact bound, median {bound_median}",
    "bound informative in {informative_share:%} of rows",
)
_LOG = {"type": "log", "exponentformat": "power", "dtick": 1}


def locking(source: Source) -> Picture:
    """Movement of the output against tail mass, with the exact bound and where it says anything."""
    frame = source.table("locking", "tail_mass_low", "tail_mass_high", "tv_median")
    low, high = column(frame, "tail_mass_low"), column(frame, "tail_mass_high")
    bins = [(a if a > 0 else b / 10, b) for a, b in zip(low, high, strict=True)]
    centre = [math.sqrt(a * b) for a, b in bins]
    names = ("tv_median", "tv_q25", "tv_q75")
    *shade, median = line(centre, frame, names, TV, *_SAID, place=above_zero)
    bound = line(centre, frame, ("bound_median",), BOUND, place=above_zero)
    steps = [
        curve([edges[0], middle, edges[1]], [share] * 3, _INFORMATIVE, [text] * 3, fill="tozeroy",
              fillcolor=theme.faded(theme.VERMILION, 0.55))
        for edges, middle, share, text in zip(
            bins, centre, column(frame, "informative_share"), notes(frame, *_SAID), strict=True
        )
    ]  # fmt: skip
    panels = [
        Panel(
            title="TV of one step",
            traces=[*shade, *bound, median],
            axis=_LOG,
        ),
        Panel(title="informative", traces=steps, share=0.3,
              axis={"range": [0, 1], "tickformat": ".0%", "nticks": 3}),
    ]  # fmt: skip
    return stacked(panels, theme.axis("tail mass δ = 1 − p_max", **_LOG), 274, gap=0.12)


def locking_slope(source: Source) -> Picture:
    """Locking slope of each layer with its interval; layers that the verdict uses are filled."""
    frame = source.table("locking_slopes", "layer", "slope", "mixed")
    spread = zip(column(frame, "slope"), column(frame, "log_tail_sd"), strict=True)
    frame = frame[[math.isfinite(slope) and sd >= _SPREAD for slope, sd in spread]]
    if frame.empty:
        raise Missing("the table “locking_slopes” holds no slope: no layer has spread in tail mass")
    mixed = [word == "True" for word in words(frame, "mixed")]
    used = ["used by the verdict" if m else "not mixed: not used by the verdict" for m in mixed]
    drawn = dots("layer", frame.assign(used=used), ends("slope"), _SLOPE,
                 "layer {layer:g}: slope {}", "slope of the step size {size_slope}",
                 "{decided:%} of {tokens:6} tokens decided before it", "{used!s}",
                 filled=mixed)  # fmt: skip
    x, y = depth_axis(column(frame, "layer")), theme.axis("slope on log δ")
    return {"data": [drawn], "layout": theme.layout(x, y, 340, shapes=[level(0.0, yref="y")])}


_SLOPE = Look("slope", theme.BLUE, symbol="circle")
_INFORMATIVE = Look("informative", theme.VERMILION)
