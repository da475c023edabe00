"""The sampling error against the number of steps, on logarithmic axes."""

import math
from dataclasses import dataclass

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis, slope_line
from flowscope.report.drawing.marks import SYMBOLS, Look
from flowscope.report.drawing.traces import compact, curve, dots
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["Doubling", "doublings", "weak_error_figure"]

_OBSERVABLES = {
    "mean": Look("mean", "#6f2a8c", symbol="circle"),
    "square": Look("mean square", theme.GREEN, symbol="square"),
    "roughness": Look("roughness", theme.ORANGE, symbol="triangle-up"),
}
_OTHERS = ("#c93c52", "#17112e", theme.BLUE)
_SIZE = ("size", "size_low", "size_high")


@dataclass(frozen=True, eq=False, kw_only=True)
class Doubling:
    """Errors of one observable under one sampler, smallest number of steps first.

    Attributes
    ----------
    rows
        Rows of the table ``weak_error``, and the size of the difference with its interval: its
        lower end is 0 where the interval of the difference contains 0.
    resolved
        Whether the difference exceeds twice its standard error.
    slope
        Slope on logarithmic axes; NaN where it is not resolved.
    name, look
        Name of the observable, and its look with the slope as its label.
    """

    rows: pd.DataFrame
    resolved: list[bool]
    slope: float
    name: str
    look: Look

    @property
    def steps(self) -> list[float]:
        """Numbers of steps."""
        return column(self.rows, "steps")

    @property
    def size(self) -> list[float]:
        """Sizes of the differences."""
        return column(self.rows, "size")

    def traces(self) -> list[Picture]:
        """Fitted line through the middle of the resolved points, and all points."""
        seen = [v if clear else math.nan for v, clear in zip(self.size, self.resolved, strict=True)]
        fit = zip(slope_line(self.steps, seen, self.slope), self.resolved, strict=True)
        fitted = [value if clear else math.nan for value, clear in fit]
        said = (f"{self.name}, from {{steps:6}} to {{twice:6}} steps",
                "change: {difference} {low..high}", "{clear!s}")  # fmt: skip
        drawn = dots("steps", self.rows, _SIZE, self.look, *said, filled=self.resolved, size=9)
        return [curve(self.steps, fitted, Look(self.name, self.look.colour)), drawn]


def _doubling(rows: pd.DataFrame, fit: pd.DataFrame, place: int) -> Doubling:
    rows = ordered(rows, "steps")
    name = words(rows, "observable")[0]
    other = Look(name, _OTHERS[place % len(_OTHERS)], symbol=SYMBOLS[place % len(SYMBOLS)])
    look = _OBSERVABLES.get(name, other)
    limits = list(zip(column(rows, "low"), column(rows, "high"), strict=True))
    resolved = [word in ("True", "true", "1", "1.0") for word in words(rows, "resolved")]
    slope, said = _slope(fit)
    return Doubling(
        rows=rows.assign(
            twice=[2 * k for k in column(rows, "steps")],
            size=[abs(value) for value in column(rows, "difference")],
            size_low=[max(a, -b, 0.0) if math.isfinite(a + b) else math.nan for a, b in limits],
            size_high=[max(abs(a), abs(b)) for a, b in limits],
            clear=["differs from 0" if c else "not significantly different from 0"
                   for c in resolved],
        ),
        resolved=resolved,
        slope=slope,
        name=look.label,
        look=Look(f"{look.label}: {said}", look.colour, symbol=look.symbol),
    )  # fmt: skip


def _slope(fit: pd.DataFrame) -> tuple[float, str]:
    """Slope, NaN where there is none, and the words for it."""
    if fit.empty or words(fit, "status")[0] not in ("ok", ""):
        return math.nan, "slope not resolved"
    slope, low, high = (column(fit, part)[0] for part in ("slope", "low", "high"))
    return slope, f"slope {numeral(slope)} {bounds(low, high)}".strip()


def doublings(source: Source, sampler: str) -> list[Doubling]:
    """Errors under one sampler, one entry for each observable."""
    frame = source.table("weak_error", "sampler", "observable", "steps", "difference")
    own = rows_where(frame, "sampler", sampler)
    fits = rows_where(source.rows("weak_error_slope"), "sampler", sampler)
    names = dict.fromkeys(words(own, "observable"))
    if not names:
        raise Missing(f"the table “weak_error” has no rows of the {sampler}")
    return [
        _doubling(rows_where(own, "observable", name), rows_where(fits, "observable", name), place)
        for place, name in enumerate(names)
    ]


def weak_error_figure(source: Source, sampler: str) -> Picture:
    """Size of the change when the steps double against their number, logarithmic axes."""
    every = doublings(source, sampler)
    traces = [_reference(every), *(trace for own in every for trace in own.traces())]
    counts = sorted({k for own in every for k in own.steps if k > 0})
    x = theme.axis("number of steps K", type="log", tickvals=counts, showgrid=False)
    x["ticktext"] = [f"{k:g}" for k in counts]
    if counts:
        x["range"] = [math.log10(counts[0]) - 0.08, math.log10(counts[-1]) + 0.08]
    room = _range(every)
    y = log_axis("|change from K to 2K|", room, most=11) | {"range": list(map(math.log10, room))}
    return {"data": compact(traces), "layout": theme.layout(x, y, 330)}


def _range(every: list[Doubling]) -> tuple[float, float]:
    """Least and largest size that is drawn: all sizes, and intervals a third of a decade below."""
    sizes = [v for own in every for v in known(own.size) if v > 0] or [1.0]
    limits = [v for own in every for end in _SIZE for v in known(column(own.rows, end)) if v > 0]
    least = max(min([*limits, *sizes]), min(sizes) / 5)
    return least / 1.3, 1.3 * max([*limits, *sizes])


def _reference(every: list[Doubling]) -> Picture:
    """Line of slope −1 through the middle of all points, from the first to the last K."""
    rows = [(k, v) for own in every for k, v in zip(own.steps, own.size, strict=True) if v > 0]
    x = [k for k, _ in rows]
    at = dict(zip(x, slope_line(x, [v for _, v in rows], -1.0), strict=True))
    limits = [min(x), max(x)] if x else []
    thin = {"color": "#9aa4ad", "width": 1.2, "dash": "solid"}
    return curve(limits, [at[k] for k in limits], Look("slope −1", "#9aa4ad"), line=thin)
