"""The sampling error against the number of steps, on logarithmic axes."""

import math
from dataclasses import dataclass

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis, slope_line
from flowscope.report.drawing.marks import SYMBOLS, Look
from flowscope.report.drawing.traces import compact, curve, whiskers
from flowscope.report.escaping import hover
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["Doubling", "doublings", "error_range", "reference", "weak_error_figure"]


_OBSERVABLES = {
    "mean": ("mean", "#6f2a8c", "circle"),
    "square": ("mean square", theme.GREEN, "square"),
    "roughness": ("roughness", theme.ORANGE, "triangle-up"),
}


_OTHERS = ("#c93c52", "#17112e", theme.BLUE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Doubling:
    """Errors of one observable under one sampler, smallest number of steps first.

    Attributes
    ----------
    steps, size, low, high
        Number of steps, size of the difference to twice as many, and the interval of that size:
        its lower end is 0 where the interval of the difference contains 0.
    resolved
        Whether the difference exceeds twice its standard error.
    slope
        Slope on logarithmic axes; NaN where it is not resolved.
    name, look, texts
        Name of the observable, its look with the slope as its label, and a hover text each.
    """

    steps: list[float]
    size: list[float]
    low: list[float]
    high: list[float]
    resolved: list[bool]
    slope: float
    name: str
    look: Look
    texts: list[str]

    def fitted(self) -> list[float]:
        """Line of the fitted slope through the middle of the resolved points, at all of them."""
        told = [value if seen else math.nan
                for value, seen in zip(self.size, self.resolved, strict=True)]  # fmt: skip
        drawn = slope_line(self.steps, told, self.slope)
        return [value if seen else math.nan
                for value, seen in zip(drawn, self.resolved, strict=True)]  # fmt: skip


def _doubling(rows: pd.DataFrame, fit: pd.DataFrame, place: int) -> Doubling:
    own = ordered(rows, "steps")
    name = words(own, "observable")[0]
    title, colour, symbol = _OBSERVABLES.get(
        name, (name, _OTHERS[place % len(_OTHERS)], SYMBOLS[place % len(SYMBOLS)])
    )
    steps, difference = column(own, "steps"), column(own, "difference")
    ends = list(zip(column(own, "low"), column(own, "high"), strict=True))
    resolved = [word in ("True", "true", "1", "1.0") for word in words(own, "resolved")]
    texts = [
        hover([f"{title}, from {numeral(k, 6)} to {numeral(2 * k, 6)} steps",
               f"change: {numeral(difference[j])} {bounds(*ends[j])}".strip(),
               "differs from 0" if resolved[j] else "not significantly different from 0"])
        for j, k in enumerate(steps)
    ]  # fmt: skip
    slope, said = _slope(fit)
    return Doubling(
        steps=steps,
        size=[abs(value) for value in difference],
        low=[max(a, -b, 0.0) if math.isfinite(a + b) else math.nan for a, b in ends],
        high=[max(abs(a), abs(b)) for a, b in ends],
        resolved=resolved,
        slope=slope,
        name=title,
        look=Look(label=f"{title}: {said}", colour=colour, symbol=symbol),
        texts=texts,
    )


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
    fits = source.tables.get("weak_error_slope", pd.DataFrame())
    fits = rows_where(fits, "sampler", sampler) if len(fits) else fits
    names = list(dict.fromkeys(words(own, "observable")))
    found = []
    for place, name in enumerate(names):
        fit = rows_where(fits, "observable", name) if len(fits) else fits
        found.append(_doubling(rows_where(own, "observable", name), fit, place))
    if not found:
        raise Missing(f"the table “weak_error” has no rows of the {sampler}")
    return found


def error_range(every: list[Doubling]) -> tuple[float, float]:
    """Least and largest size that is drawn: all sizes, and intervals a third of a decade below."""
    sizes = [v for own in every for v in own.size if 0 < v < math.inf] or [1.0]
    ends = [v for own in every for v in (*own.low, *own.high) if 0 < v < math.inf]
    least = max(min([*ends, *sizes]), min(sizes) / 5)
    return least / 1.3, 1.3 * max([*ends, *sizes])


def reference(every: list[Doubling]) -> tuple[list[float], list[float]]:
    """Line of slope −1 through the middle of all points, from the first to the last K."""
    rows = [(k, v) for own in every for k, v in zip(own.steps, own.size, strict=True) if v > 0]
    if not rows:
        return [], []
    x, y = map(list, zip(*rows, strict=True))
    line = dict(zip(x, slope_line(x, y, -1.0), strict=True))
    ends = [min(x), max(x)]
    return ends, [line[end] for end in ends]


def weak_error_figure(source: Source, sampler: str) -> Picture:
    """Size of the change when the steps double against their number, logarithmic axes."""
    every = doublings(source, sampler)
    traces: list[Picture] = [curve(*reference(every), ("slope −1", "#9aa4ad", "solid"), [],
                                   hoverinfo="skip")]  # fmt: skip
    traces[0]["line"]["width"] = 1.2
    for own in every:
        style = (own.name, own.look.colour, "solid")
        traces.append(curve(own.steps, own.fitted(), style, [], mode="lines", hoverinfo="skip"))
        look = (own.look.colour, own.resolved)
        dots = whiskers(own.steps, own.size, (own.low, own.high), look, own.texts)
        dots["marker"] |= {"size": 9, "symbol": own.look.symbol}
        traces.append(dots)
    counts = sorted({k for own in every for k in own.steps if k > 0})
    x = theme.axis("number of steps K", type="log", tickvals=counts, showgrid=False)
    x |= {"ticktext": [f"{k:g}" for k in counts]}
    room = [math.log10(end) for end in error_range(every)]
    if counts:
        x["range"] = [math.log10(counts[0]) - 0.08, math.log10(counts[-1]) + 0.08]
    y = log_axis("|change from K to 2K|", [10**end for end in room], most=11) | {"range": room}
    return {"data": compact(traces), "layout": theme.layout(x, y, 330)}
