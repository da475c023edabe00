"""The share of the learned score that rotates, over time."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from flowscope.instruments.image.axes import Panel, clock_of, hover_texts, image_count, stacked
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry
from flowscope.report.drawing.traces import level, whiskers
from flowscope.report.figure_html import Caption, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import numeral
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.rows import known, ordered
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "NOT_COMPARABLE",
    "rotation_caption",
    "rotation_figure",
    "rotation_rows",
    "rotation_section",
]


NOT_COMPARABLE = (
    "R is a share of the energy in the stated coordinates of this model. It must not be compared "
    "with that of another space, another model or other coordinates, and so not with the .031 "
    "that 000 reports on CIFAR-10 either."
)
"""The warning that goes with every R."""


def rotation_rows(source: Source) -> pd.DataFrame:
    """Times at which the rotation of the score was measured, in order."""
    frame = source.table("rotation", "log_snr", "normalised")
    kept = frame[[math.isfinite(value) for value in column(frame, "normalised")]]
    if kept.empty:
        reasons = [reason for reason in words(frame, "because") if reason]
        raise Missing(reasons[0] if reasons else "the table “rotation” holds no number")
    return ordered(kept, "log_snr")


def rotation_figure(source: Source) -> Picture:
    """Share of the score that rotates, over time, with its controls; below, the gradient part."""
    frame = rotation_rows(source)
    clock = clock_of(frame)
    x = clock.at(column(frame, "log_snr"))
    apart = 0.006 * (clock.room[1] - clock.room[0])
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [place + side * apart for place in x],
            "y": column(frame, name),
            "marker": {"size": 8, "symbol": symbol, "color": colour,
                       "line": {"width": 1.6, "color": colour}},
            "hovertext": hover_texts(frame, (name, "", ""), f"{label}:"),
            "hoverinfo": "text",
        }
        for name, (label, colour, symbol, side) in CONTROLS.items()
    ]  # fmt: skip
    more = ("p_value", "planted_share", "points", "images")
    texts = hover_texts(frame, ("normalised", "low", "high"), "share that rotates:", *more)
    ends = (column(frame, "low"), column(frame, "high"))
    look = (theme.BLUE, detected(frame))
    traces.append(whiskers(x, column(frame, "normalised"), ends, look, texts))
    panels = [Panel(title="R, share that rotates", traces=traces, shapes=[level(0.0)])]
    if known(column(frame, "gradient_error")):
        panels.append(_gradient(frame, x))
    return stacked(panels, clock.axis(), 250)


def _gradient(frame: pd.DataFrame, x: Sequence[float]) -> Panel:
    names = ("gradient_error", "gradient_error_low", "gradient_error_high")
    value, low, high = (column(frame, name) for name in names)
    clear = [a > 0 or b < 0 for a, b in zip(low, high, strict=True)]
    texts = hover_texts(frame, names, "gradient part of the error:")
    dots = whiskers(x, value, (low, high), (theme.VERMILION, clear), texts)
    dots["marker"]["symbol"] = "square"
    return Panel(title="gradient part", traces=[dots], shapes=[level(0.0)], share=0.75)


def _rotation_key(source: Source) -> list[Entry | Drawn]:
    names = [label for label, *_ in CONTROLS.values()]
    entries: list[Entry | Drawn] = [("disc", "share that rotates (hollow: not significant)"),
                                    ("diamond open", names[0]), ("triangle", names[1])]  # fmt: skip
    if known(column(rotation_rows(source), "gradient_error")):
        entries.append(("square vermilion", "gradient part of the error (below)"))
    return entries


def rotation_section(source: Source) -> str:
    """Section of the rotation of the learned score."""
    return shown(source, "rotation", FIGURES["image_rotation"]) + numbers(source, "rotation")


def rotation_caption(source: Source) -> Caption:
    """Caption of the rotation of the learned score."""
    frame = rotation_rows(source)
    significant = sum(detected(frame))
    measured = source.setting("measured")
    where = measured.get("coordinates") if isinstance(measured, Mapping) else None
    planted = known(column(frame, "planted_share"))
    share = f" (planted: {numeral(planted[0])})" if planted else ""
    parts = [
        f"{name} {numeral(values[0], 6)}"
        for name in ("rank", "degree", "points")
        if (values := known(column(frame, name)))
    ]
    return Caption(
        seen="Share of rotation, the gradient of no function, in the energy of the score beyond "
        "its constant and isotropic part (R). It is cross-fitted: noise alone gives 0, and a value "
        f"may fall below 0. In {significant} of {len(frame)} windows it is more than gradients "
        "seem to have, and more than .01 (p < .05, filled). Below: the part of the score’s error "
        "that is a gradient, as a share of its whole energy: only this part moves the marginals, "
        f"and where it may be above one half, the window is not judged. {NOT_COMPARABLE}",
        null="The mean of nine gradient fields on the same states (open diamonds) should give 0, "
        f"and with rotation planted in them (triangles) the planted share{share}. Where they do "
        "not, do not trust the measurement.",
        against="Against a gradient: dots above the open diamonds by more than their interval.",
        basis="; ".join([image_count(frame), *parts, *([f"coordinates: {where}"] if where else [])])
        + ".",
    )


FIGURES: dict[str, Figure] = {
    "image_rotation": Figure(
        title="Does the learned score rotate?",
        draw=rotation_figure,
        caption=rotation_caption,
        key=_rotation_key,
        measurements=("rotation",),
    ),
}  # fmt: skip
"""Figures of this diagnostic by the name of their file."""
