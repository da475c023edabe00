r"""What the figures of a run of an image model share: the axis along time, panels on top of it.

Time is drawn as $\log\mathrm{snr}=\log\bar\alpha/(1-\bar\alpha)$, which rises from the noise on the
left to the image on the right. It is infinite where no noise is left (or nothing but noise): such
a row stands one step beyond the last finite one, under a mark that says so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from flowscope.report import theme
from flowscope.report.drawing.marks import Entry, Look
from flowscope.report.drawing.traces import band, compact, curve
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.parts.captions import counted
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = [
    "EXACT",
    "SAMPLERS",
    "Clock",
    "Panel",
    "clock_of",
    "exact_curve",
    "exact_entry",
    "hover_texts",
    "image_count",
    "line",
    "stacked",
]


SAMPLERS = {
    "ode": Look(label="ODE (probability flow)", colour=theme.BLUE, symbol="circle"),
    "sde": Look(label="SDE (λ = 1)", colour=theme.VERMILION, dash="dash", symbol="diamond"),
}
"""Samplers and how each is drawn on the whole page."""


_ENDS = {-math.inf: "noise", math.inf: "image"}


_TICKS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Places along the axis of log snr.

    Attributes
    ----------
    low, high
        Least and largest finite log snr.
    step
        Distance at which an infinite one stands beyond them.
    ends
        The infinite values that occur.
    """

    low: float
    high: float
    step: float
    ends: tuple[float, ...]

    def at(self, values: Iterable[float]) -> list[float]:
        """Where these values of log snr are drawn."""
        beyond = {-math.inf: self.low - self.step, math.inf: self.high + self.step}
        return [beyond.get(value, value) for value in values]

    @property
    def marks(self) -> tuple[list[float], list[str]]:
        """Places of the ticks and their texts."""
        span = self.high - self.low
        most = 6 if self.ends else 10  # the words at the ends need room of their own
        stride = next((tick for tick in _TICKS if span / tick <= most), span / most) or 1.0
        first, last = math.ceil(self.low / stride), math.floor(self.high / stride)
        places = [stride * k for k in range(first, last + 1)]
        beyond = self.at(self.ends)
        places = [p for p in places if all(abs(p - end) > 0.1 * span for end in beyond)]
        texts = [f"{place:g}".replace("-", "−") for place in places]
        return places + beyond, texts + [_ENDS[end] for end in self.ends]

    @property
    def room(self) -> list[float]:
        """Range of the axis, with an edge on either side."""
        places = self.at([self.low, self.high, *self.ends])
        edge = 0.03 * (max(places) - min(places)) or 0.5
        return [min(places) - edge, max(places) + edge]

    def axis(self, **settings: Any) -> Picture:
        """The axis for plotly."""
        places, texts = self.marks
        title = "log snr (noise → image)"
        own = {"range": self.room, "tickvals": places, "ticktext": texts, "tickangle": 0}
        return theme.axis(title, showgrid=False, **own, **settings)


