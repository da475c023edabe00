"""The sampling error by number of steps, and the family from ODE to SDE."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from flowscope.instruments.image.axes import SAMPLERS, image_count
from flowscope.instruments.image.step_sizes.doublings import doublings, weak_error_figure
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import SYMBOLS, Drawn, Entry, Look, spread
from flowscope.report.drawing.panels import Panel, panel_row, stacked
from flowscope.report.drawing.traces import band, dots, ends, line
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import Caption, fold, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import bounds, numeral
from flowscope.report.parts.choosing import panel_grid
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "Winner",
    "family_caption",
    "family_figure",
    "family_looks",
    "family_section",
    "order_section",
    "weak_error_caption",
    "winners",
]


_GREY = "#7b8791"


_MEASURES = {"accuracy": "share of images of the requested class", "tv": "total variation"}
_PLACES = ("sampler", "observable")


_ORDER_KEY = (
    ("rule layer", "slope −1"),
    ("hollow", "hollow: interval contains 0"),
    ("rule grey", "fitted slope (in its colour)"),
)


def family_looks(source: Source) -> dict[float, Look]:
    """Numbers of steps of the table ``family`` and how each is drawn."""
    counts = sorted(set(known(column(source.table("family", "lam", "steps"), "steps"))))
    if not counts:
        raise Missing("the table “family” names no number of steps")
    return {
        steps: Look(f"{steps:g} steps", spread(k, len(counts)), symbol=SYMBOLS[k % len(SYMBOLS)])
        for k, steps in enumerate(counts)
    }


def family_figure(source: Source) -> Picture:
    """Accuracy and distance to the finest run against λ, one line for each number of steps."""
    looks, frame = family_looks(source), source.tables["family"]
    lams = sorted(set(known(column(frame, "lam")))) or [0.0, 1.0]
    width = lams[-1] - lams[0] or 1.0
    panels = [
        Panel(title=title, traces=[*(_null(frame) if name == "tv" else []),
                                   *_lines(frame, looks, name, width)], axis=axis)
        for name, title, axis in (("accuracy", "class accuracy", {}),
                                  ("tv", "total variation", {"rangemode": "tozero"}))
        if known(column(frame, name))
    ]  # fmt: skip
    if not panels:
        raise Missing("the table “family” holds neither accuracy nor total variation")
    room = [lams[0] - 0.05 * width, lams[-1] + 0.05 * width]
    x = theme.axis("λ (0: ODE, 1: SDE)", range=room, tickvals=lams, showgrid=False)
    return stacked(panels, x | {"ticktext": [f"{lam:g}" for lam in lams]}, 250)


def _null(frame: pd.DataFrame) -> list[Picture]:
    """At each λ the largest median and 95 % line of the null over the steps."""
    most = frame.groupby("lam")[["tv_null", "tv_null_high"]].max().reset_index()
    lams, top = column(most, "lam"), column(most, "tv_null_high")
    grey = line(lams, most, ("tv_null",), Look("null", _GREY, "dot"))
    return [*band(lams, [0.0] * len(lams), top, _GREY), *grey]


def _lines(frame: pd.DataFrame, looks: dict[float, Look], name: str, width: float) -> list[Picture]:
    """One line for each number of steps, its dots a little apart from those of the others."""
    traces = []
    for k, (steps, look) in enumerate(looks.items()):
        rows = ordered(rows_where(frame, "steps", steps), "lam")
        aside = 0.009 * width * (k - (len(looks) - 1) / 2)
        said = (f"{look.label}, λ = {{lam}}", f"{_MEASURES[name]}: {{}}", "{images:6} images")
        at = [lam + aside for lam in column(rows, "lam")]
        drawn = dots(at, rows, ends(name), look, *said, size=8)
        traces.append(drawn | {"mode": "lines+markers", "line": {"color": look.colour,
                                                                 "width": 1.6}})  # fmt: skip
    return traces


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The best λ at one number of steps, and the ones its interval does not separate it from."""

    lam: float
    value: float
    low: float
    high: float
    beside: tuple[float, ...]


def winners(frame: pd.DataFrame, name: str, *, largest: bool) -> dict[float, Winner]:
    """Best λ of the column by number of steps; steps where no value is known are left out."""
    found = {}
    for steps in sorted(set(known(column(frame, "steps")))):
        own = rows_where(frame, "steps", steps)
        parts = (column(own, part) for part in ("lam", name, f"{name}_low", f"{name}_high"))
        rows = [row for row in zip(*parts, strict=True) if math.isfinite(row[0] + row[1])]
        if not rows:
            continue
        sign = 1 if largest else -1
        lam, value, low, high = max(rows, key=lambda row: sign * row[1])
        found[steps] = Winner(
            lam=lam,
            value=value,
            low=low,
            high=high,
            # Not known to be apart unless both intervals are known and do not meet.
            beside=tuple(
                sorted(
                    row[0] for row in rows if row[0] != lam and not (row[3] < low or row[2] > high)
                )
            ),
        )
    return found


