"""What a state knows of its class, over time."""

import itertools
import math
from dataclasses import dataclass

import pandas as pd

from flowscope.instruments.image.axes import (
    WHEN,
    exact_curve,
    exact_entry,
    image_count,
    over_time,
)
from flowscope.records import Unavailable
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry, Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import ends, level, line, stretch
from flowscope.report.figure_html import Caption, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import numeral
from flowscope.report.rows import known, ordered
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "Window",
    "information_caption",
    "information_figure",
    "information_section",
    "overdrawn",
    "window_of",
]


_LEAST, _MOST = 0.1, 0.9


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where most of the information about the class is gained.

    Attributes
    ----------
    first, last
        Log snr at which 10 % and 90 % of it are there.
    began, ended
        The model's own time there.
    gained
        All that is gained, in nats.
    """

    first: float
    last: float
    began: float
    ended: float
    gained: float


def window_of(frame: pd.DataFrame) -> Window | Unavailable:
    """Window of the table ``information``: from 10 % to 90 % of what is gained, interpolated."""
    own = ordered(frame, "log_snr")
    names = ("log_snr", "entropy", "time", "low", "high")
    rows = zip(*(column(own, name) for name in names), strict=True)
    kept = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    if len(kept) < 2:
        return Unavailable("the entropy is known at fewer than two times")
    # An entropy below 0 is more than there is to know: an error of the two predictions.
    start, gained = kept[0][1], kept[0][1] - max(0.0, kept[-1][1])
    least, most = kept[0][3], kept[-1][4]
    if not gained > 0 or least <= most:
        return Unavailable("the entropy does not fall by more than its interval")
    shares = [(start - entropy) / gained for _, entropy, *_ in kept]
    ends = [_crossing(kept, shares, share) for share in (_LEAST, _MOST)]
    (first, began), (last, ended) = ends
    return Window(first=first, last=last, began=began, ended=ended, gained=gained)


def overdrawn(frame: pd.DataFrame) -> float | None:
    """Log snr from which on the entropy lies below 0, its interval too; None if it does not."""
    own = ordered(frame, "log_snr")
    below = [high < 0 for high in column(own, "high")]
    at = column(own, "log_snr")
    return at[below.index(True)] if any(below) else None


def _crossing(
    rows: list[tuple[float, ...]], shares: list[float], share: float
) -> tuple[float, float]:
    """Log snr and time at which this share is first reached."""
    for (a, b), (low, high) in zip(itertools.pairwise(rows), itertools.pairwise(shares),
                                   strict=True):  # fmt: skip
        if high >= share:
            part = min(max((share - low) / (high - low), 0.0), 1.0) if high > low else 0.0
            return a[0] + part * (b[0] - a[0]), a[2] + part * (b[2] - a[2])
    return rows[-1][0], rows[-1][2]


_MEASURED = Look("measured", theme.BLUE, symbol="circle")


def information_figure(source: Source) -> Picture:
    """What is not yet known of the class over time, the rate below, and the window of most."""
    rows, x, axis = over_time(source.table("information", "log_snr", "entropy"))
    names = ("entropy", "low", "high")
    texts = ("H(Y | x), in nats: {}", "?closed form: {exact:6}", "?images: {images:6}")
    own = line(x, rows, names, _MEASURED, WHEN, *texts)
    top = max(known(v for name in (*names, "exact") for v in column(rows, name)), default=1.0)
    bottom = min(known(column(rows, "low")), default=0.0)
    below = overdrawn(rows) is not None
    panels = [
        Panel(
            title="H(Y) less what is claimed" if below else "H(Y | x) (nats)",
            traces=[*own, *exact_curve(x, rows)],
            axis={"range": [min(-0.04 * top, below * 1.06 * bottom), 1.06 * top]},
            shapes=[level(0.0)] if below else [],
        )
    ]
    if known(column(rows, "rate")):
        rate = line(x, rows, ends("rate"), _MEASURED, WHEN, "decrease per log snr: {}")
        panels.append(Panel(title="nats per log snr", traces=rate, shapes=[level(0.0)], share=0.7))
    window = window_of(rows)
    tint = [] if isinstance(window, Unavailable) else [stretch(window.first, window.last)]
    return stacked(panels, axis, 260, shapes=tint)


def _information_key(source: Source) -> list[Entry | Drawn]:
    window = ("passing", "10 % to 90 % of what is gained")
    return [_MEASURED, ("band", "interval"), *exact_entry(source, "information"), window]


def information_section(source: Source) -> str:
    """Section of the information about the class."""
    drawn = shown(source, "information", FIGURES["image_information"])
    return drawn + numbers(source, "information")


def information_caption(source: Source) -> Caption:
    """Caption of the entropy of the class given the state."""
    frame = source.tables["information"]
    window = window_of(frame)
    said = (
        f"No window is marked: {window.reason}."
        if isinstance(window, Unavailable)
        else f"Of the {numeral(window.gained)} nats that are gained, the share from 10\u00a0% to "
        f"90\u00a0% is gained between log snr {numeral(window.first)} and {numeral(window.last)} "
        f"(time {numeral(window.began)} to {numeral(window.ended)}; tinted): the window where "
        "guidance matters. Before it there is no class to push to, after it the class is decided."
    )
    exact = " Green, dashed: the closed form." if known(column(frame, "exact")) else ""
    since = overdrawn(frame)
    beyond = (
        ""
        if since is None
        else " The curve is H(Y) less the information that the predictions claim. From log snr "
        f"{numeral(since)} on it is below 0, which no entropy can be: there the prediction without "
        "a class is worse than the prediction with a class by more than the class can explain. "
        "Ignore the curve there."
    )
    return Caption(
        seen="Uncertainty about the class that remains given the noised image, H(Y | x), in nats; "
        f"below, its decrease per unit of log snr. {said}{beyond}{exact}",
        null="A flat curve: the state has no information about the class, and the rate is 0.",
        against="Against a window: a rate that is spread over all times.",
        basis=f"{image_count(frame)}; the window is taken from the curve, without interval.",
    )


FIGURES: dict[str, Figure] = {
    "image_information": Figure(
        title="When does the image decide its class?",
        draw=information_figure,
        caption=information_caption,
        key=_information_key,
        measurements=("information",),
    ),
}  # fmt: skip
"""Figures of this diagnostic by the name of their file."""