def clock_of(frame: pd.DataFrame) -> Clock:
    """Clock of the rows of a table that has the column log_snr."""
    values = column(frame, "log_snr")
    finite = known(values) or [0.0]
    low, high = min(finite), max(finite)
    ends = tuple(end for end in _ENDS if end in values)
    return Clock(low=low, high=high, step=0.07 * (high - low) or 1.0, ends=ends)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One of several frames on top of each other: title of its axis, traces, lines behind them."""

    title: str
    traces: Sequence[Picture]
    shapes: Sequence[Picture] = ()
    share: float = 1.0
    axis: Mapping[str, Any] = field(default_factory=dict)


def stacked(panels: Sequence[Panel], x: Picture, height: int, *, across: Sequence[Picture] = ()
            ) -> Picture:  # fmt: skip
    """Panels on top of each other over one axis; a panel of share 1 is ``height`` pixels high.

    Parameters
    ----------
    across
        Shapes that run through all panels.
    """
    total = sum(panel.share for panel in panels)
    gap = 0.07 / len(panels) if len(panels) > 1 else 0.0
    room, top = 1 - gap * (len(panels) - 1), 1.0
    axes: Picture = {}
    traces: list[Picture] = []
    shapes: list[Picture] = list(across)
    for k, panel in enumerate(panels):
        name = f"y{k + 1}" if k else "y"
        bottom = max(top - room * panel.share / total, 0.0)
        own = theme.axis(panel.title, nticks=6, domain=[round(bottom, 4), round(top, 4)])
        axes[f"yaxis{k + 1}" if k else "yaxis"] = {**own, **panel.axis}
        traces += [{**trace, "yaxis": name} for trace in panel.traces]
        shapes += [{**shape, "yref": name} for shape in panel.shapes]
        top = bottom - gap
    lowest = f"y{len(panels)}" if len(panels) > 1 else "y"
    first = axes.pop("yaxis")
    layout = theme.layout({**x, "anchor": lowest}, first, round(height * total) + 64, **axes,
                          shapes=shapes)  # fmt: skip
    return {"data": compact(traces), "layout": layout}


EXACT = Look(label="closed form", colour=theme.GREEN, dash="dash")
_NAMES = {
    "tv_null": "median of the null",
    "tv_null_high": "95 % line of the null",
    "tv_p": "p value at this time",
    "ks_null": "median of the null",
    "ks_null_high": "95 % line of the null",
    "ks_p": "p value at this time",
    "outside": "share of values beyond the bins",
    "p_value": "p value of no rotation",
    "planted_share": "share planted in the control",
    "points": "states measured",
    "exact": "closed form",
    "steps": "reverse steps of the way back",
}
"""Words for further columns in a hover text; other columns have their own name."""


def line(
    x: Sequence[float], rows: pd.DataFrame, names: tuple[str, str, str], look: Look,
    texts: Sequence[str],
) -> list[Picture]:  # fmt: skip
    """Curve of a column with the band between two others."""
    value, low, high = (column(rows, name) for name in names)
    shade = band(x, low, high, look.colour)
    for area in shade:
        area["fillcolor"] = theme.faded(look.colour, 0.16)
    style = (look.label, look.colour, look.dash)
    dots = {"size": 6, "color": look.colour, "symbol": look.symbol}
    return [*shade, curve(x, value, style, texts, mode="lines+markers", marker=dots)]


def hover_texts(
    rows: pd.DataFrame, names: tuple[str, str, str], lead: str, *more: str
) -> list[str]:
    """Hover texts of a column with its interval, then further columns by their name."""
    parts = [column(rows, name) for name in ("time", "log_snr", *names)]
    others = {name: column(rows, name) for name in more}
    texts = []
    for k, (time, snr, value, low, high) in enumerate(zip(*parts, strict=True)):
        lines = [
            f"time {numeral(time, 6)}, log snr {numeral(snr)}",
            f"{lead} {numeral(value)} {bounds(low, high)}".strip(),
        ]
        lines += [
            f"{_NAMES.get(name, name)}: {numeral(values[k], 6)}"
            for name, values in others.items()
            if math.isfinite(values[k])
        ]
        texts.append(hover(lines))
    return texts


def exact_curve(x: Sequence[float], rows: pd.DataFrame) -> list[Picture]:
    """Closed form, where there is one."""
    exact = column(rows, "exact")
    if not known(exact):
        return []
    style = (EXACT.label, EXACT.colour, EXACT.dash)
    return [curve(x, exact, style, hover_texts(rows, ("exact", "", ""), f"{EXACT.label}:"))]


def image_count(frame: pd.DataFrame) -> str:
    """How many images stand behind the rows of a table, in words."""
    return counted(frame, "images", "images")


def exact_entry(source: Source, table: str) -> list[Entry]:
    """Entry of the key for the closed form, where the table has one."""
    return [("rule green", EXACT.label)] * bool(known(column(source.tables[table], "exact")))
