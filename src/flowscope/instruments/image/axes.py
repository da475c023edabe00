r"""What the figures of a run of an image model share: the axis along time, panels on top of it.

Time is drawn as $\log\mathrm{snr}=\log\bar\alpha/(1-\bar\alpha)$, which rises from the noise on the
left to the image on the right. It is infinite where no noise is left (or nothing but noise): such
a row stands one step beyond the last finite one, under a mark that says so.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Look
from flowscope.report.drawing.traces import line
from flowscope.report.parts.captions import counted
from flowscope.report.rows import known, ordered
from flowscope.report.source import Source, column
from flowscope.report.theme import Picture

__all__ = [
    "EXACT",
    "SAMPLERS",
    "WHEN",
    "Clock",
    "clock_of",
    "exact_curve",
    "exact_entry",
    "image_count",
    "over_time",
]


SAMPLERS = {
    "ode": Look("ODE (probability flow)", theme.BLUE, symbol="circle"),
    "sde": Look("SDE (λ = 1)", theme.VERMILION, "dash", "diamond"),
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


def over_time(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[float], Picture]:
    """Rows of a table in the order of log snr, their places along the axis, and the axis."""
    rows, clock = ordered(frame, "log_snr"), clock_of(frame)
    return rows, clock.at(column(rows, "log_snr")), clock.axis()


WHEN = "time {time:6}, log snr {log_snr}"
"""First line of a hover text."""


EXACT = Look("closed form", theme.GREEN, "dash")


def exact_curve(x: Sequence[float], rows: pd.DataFrame) -> list[Picture]:
    """Closed form, where there is one."""
    shown = bool(known(column(rows, "exact")))
    return line(x, rows, ("exact",), EXACT, WHEN, f"{EXACT.label}: {{}}") if shown else []


def image_count(frame: pd.DataFrame) -> str:
    """How many images stand behind the rows of a table, in words."""
    return counted(frame, "images", "images")


def exact_entry(source: Source, table: str) -> list[Drawn]:
    """Entry of the key for the closed form, where the table has one."""
    return [EXACT] * bool(known(column(source.tables[table], "exact")))
