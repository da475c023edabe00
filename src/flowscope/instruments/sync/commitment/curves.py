"""Figures of what two replicas end as: agreement by the step at which they were let go.

Each function takes the tables and returns a plotly figure as plain data, or why there is none.
Below each figure lies a strip with one row per curve: the midpoint of its sigmoid and the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from flowscope.instruments.sync.series import Series, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.traces import band, compact, curve
from flowscope.report.escaping import hover, plotly_text
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = [
    "SCALES",
    "Curve",
    "agreement_curves",
    "agreement_figure",
    "scale_curves",
    "scale_figure",
    "smooth_fit",
]


SCALES = {
    "coarse": ("coarse structure", theme.BLUE, "circle"),
    "fine": ("fine detail", theme.VERMILION, "diamond"),
}
"""Scales of an image at which two are compared: name, colour, marker."""


_COLUMNS = ("label", "g", "measure", "step", "value")


_ROW, _FINE = 19, 61
"""Pixels of a row of the strip; points a fitted sigmoid is drawn with."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """One curve of agreement: its rows, the row of its fit (or none), and how it is drawn."""

    name: str
    colour: str
    dash: str
    symbol: str
    rows: pd.DataFrame
    fit: pd.DataFrame

    def midpoint(self) -> tuple[float, float, float]:
        """Midpoint and the ends of its interval; NaN where there is none."""
        if self.fit.empty or words(self.fit, "status")[0] not in ("ok", ""):
            return math.nan, math.nan, math.nan
        found = [column(self.fit, name)[0] for name in ("midpoint", "low", "high")]
        return found[0], found[1], found[2]

    def absence(self) -> str:
        """Why there is no midpoint, in a word."""
        return (words(self.fit, "status")[0] if len(self.fit) else "") or "no fit was recorded"


def agreement_curves(source: Source, label: float) -> list[Curve]:
    """Agreement of the features of one class, one curve for each coupling."""
    frame = source.table("agreement", *_COLUMNS)
    found = []
    for one in series_of(source, "agreement"):
        look = (one.label, one.colour, one.dash, one.symbol)
        found += _curve(source, frame, (label, one, "feature"), look)
    if not found:
        raise Missing("the table “agreement” has no rows of the measure feature")
    return found


def scale_curves(source: Source, label: float, one: Series) -> list[Curve]:
    """Agreement of one class at one coupling: of coarse structure and of fine detail."""
    frame = source.table("agreement", *_COLUMNS)
    found = []
    for measure, (name, colour, symbol) in SCALES.items():
        look = (name, colour, one.dash, symbol)
        found += _curve(source, frame, (label, one, measure), look)
    if not found:
        raise Missing("the table “agreement” has no rows of the measures coarse and fine")
    return found


def _curve(
    source: Source,
    frame: pd.DataFrame,
    which: tuple[float, Series, str],
    look: tuple[str, str, str, str],
) -> list[Curve]:
    rows = _rows(frame, *which)
    if rows.empty:
        return []
    fits = source.rows("commitment", "label", "g", "measure", "midpoint")
    fit = _rows(fits, *which).iloc[:1]
    name, colour, dash, symbol = look
    ordered = rows.iloc[np.argsort(column(rows, "step"), kind="stable")]
    return [Curve(name=name, colour=colour, dash=dash, symbol=symbol, rows=ordered, fit=fit)]


def _rows(frame: pd.DataFrame, label: float, one: Series, measure: str) -> pd.DataFrame:
    return rows_of(rows_where(rows_where(frame, "label", label), "measure", measure), one)


def smooth_fit(own: Curve) -> tuple[list[float], list[float]]:
    r"""Fitted sigmoid at many steps: $a+(b-a)\sigma((x-\tau)/w)$ through the recorded values.

    $\tau$ and $w$ are recorded, and so is the curve at the steps; the levels $a$, $b$ follow. Where
    the three do not belong together the recorded values stand as they are.
    """
    steps, values = np.array(column(own.rows, "step")), np.array(column(own.rows, "fit"))
    middle = own.midpoint()[0]
    width = column(own.fit, "width")[0] if len(own.fit) else math.nan
    known = np.isfinite(steps) & np.isfinite(values)
    if known.sum() < 3 or not math.isfinite(middle) or not width > 0:
        return steps[known].tolist(), values[known].tolist()

    def basis(x: np.ndarray) -> np.ndarray:
        bent = 1 / (1 + np.exp(-np.clip((x - middle) / width, -60, 60)))
        return np.stack([np.ones_like(bent), bent], -1)

    levels, *_ = np.linalg.lstsq(basis(steps[known]), values[known], rcond=None)
    if np.abs(basis(steps[known]) @ levels - values[known]).max() > 5e-3:
        return steps[known].tolist(), values[known].tolist()
    fine = np.linspace(steps[known].min(), steps[known].max(), _FINE)
    return fine.tolist(), (basis(fine) @ levels).tolist()


def agreement_figure(source: Source, label: float) -> Picture:
    """Agreement of the features of one class, all couplings in one frame."""
    return _figure(agreement_curves(source, label), "cosine of the features", 340)


def scale_figure(source: Source, label: float, one: Series) -> Picture:
    """Agreement at both scales for one class and coupling."""
    return _figure(scale_curves(source, label, one), "agreement", 240, lowest=-0.1)


def _figure(
    curves: Sequence[Curve], title: str, height: int, *, lowest: float | None = None
) -> Picture:
    traces: list[Picture] = []
    for own in curves:
        traces += _lines(own)
    below = _ROW * len(curves) + 6
    whole = height + below
    share = below / (whole - 64)
    traces += [_mark(own, k) for k, own in enumerate(curves)]
    steps = [step for own in curves for step in column(own.rows, "step") if math.isfinite(step)]
    span = max(steps, default=1.0) - min(steps, default=0.0) or 1.0
    room = [min(steps, default=0.0) - 0.03 * span, max(steps, default=1.0) + 0.03 * span]
    x = theme.axis("step at which the two are let go", anchor="y2", range=room, showgrid=False)
    y = theme.axis(title, domain=[share + 0.03, 1])
    known = [v for own in curves for end in ("value", "low") for v in column(own.rows, end)]
    floor = min([v for v in known if math.isfinite(v)] + ([] if lowest is None else [lowest]),
                default=0.0)  # fmt: skip
    y["range"] = [floor - 0.03, 1.05]
    strip = theme.axis("", domain=[0, share], range=[len(curves) - 0.4, -0.6], ticks="")
    strip |= {"tickvals": list(range(len(curves))), "ticktext": [_short(own) for own in curves]}
    strip |= {"showgrid": False, "zeroline": False, "tickfont": {"size": 11, "color": theme.MUTED}}
    notes = [_no_midpoint(own, k, room) for k, own in enumerate(curves)]
    return {
        "data": compact(traces),
        "layout": theme.layout(
            x, y, whole, yaxis2=strip, annotations=[note for note in notes if note]
        ),
    }


def _short(own: Curve) -> str:
    return plotly_text(own.name.split(" ")[0] if own.name[:2] != "g " else own.name)


def _lines(own: Curve) -> list[Picture]:
    steps, values, low, high, n = (
        column(own.rows, name) for name in ("step", "value", "low", "high", "n")
    )
    texts = [
        hover(
            [
                f"{own.name}, let go at step {numeral(step, 6)}",
                f"{numeral(values[k])} {bounds(low[k], high[k])}".strip(),
                f"median of {numeral(n[k], 6)} pairs",
            ]
        )
        for k, step in enumerate(steps)
    ]
    shade = band(steps, low, high, own.colour)
    for area in shade:
        area["fillcolor"] = theme.faded(own.colour, 0.11)
    style = (own.name, own.colour, own.dash)
    marker = {"size": 7, "color": own.colour, "symbol": own.symbol}
    line = curve(steps, values, style, texts, mode="lines+markers", marker=marker)
    thin = curve(*smooth_fit(own), (own.name, own.colour, "solid"), [], hoverinfo="skip")
    thin["mode"], thin["line"] = "lines", {"color": own.colour, "width": 1}
    line["line"] |= {"color": theme.faded(own.colour, 0.55), "width": 2.6}
    return [*shade, thin, line]


def _mark(own: Curve, row: int) -> Picture:
    """Midpoint in the strip below, with its interval."""
    middle, low, high = own.midpoint()
    text = hover([f"{own.name}: midpoint {numeral(middle)} {bounds(low, high)}".strip()])
    spread = [abs(end - middle) if math.isfinite(end) else 0.0 for end in (low, high)]
    known = math.isfinite(middle)
    return {
        "type": "scatter",
        "mode": "markers",
        "yaxis": "y2",
        "x": [middle] if known else [],
        "y": [row] if known else [],
        "marker": {"size": 9, "color": own.colour, "symbol": own.symbol},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "arrayminus": spread[:1],
            "array": spread[1:],
            "color": own.colour,
            "thickness": 2,
            "width": 4,
        },
        "hovertext": [text],
        "hoverinfo": "text",
    }


def _no_midpoint(own: Curve, row: int, room: Sequence[float]) -> Picture:
    if math.isfinite(own.midpoint()[0]):
        return {}
    return {
        "x": (room[0] + room[1]) / 2,
        "y": row,
        "xref": "x",
        "yref": "y2",
        "text": plotly_text(own.absence()),
        "showarrow": False,
        "font": {"size": 11, "color": theme.MUTED},
    }
