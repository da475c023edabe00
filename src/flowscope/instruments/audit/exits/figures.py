"""What the last layers are worth, drawn."""

import math

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import BEND, bent, bent_ticks
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import depth_axis, ends, label, level, line, upright
from flowscope.report.rows import known
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["MOBILITY", "RISE", "depth_loss", "free_layers"]


def free_layers(frame: pd.DataFrame) -> float:
    """Most layers that can be removed without a loss that can be told; NaN if not recorded."""
    pairs = zip(column(frame, "removed"), words(frame, "free"), strict=True)
    return max((k for k, free in pairs if free == "True" and math.isfinite(k)), default=math.nan)


RISE = Look("rise of the loss", theme.BLUE, symbol="circle")
MOBILITY = Look("mobility left", theme.GREEN, "dash")
_WHERE = "{removed:6} layers removed (read at layer {layer:6})"


def depth_loss(source: Source) -> Picture:
    """Rise of the loss as the last layers are removed, above the mobility that was left there."""
    frame = source.table("depth_loss", "removed", "increase")
    removed, free = known(column(frame, "removed")), free_layers(frame)
    if not removed:
        raise Missing("the column removed of the table “depth_loss” holds no number")
    rises = known(v for part in ends("increase") for v in column(frame, part))
    bends = max(map(abs, rises), default=0.0) > BEND
    rise = line("removed", frame, ends("increase"), RISE, _WHERE, f"{RISE.label} {{}}",
                place=bent, customdata=column(frame, "increase"))  # fmt: skip
    title = "rise of loss (nats; log above 1)" if bends else "rise of loss (nats)"
    solid = level(BEND, line={"color": theme.MUTED, "width": 1})
    panels = [
        Panel(title=title, traces=rise, shapes=[solid] if bends else [], axis=bent_ticks(rises)),
        Panel(
            title=MOBILITY.label,
            traces=line("removed", frame, ends("mobility"), MOBILITY, _WHERE,
                        f"{MOBILITY.label} {{}}", customdata=column(frame, "mobility")),
            axis={"rangemode": "tozero", "nticks": 4},
            share=0.45,
        ),
    ]  # fmt: skip
    x = depth_axis(removed, "layers removed from the end")
    if not math.isfinite(free):
        return stacked(panels, x, 314, gap=0.1)
    mark = _free_label(free, near_end=free > sum(x["range"]) / 2)
    return stacked(panels, x, 314, gap=0.1, shapes=[upright(free)], annotations=[mark])


def _free_label(free: float, *, near_end: bool) -> Picture:
    side, shift = ("right", -6) if near_end else ("left", 6)
    return label(free, _free_words(free), xanchor=side, yanchor="top", xshift=shift)


def _free_words(free: float) -> str:
    if free == 0:
        return "no layer can be removed"
    return f"the last {'layer' if free == 1 else f'{free:g} layers'} can be removed"
