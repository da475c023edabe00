"""Passes against changed answers and against right ones: the frontier of every policy."""

import math

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import SYMBOLS, Look, spread
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.traces import curve, ends, level, points, whiskers
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "accuracy", "frontier", "frontier_section"]

_LINES = (
    "{policy!s} at {threshold:g} ({kind!s})",
    "{passes} passes of {reference_passes}, {saved:%} saved",
    "same answer {same:%} [{same_low:%}, {same_high:%}]",
    "?right answer {accuracy:%}",
)
_WALK = (
    "{policy!s} at {threshold:g}, on the calibration prompts",
    "{passes} passes, {saved:%} saved",
    "changed answers {risk:%} [{low:%}, {high:%}]",
)
_HOLLOW = "-open"


def looks(source: Source) -> dict[str, Look]:
    """Colour and mark of each policy, in the order of the table."""
    names = list(dict.fromkeys(words(source.table("policies", "policy"), "policy")))
    return {
        name: Look(name, spread(k, len(names)), symbol=SYMBOLS[k % len(SYMBOLS)])
        for k, name in enumerate(names)
    }


def frontier(source: Source) -> Picture:
    """Changed answers against mean passes: walks of the calibration, and the fresh prompts."""
    frame = source.table("policies", "policy", "kind", "passes", "same", "same_low", "same_high")
    styles = looks(source)
    traces = _walks(source, styles)
    for name, look in styles.items():
        for hollow in (True, False):
            rows = _of(frame, name, hollow)
            if len(rows):
                traces.append(_marks(rows, look, hollow))
    alpha = source.setting("alpha")
    shapes = [level(1 - alpha)] if isinstance(alpha, float) else []
    low = min([0.9, *(value for value in column(frame, "same") if math.isfinite(value))])
    x = theme.axis("mean passes of a prompt", rangemode="tozero")
    y = theme.axis("prompts with the same answer", tickformat=".0%", range=[low - 0.03, 1.01])
    return {"data": traces, "layout": theme.layout(x, y, 380, shapes=shapes)}


def _of(frame: pd.DataFrame, name: str, hollow: bool) -> pd.DataFrame:
    """Rows of a policy: published thresholds are hollow, calibrated ones are full."""
    kinds = words(frame, "kind")
    wanted = [
        policy == name and (kind == "published") == hollow and kind != "frontier"
        for policy, kind in zip(words(frame, "policy"), kinds, strict=True)
    ]
    return frame[wanted]


def _marks(rows: pd.DataFrame, look: Look, hollow: bool, y: str = "same") -> Picture:
    values, low, high = (column(rows, name) for name in ends(y))
    made = points(
        column(rows, "passes"), values, look, notes(rows, *_LINES), size=11,
        symbol=look.symbol + (_HOLLOW if hollow else ""),
    )  # fmt: skip
    made["error_y"] = whiskers(values, low, high, look.colour)
    return made


def _walks(source: Source, styles: dict[str, Look]) -> list[Picture]:
    """Curves of every threshold that was tried on the calibration prompts."""
    frame = source.rows("calibration", "policy", "threshold", "passes", "risk", "low", "high")
    traces = []
    for name, look in styles.items():
        rows = frame[[other == name for other in words(frame, "policy")]] if len(frame) else frame
        if len(rows):
            same = [1 - value for value in column(rows, "risk")]
            bare = Look(look.label, look.colour)
            traces.append(curve(column(rows, "passes"), same, bare, notes(rows, *_WALK)))
    return traces


def accuracy(source: Source) -> Picture:
    """Right answers against mean passes on the fresh prompts."""
    frame = source.table("policies", "policy", "kind", "passes", *ends("accuracy"))
    if all(math.isnan(value) for value in column(frame, "accuracy")):
        raise Missing("the right answers of these prompts are not known")
    traces = []
    for name, look in looks(source).items():
        for hollow in (True, False):
            rows = _of(frame, name, hollow)
            if len(rows):
                traces.append(_marks(rows, look, hollow, "accuracy"))
    x = theme.axis("mean passes of a prompt", rangemode="tozero")
    low = min(value for value in column(frame, "accuracy_low") if math.isfinite(value))
    y = theme.axis("right answers", tickformat=".0%", range=[max(0.0, low - 0.05), 1.01])
    return {"data": traces, "layout": theme.layout(x, y, 320)}


def _frontier_caption(source: Source) -> str:
    return (
        "Curves: every threshold that was tried on the calibration prompts. Marks: the fresh "
        "prompts, hollow with the published threshold, full with the calibrated one; 95 % "
        "Clopper–Pearson intervals. The dotted line is 1 − α. The reference is at the right end."
    )


def _accuracy_caption(source: Source) -> str:
    return (
        "Right answers on the fresh prompts with 95 % Clopper–Pearson intervals; marks as above. A "
        "policy may change an answer without making it worse."
    )


def frontier_section(source: Source) -> str:
    """The frontier, right answers, and the numbers behind both."""
    return (
        shown(source, "decode_frontier", FIGURES["decode_frontier"])
        + shown(source, "decode_accuracy", FIGURES["decode_accuracy"])
        + numbers(source, "policies")
        + numbers(source, "thresholds")
    )


def _key(source: Source) -> list[Look]:
    return list(looks(source).values())


FIGURES: dict[str, Figure] = {
    "decode_frontier": Figure(
        title="Passes and changed answers", draw=frontier, caption=_frontier_caption, key=_key
    ),
    "decode_accuracy": Figure(
        title="Passes and right answers", draw=accuracy, caption=_accuracy_caption, key=_key
    ),
}
