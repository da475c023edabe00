"""Captions of the page about an image model: what is seen, its null, its contrary."""

from collections.abc import Mapping, Sequence

import pandas as pd

from flowscope.instruments.image.figures.strips import channels_shown
from flowscope.instruments.image.figures.tables import (
    NOT_COMPARABLE,
    Winner,
    overdrawn,
    window_of,
    winners,
)
from flowscope.instruments.image.figures.time_figures import above_null, rotation_rows
from flowscope.records import Unavailable
from flowscope.report.captions import bootstrapped, counted
from flowscope.report.figure_html import Caption
from flowscope.report.numerals import bounds, numeral, percent
from flowscope.report.rotation import detected
from flowscope.report.rows import known, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.strips import Strip

__all__ = [
    "family_caption",
    "information_caption",
    "parity_caption",
    "rotation_caption",
    "sample_caption",
    "smoothness_caption",
    "uturn_caption",
    "uturn_strip_caption",
    "weak_error_caption",
]


def _images(frame: pd.DataFrame) -> str:
    return counted(frame, "images", "images")


_STUDENT = "intervals: 95\u00a0%, Student’s, over images"


def _grouped(source: Source) -> str:
    """How intervals of distances between histograms were made."""
    draws = source.setting("draws")
    many = f", {draws} draws" if isinstance(draws, int) else ""
    return f"intervals: 95\u00a0%, reflected bootstrap over groups of images{many}"


def _values(source: Source) -> str:
    """What is counted: pixels, or the values of latents."""
    measured = source.setting("measured")
    space = measured.get("space") if isinstance(measured, Mapping) else None
    return str(space) if space in ("pixels", "latents") else "values"


def parity_caption(source: Source) -> Caption:
    """Caption of the distances between the two samplers."""
    frame = source.tables["parity"]
    whole = rows_where(frame, "channel", "all")
    whole = frame if whole.empty else whole
    bins = sorted(set(known(column(frame, "bins"))))
    cut = f" in {numeral(bins[0], 6)} bins" if bins else ""
    outside = known(column(frame, "outside"))
    beyond = f"; at most {percent(max(outside))} of the values lie beyond the bins" * bool(outside)
    return Caption(
        seen="How far apart the histograms of the ODE’s and the SDE’s values are at the same time, "
        "both started from the same noise: total variation (share of the values that would have to "
        "change their bin) and Kolmogorov–Smirnov (largest gap between the cumulated shares). "
        f"{_above(whole)} Histograms pool all values: they cannot see structure between pixels, "
        "and equal ones do not make equal images.",
        null="The SDE against itself, with the same start and other noise (grey up to its "
        "95\u00a0% line, dotted its median). Two finite samples are never 0 apart; this is how far "
        "apart they are when nothing differs but the noise.",
        against="Dots above the grey (filled) over a stretch of times. They may also say that the "
        "steps are too few: the error of each sampler’s steps is part of the distance.",
        basis=f"{_images(frame)}; {_values(source)}{cut}{beyond}; {_grouped(source)}.",
    )


def _above(rows: pd.DataFrame) -> str:
    parts = []
    for name, title in {"tv": "total variation", "ks": "KS"}.items():
        if known(column(rows, name)):
            parts.append(f"{sum(above_null(rows, name))} of {len(rows)} times by {title}")
    told = f"Above the 95\u00a0% line: {', '.join(parts)}; by chance it would be about 5\u00a0%."
    return told if parts else ""


def sample_caption(source: Source, strip: Strip) -> Caption:
    """Caption of the samples side by side."""
    return Caption(
        seen="Each column starts from one noise: the ODE above, the SDE below.",
        null="None: the two may differ in every image and still draw from one distribution.",
        against="One row that is visibly blurred, noisy or less varied than the other.",
        basis=_illustration(strip) + channels_shown(source, "samples"),
    )


def _illustration(strip: Strip) -> str:
    small = (
        f" Images are averaged over {strip.shrunk} × {strip.shrunk} pixels to keep the page small."
        if strip.shrunk > 1
        else ""
    )
    return (
        "an illustration from which no number is read; values beyond [−1, 1] are cut, undefined "
        f"ones are grey.{small}"
    )


def weak_error_caption(source: Source) -> Caption:
    """Caption of the errors when the steps double."""
    frame = source.tables["weak_error"]
    fits = source.tables.get("weak_error_slope", pd.DataFrame())
    methods = [word for word in dict.fromkeys(words(fits, "method")) if word]
    made = f"; intervals of slopes: {', '.join(methods)}" if methods else ""
    return Caption(
        seen="How much the mean of an observable over the images moves when the steps double from "
        "K to 2K, on logarithmic axes. If the error falls at first order it is halved each time: "
        "slope −1 (grey line). Coloured lines: fitted slopes, through the middle of the resolved "
        "points.",
        null="No difference: hollow points are not told from 0 by their interval. No slope is "
        "fitted where too few are resolved.",
        against="A slope whose interval does not hold −1. At few steps −1 is not yet reached: "
        "closed forms for a Gaussian give −1.09 from K = 25 to 200 and −1.014 from 200 to 1600.",
        basis=f"{_images(frame)}; {bootstrapped(source, 'I2', 'images')}{made}.",
    )


