"""Figures of how similar two replicas end, by the step at which their coupling ended.

Each function takes the tables and returns a plotly figure as plain data, or why there is none.
Below each figure lies a strip with one row per curve: the midpoint of its sigmoid and the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from flowscope.instruments.sync.series import Series, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, label, line, points, whiskers
from flowscope.report.escaping import hover, plotly_text
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import known, ordered, rows_where
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
    "coarse": Look("coarse structure", theme.BLUE, symbol="circle"),
    "fine": Look("fine detail", theme.VERMILION, symbol="diamond"),
}
"""Scales of an image at which two are compared, and how each is drawn."""


_COLUMNS = ("label", "g", "measure", "step", "value")


_ROW, _FINE = 19, 61
"""Pixels of a row of the strip; points a fitted sigmoid is drawn with."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """One curve of agreement: its rows, the row of its fit (or none), and how it is drawn."""

    look: Look
    rows: pd.DataFrame
    fit: pd.DataFrame

    def midpoint(self) -> tuple[float, ...]:
        """Midpoint of the sigmoid and its interval; NaN where there is none."""
        if self.fit.empty or words(self.fit, "status")[0] not in ("ok", ""):
            return (math.nan,) * 3
        return tuple(column(self.fit, name)[0] for name in ("midpoint", "low", "high"))

    def absence(self) -> str:
        """Why there is no midpoint, in a word."""
        return (words(self.fit, "status")[0] if len(self.fit) else "") or "no fit was recorded"


def agreement_curves(source: Source, label: float) -> list[Curve]:
    """Agreement of the features of one class, one curve for each coupling."""
    every = series_of(source, "agreement")
    looks = [(one, "feature", Look(one.label, one.colour, one.dash, one.symbol)) for one in every]
    return _curves(source, label, looks, "measure feature")


def scale_curves(source: Source, label: float, one: Series) -> list[Curve]:
    """Agreement of one class at one coupling: of coarse structure and of fine detail."""
    looks = [(one, name, replace(look, dash=one.dash)) for name, look in SCALES.items()]
    return _curves(source, label, looks, "measures coarse and fine")


def _curves(
    source: Source, label: float, looks: Sequence[tuple[Series, str, Look]], what: str
) -> list[Curve]:
    frame = rows_where(source.table("agreement", *_COLUMNS), "label", label)
    fits = source.rows("commitment", "label", "g", "measure", "midpoint")
    fits = rows_where(fits, "label", label)
    curves = []
    for one, measure, look in looks:
        rows, fit = (rows_of(rows_where(f, "measure", measure), one) for f in (frame, fits))
        if len(rows):
            curves.append(Curve(look=look, rows=ordered(rows, "step"), fit=fit.iloc[:1]))
    if not curves:
        raise Missing(f"the table “agreement” has no rows of the {what}")
    return curves


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
    return _figure(scale_curves(source, label, one), "agreement", 240, lowest=[-0.1])


def _figure(
    curves: Sequence[Curve], title: str, height: int, *, lowest: Sequence[float] = ()
) -> Picture:
    steps = known(step for own in curves for step in column(own.rows, "step")) or [0.0, 1.0]
    edge = 0.03 * (max(steps) - min(steps) or 1.0)
    room = [min(steps) - edge, max(steps) + edge]
    values = known(v for own in curves for end in ("value", "low") for v in column(own.rows, end))
    floor = min([*values, *lowest], default=0.0)
    names = [own.look.label for own in curves]
    below = {
        "range": [len(curves) - 0.4, -0.6],
        "tickvals": list(range(len(curves))),
        "ticktext": [plotly_text(n if n[:2] == "g " else n.split(" ")[0]) for n in names],
        **{"ticks": "", "showgrid": False, "tickfont": {"size": 11, "color": theme.MUTED}},
    }
    strip = _ROW * len(curves) + 6
    share = strip / (0.97 * (height + strip - 64))
    silent = [(k, own) for k, own in enumerate(curves) if not math.isfinite(own.midpoint()[0])]
    return stacked(
        [
            Panel(title=title, traces=[trace for own in curves for trace in _lines(own)],
                  axis={"range": [floor - 0.03, 1.05]}, share=1 - share),
            Panel(title="", traces=[_mark(own, k) for k, own in enumerate(curves)], axis=below,
                  share=share),
        ],
        theme.axis("step at which the coupling ended", range=room, showgrid=False),
        height + strip - 64,
        gap=0.03,
        annotations=[
            label(sum(room) / 2, plotly_text(own.absence()), y=k, yref="y2") for k, own in silent
        ],
    )  # fmt: skip


def _lines(own: Curve) -> list[Picture]:
    """Curve with its band, and the fitted sigmoid as a thin line."""
    look = own.look
    said = (f"{look.label}, coupling ended at step {{step:6}}", "{}", "median of {n:6} pairs")
    pale = {"color": theme.faded(look.colour, 0.55), "width": 2.6, "dash": look.dash}
    *shade, drawn = line("step", own.rows, ("value", "low", "high"), look, *said, opacity=0.11,
                         line=pale)  # fmt: skip
    drawn["marker"]["size"] = 7
    thin = {"color": look.colour, "width": 1}
    return [*shade, curve(*smooth_fit(own), Look(look.label, look.colour), line=thin), drawn]


def _mark(own: Curve, row: int) -> Picture:
    """Midpoint in the strip below, with its interval."""
    middle, low, high = own.midpoint()
    known = math.isfinite(middle)
    text = f"{own.look.label}: midpoint {numeral(middle)} {bounds(low, high)}".strip()
    mark = points([middle] * known, [row] * known, own.look, [hover([text])], size=9)
    return mark | {"error_x": whiskers([middle], [low], [high], own.look.colour, thickness=2)}
