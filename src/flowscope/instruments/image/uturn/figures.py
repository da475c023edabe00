"""Images that are noised and denoised again: their class and their correlation over time."""

from dataclasses import replace

import numpy as np

from flowscope.instruments.image.axes import (
    WHEN,
    exact_curve,
    exact_entry,
    image_count,
    over_time,
)
from flowscope.instruments.image.strips import channels_shown, illustration, images_of, strip_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry, Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import ends, level, line
from flowscope.report.figure_html import Caption, part, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, numeral
from flowscope.report.parts.strips import Strip, strip_figure, strip_html
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["uturn_caption", "uturn_figure", "uturn_section", "uturn_strip", "uturn_strip_caption"]


_SAME = Look("same class", theme.BLUE, symbol="circle")
_ALIKE = Look("correlation of the two images", theme.VERMILION, symbol="diamond")
_CHANCE = Look("chance", theme.MUTED, "dot")
_RETURNS = (
    WHEN,
    "share that returns as the same class: {}",
    "?closed form: {exact:6}",
    "?chance: {chance:6}",
)
_MORE = ("?reverse steps of the way back: {steps:6}", "?images: {images:6}")


def uturn_figure(source: Source) -> Picture:
    """Share of images that return as the same class, and their correlation with the original."""
    rows, x, axis = over_time(source.table("uturn", "log_snr", "same_class"))
    panels = []
    if known(column(rows, "same_class")) or known(column(rows, "exact")):
        own = line(x, rows, ("same_class", "low", "high"), _SAME, *_RETURNS, *_MORE)
        drawn = [*line(x, rows, ("chance",), _CHANCE), *own, *exact_curve(x, rows)]
        panels.append(Panel(title="same class", traces=drawn, axis={"range": [-0.03, 1.05]}))
    if known(column(rows, "correlation")):
        apart = bool(known(column(rows, "correlation_chance")))
        drawn = line(x, rows, ("correlation_chance",), _CHANCE) if apart else []
        drawn += line(x, rows, ends("correlation"), _ALIKE, WHEN, f"{_ALIKE.label}: {{}}", *_MORE)
        floor = min([-0.05, *known(column(rows, "correlation_low"))])
        panels.append(Panel(title="correlation", traces=drawn, share=0.8,
                            shapes=[] if apart else [level(0.0)],
                            axis={"range": [floor, 1.05]}))  # fmt: skip
    if not panels:
        raise Missing("the table “uturn” holds no number")
    return stacked(panels, axis, 260)


def uturn_strip(source: Source) -> Strip:
    """Images before and after a U-turn to each time, or why there are none."""
    images = images_of(source, "uturn_strip", "a few images before and after a U-turn")
    arrays = source.arrays["uturn_strip"]
    snr = np.asarray(arrays.get("log_snr", []), dtype=np.float64).ravel()
    if len(snr) != len(images):
        raise Missing("the arrays “uturn_strip” are not all of one size")
    rows = ["before", *(f"{numeral(value, 2)}" for value in snr[1:])]
    said = f"{count(images.shape[1], 'image')} before, and after a U-turn to log snr " + ", ".join(
        rows[1:]
    )
    return strip_of(images, rows, ("noised to log snr", "images before and after U-turns", said))


@part("uturn_strip")
def _uturn_sheet(source: Source) -> str:
    strip = uturn_strip(source)
    return f"<figure>{strip_html(strip)}{uturn_strip_caption(source, strip).html}</figure>"


def _uturn_key(source: Source) -> list[Entry | Drawn]:
    frame = source.tables["uturn"]
    entries: list[Entry | Drawn] = []
    if known(column(frame, "same_class")):
        entries = [_SAME, *exact_entry(source, "uturn"), _CHANCE]
    elif known(column(frame, "correlation_chance")):
        entries = [replace(_CHANCE, label="of two different images")]
    return [*entries, _ALIKE, ("abstained", "interval (in its colour)")]


def uturn_section(source: Source) -> str:
    """Section of the images that are noised and denoised again."""
    strip = f"<h3>Images after noising and denoising</h3>{_uturn_sheet(source)}"
    return shown(source, "uturn", FIGURES["image_uturn"]) + strip + numbers(source, "uturn")


def uturn_caption(source: Source) -> Caption:
    """Caption of the images that come back."""
    frame = source.tables["uturn"]
    read = bool(known(column(frame, "same_class")))
    exact = " Green, dashed: the closed form." if known(column(frame, "exact")) else ""
    share = (
        "Above: share that returns as the same class."
        if read
        else "Whether they return as the same class was not measured."
    )
    return Caption(
        seen=f"Images are noised to the time on the axis and denoised by the sampler. {share} "
        "Correlation: between the image before and after, pixel by pixel, centred. To the right "
        f"little noise is added and the image survives; to the left it is lost.{exact}",
        null="Nothing is remembered: "
        + "the share is that of chance (dotted) and " * read
        + (
            "the correlation is that of two different images (dotted)."
            if known(column(frame, "correlation_chance"))
            else "the correlation is 0."
        ),
        against="Class and pixels are lost at the same time: then there is no time at which the "
        "class is decided and the image is not."
        if read
        else "A correlation of 0 at the right, where almost no noise is added: then denoising "
        "does not undo the noise.",
        basis=f"{image_count(frame)}.",
    )


def uturn_strip_caption(source: Source, strip: Strip) -> Caption:
    """Caption of the strip of U-turns."""
    return Caption(
        seen="First row: images before. Below: the same images noised to the log snr at the left "
        "and denoised again. Look for the row from which they are of another class.",
        null="Rows that differ from the first as much as other images of the model do.",
        against="Against the curve above: images that change their class where it is near 1.",
        basis=illustration(strip) + channels_shown(source, "uturn_strip"),
    )


FIGURES: dict[str, Figure] = {
    "image_uturn": Figure(
        title="Add noise and remove it again",
        draw=uturn_figure,
        caption=uturn_caption,
        key=_uturn_key,
        measurements=("uturn",),
    ),
    "image_uturn_strip": Figure(
        title="Images after noising and denoising",
        draw=lambda source: strip_figure(uturn_strip(source)),
        caption=lambda source: uturn_strip_caption(source, uturn_strip(source)),
        measurements=("uturn_strip",),
    ),
}  # fmt: skip
"""Figures of this diagnostic by the name of their file."""