def smoothness_caption(source: Source) -> Caption:
    """Caption of the size of the steps."""
    paths = source.tables.get("paths", pd.DataFrame())
    return Caption(
        seen="How far one reverse step moves a pixel (root mean square, mean over images). The "
        "path of the ODE is smooth; that of the SDE is rough at every scale, so its steps are "
        "larger and its path is longer the finer the steps are.",
        null="For the SDE the squares of the steps add up to what its noise prescribes "
        "(“expected” in the table below); for the ODE they go to 0.",
        against="A quadratic variation far from the expected one: then the steps are not small, "
        "or the noise is not what the schedule says.",
        basis=f"{_images(paths)}; {_STUDENT}.",
    )


def rotation_caption(source: Source) -> Caption:
    """Caption of the rotation of the learned score."""
    frame = rotation_rows(source)
    told = sum(detected(frame))
    measured = source.setting("measured")
    where = measured.get("coordinates") if isinstance(measured, Mapping) else None
    planted = known(column(frame, "planted_share"))
    share = f" (planted: {numeral(planted[0])})" if planted else ""
    parts = [
        f"{name} {numeral(values[0], 6)}"
        for name in ("rank", "degree", "points")
        if (values := known(column(frame, name)))
    ]
    methods = [word for word in dict.fromkeys(words(frame, "interval_method")) if word]
    return Caption(
        seen="Share of the energy of the score that is the gradient of no function (R), "
        f"cross-fitted, so that noise alone gives 0 and a value may fall below it. {told} of "
        f"{len(frame)} times are told from 0 (p < .05, filled). Below: the part of the score’s "
        "error that is a gradient, as a share of the same energy. Only this part moves the "
        f"marginals. {NOT_COMPARABLE}",
        null="The same reading of a field that is a gradient (open diamonds) should give 0, and "
        f"with rotation planted in it (triangles) what was planted{share}. Where they do not, the "
        "reading is not to be trusted.",
        against="Against a gradient: dots above the open diamonds by more than their interval.",
        basis="; ".join([_images(frame), *parts, *([f"coordinates: {where}"] if where else []),
                         f"intervals: 95\u00a0%{', ' + ', '.join(methods) if methods else ''}"])
        + ".",
    )  # fmt: skip


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
        else f" From log snr {numeral(since)} on it is below 0, which no entropy is: there the "
        "prediction without a class is worse than the one with it by more than the class can "
        "explain, and nothing is to be read from the curve."
    )
    return Caption(
        seen="What the noised image leaves open about its class, H(Y | x), in nats; below, how "
        f"much of it is settled per unit of log snr. {said}{beyond}{exact}",
        null="A flat curve: the state says nothing about the class, and the rate is 0.",
        against="Against a window: a rate that is spread over all times.",
        basis=f"{_images(frame)}; {bootstrapped(source, '', 'images')}; the window is read from "
        "the curve, without interval.",
    )


def uturn_caption(source: Source) -> Caption:
    """Caption of the images that come back."""
    frame = source.tables["uturn"]
    read = bool(known(column(frame, "same_class")))
    exact = " Green, dashed: the closed form." if known(column(frame, "exact")) else ""
    share = (
        "Above: share that comes back as the class it was."
        if read
        else "Whether they come back as the class they were was not read."
    )
    return Caption(
        seen=f"Images are noised to the time on the axis and brought back by the sampler. {share} "
        "Correlation: between the image before and after, pixel by pixel, centred. To the right "
        f"little noise is added and all is kept; to the left all is lost.{exact}",
        null="Nothing is remembered: "
        + "the share is that of chance (dotted) and " * read
        + (
            "the correlation is that of two different images (dotted)."
            if known(column(frame, "correlation_chance"))
            else "the correlation is 0."
        ),
        against="Class and pixels lost at the same time: then the class is no coarser than the "
        "image, and no time lies between the one being decided and the other."
        if read
        else "A correlation of 0 at the right, where next to no noise is added: then the way back "
        "does not undo the way there.",
        basis=f"{_images(frame)}; intervals: 95\u00a0%, Wilson’s for shares, Student’s for means.",
    )


def uturn_strip_caption(source: Source, strip: Strip) -> Caption:
    """Caption of the strip of U-turns."""
    return Caption(
        seen="First row: images before. Below: the same images noised to the log snr at the left "
        "and brought back. Look for the row from which they are of another class.",
        null="Rows that look as unlike the first as other images of the model.",
        against="Against the curve above: images that change their class where it is near 1.",
        basis=_illustration(strip) + channels_shown(source, "uturn_strip"),
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
    unread = "" if accuracy else " Classes were not read, so there is no accuracy."
    return Caption(
        seen="λ scales the noise of the sampler: 0 is the ODE, 1 the SDE. At equal steps every λ "
        "costs the same. Accuracy: share of images read as the class that was asked for. Total "
        "variation: pixel histogram against that of the finest SDE run. "
        f"{' '.join(lines)}{unread}",
        null="All λ alike: the family shares its marginals where the steps are small. Grey: total "
        "variation of the SDE against itself with other noise, up to its 95\u00a0% line.",
        against="Against a winner: intervals that meet those of other λ, as said above. Disjoint "
        "intervals are stricter than a test of the difference.",
        basis=f"{_images(frame)}; accuracy: 95\u00a0% intervals of Wilson; total variation: "
        f"{_grouped(source)}.",
    )


def _won(best: Winner) -> str:
    reading = f"{numeral(best.value)} {bounds(best.low, best.high)}".strip()
    if not best.beside:
        return f"λ = {best.lam:g} ({reading}, apart from all others)"
    return f"λ = {best.lam:g} ({reading}, not apart from {_list(best.beside)})"


def _list(values: Sequence[float]) -> str:
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