def _order_key(source: Source) -> list[Entry | Drawn]:
    """What the marks of both samplers stand for, with their slopes."""
    looks: list[Entry | Drawn] = []
    for sampler in SAMPLERS:
        with suppress(Missing):
            looks += [replace(doubling.look, label=f"{sampler.upper()}, {doubling.look.label}")
                      for doubling in doublings(source, sampler)]  # fmt: skip
    return [*looks, *_ORDER_KEY]


@part("weak_error_slope", "weak_error")
def order_section(source: Source) -> str:
    """Section of the sampling error by number of steps."""
    source.table("weak_error", "sampler", "observable", "steps", "difference")
    panels = [
        f"<div><h3>{html_text(look.label)}</h3>{_order_panel(source, sampler)}</div>"
        for sampler, look in SAMPLERS.items()
    ]
    caption = weak_error_caption(source).html
    return (
        f"<figure>{key(_ORDER_KEY)}{panel_grid(panels)}{caption}</figure>"
        + _unresolved(source)
        + numbers(source, "weak_error_slope")
        + numbers(source, "weak_error")
    )


@part()
def _order_panel(source: Source, sampler: str) -> str:
    legend = key([doubling.look for doubling in doublings(source, sampler)])
    said = f"weak error by number of steps, {SAMPLERS[sampler].label}"
    return legend + plot(f"order-{sampler}", weak_error_figure(source, sampler), said)


@part("weak_error_slope")
def _unresolved(source: Source) -> str:
    """Slopes that were not fitted, each with its reason."""
    fits = source.table("weak_error_slope")
    silent = fits[[status not in ("ok", "") for status in words(fits, "status")]]
    if silent.empty:
        return ""
    rows = pd.DataFrame({name: words(silent, name) for name in (*_PLACES, "status", "because")})
    return fold("Why some have no slope", listing(rows, "slopes that were not fitted"))


def _family_key(source: Source) -> list[Entry | Drawn]:
    more = [("abstained", "total variation of the null, 95 %"), ("rule vacuous", "its median")]
    return [*family_looks(source).values(), *more]


def family_section(source: Source) -> str:
    """Section of the family from ODE to SDE."""
    return shown(source, "family", FIGURES["image_family"]) + numbers(source, "family")


def weak_error_caption(source: Source) -> Caption:
    """Caption of the errors when the steps double."""
    frame = source.tables["weak_error"]
    return Caption(
        seen="Change of the mean of an observable over the images when the steps double from K to "
        "2K, on logarithmic axes. If the error falls at first order it is halved each time: slope "
        "−1 (grey line). Coloured lines: fitted slopes, through the middle of the resolved "
        "points.",
        null="No difference: the interval of a hollow point contains 0. No slope is fitted where "
        "too few points differ from 0.",
        against="A slope whose interval does not contain −1. At few steps −1 is not yet reached: "
        "closed forms for a Gaussian give −1.09 from K = 25 to 200 and −1.014 from 200 to 1600.",
        basis=f"{image_count(frame)}.",
    )


def family_caption(source: Source) -> Caption:
    """Caption of the sweep from ODE to SDE."""
    frame = source.tables["family"]
    accuracy = winners(frame, "accuracy", largest=True)
    nearest = winners(frame, "tv", largest=False)
    lines = []
    for steps in sorted({*accuracy, *nearest}):
        parts = []
        if steps in accuracy:
            parts.append(f"accuracy is best at {_won(accuracy[steps])}")
        if steps in nearest:
            parts.append(f"total variation is least at {_won(nearest[steps])}")
        lines.append(f"With {numeral(steps, 6)} steps {', '.join(parts)}.")
    unread = "" if accuracy else " There is no accuracy, because there is no classifier."
    return Caption(
        seen="λ scales the noise of the sampler: 0 is the ODE, 1 the SDE. At equal steps every λ "
        "costs the same. Accuracy: share of images recognised as the requested class. Total "
        "variation: pixel histogram against that of the finest SDE run. "
        f"{' '.join(lines)}{unread}",
        null="All λ are equal: they have the same marginals where the steps are small. Grey: total "
        "variation of the SDE against itself with different noise, up to its 95\u00a0% line.",
        against="Against a best λ: intervals that overlap those of other λ (see above). Disjoint "
        "intervals are stricter than a test of the difference.",
        basis=f"{image_count(frame)}.",
    )


def _won(best: Winner) -> str:
    reading = f"{numeral(best.value)} {bounds(best.low, best.high)}".strip()
    if not best.beside:
        return f"λ = {best.lam:g} ({reading}, overlaps with no other λ)"
    return f"λ = {best.lam:g} ({reading}, overlaps with {_list(best.beside)})"


def _list(values: Sequence[float]) -> str:
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


FIGURES: dict[str, Figure] = {
    "image_weak_error": Figure(
        title="Does the error fall at first order?",
        draw=panel_row({look.label: partial(weak_error_figure, sampler=sampler)
                        for sampler, look in SAMPLERS.items()}),
        caption=weak_error_caption,
        key=_order_key,
        measurements=("weak_error_slope", "weak_error"),
    ),
    "image_family": Figure(
        title="From ODE to SDE at equal cost",
        draw=family_figure,
        caption=family_caption,
        key=_family_key,
        measurements=("family",),
    ),
}  # fmt: skip
"""Figures of this diagnostic by the name of their file."""
