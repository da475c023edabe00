"""The share of the learned score that rotates, over time."""

import math
from collections.abc import Mapping

import pandas as pd

from flowscope.instruments.image.axes import WHEN, image_count, over_time
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry, Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import dots, ends, level, points
from flowscope.report.figure_html import Caption, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import numeral
from flowscope.report.rows import known, ordered
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "CONTROLS",
    "NOT_COMPARABLE",
    "detected",
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


CONTROLS = {
    "gradient_control": Look("gradient field (no rotation)", theme.GREEN, symbol="diamond-open"),
    "planted_control": Look("that field with rotation planted in it", theme.ORANGE,
                            symbol="triangle-up"),
}  # fmt: skip
"""Controls of the table ``rotation`` and how each is drawn."""


def detected(frame: pd.DataFrame) -> list[bool]:
    """Whether rotation differs from zero in each row (p below .05)."""
    return [p < 0.05 for p in column(frame, "p_value")]


def rotation_rows(source: Source) -> pd.DataFrame:
    """Times at which the rotation of the score was measured, in order."""
    frame = source.table("rotation", "log_snr", "normalised")
    kept = frame[[math.isfinite(value) for value in column(frame, "normalised")]]
    if kept.empty:
        reasons = [reason for reason in words(frame, "because") if reason]
        raise Missing(reasons[0] if reasons else "the table “rotation” holds no number")
    return ordered(kept, "log_snr")


_SHARE = Look("share that rotates", theme.BLUE, symbol="circle")
_GRADIENT = Look("gradient part of the error", theme.VERMILION, symbol="square")
_MORE = (
    "?p value of no rotation: {p_value:6}",
    "?share planted in the control: {planted_share:6}",
    "?states measured: {points:6}",
    "?images: {images:6}",
)


def rotation_figure(source: Source) -> Picture:
    """Share of the score that rotates, over time, with its controls; below, the gradient part."""
    frame, x, axis = over_time(rotation_rows(source))
    apart = 0.006 * (axis["range"][1] - axis["range"][0])
    traces = [
        points([place + side * apart for place in x], column(frame, name), look,
               notes(frame, WHEN, f"{look.label}: {{{name}}}"))
        for side, (name, look) in zip((-1, 1), CONTROLS.items(), strict=True)
    ]  # fmt: skip
    said = (WHEN, f"{_SHARE.label}: {{}}", *_MORE)
    names = ("normalised", "low", "high")
    traces.append(dots(x, frame, names, _SHARE, *said, filled=detected(frame)))
    panels = [Panel(title="R, share that rotates", traces=traces, shapes=[level(0.0)])]
    if known(column(frame, "gradient_error")):
        names = ends("gradient_error")
        limits = zip(*(column(frame, name) for name in names[1:]), strict=True)
        clear = [low > 0 or high < 0 for low, high in limits]
        drawn = dots(x, frame, names, _GRADIENT, WHEN, f"{_GRADIENT.label}: {{}}", filled=clear)
        panels.append(Panel(title="gradient part", traces=[drawn], shapes=[level(0.0)], share=0.75))
    return stacked(panels, axis, 250)


def _rotation_key(source: Source) -> list[Entry | Drawn]:
    names = [look.label for look in CONTROLS.values()]
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
