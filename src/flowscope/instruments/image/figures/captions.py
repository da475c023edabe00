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
        seen="Distance between the histograms of ODE and SDE at the same time, both started from "
        "the same noise: total variation (share of the values that would have to change their "
        "bin) and Kolmogorov–Smirnov (largest gap between the cumulated shares). "
        f"{_above(whole)} Histograms pool all values: they do not show structure between pixels, "
        "and images with equal histograms may differ.",
        null="The SDE against itself, with the same start and different noise (grey up to its "
        "95\u00a0% line, dotted its median). The distance of two finite samples is never 0; this "
        "is the distance that different noise alone gives.",
        against="Filled dots above the grey over a range of times. They can also mean that there "
        "are too few steps: the error of each sampler’s steps is part of the distance.",
        basis=f"{_images(frame)}; {_values(source)}{cut}{beyond}; {_grouped(source)}.",
    )


def _above(rows: pd.DataFrame) -> str:
    parts = []
    for name, title in {"tv": "total variation", "ks": "KS"}.items():
        if known(column(rows, name)):
            parts.append(f"{sum(above_null(rows, name))} of {len(rows)} times by {title}")
    counts = f"Above the 95\u00a0% line: {', '.join(parts)}; by chance it would be about 5\u00a0%."
    return counts if parts else ""


def sample_caption(source: Source, strip: Strip) -> Caption:
    """Caption of the samples side by side."""
    return Caption(
        seen="Both images of a column start from the same noise: the ODE above, the SDE below.",
        null="None: every pair may differ although both samplers draw from the same distribution.",
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
        "an illustration, not a measurement; values beyond [−1, 1] are cut, undefined values are "
        f"grey.{small}"
    )


def weak_error_caption(source: Source) -> Caption:
    """Caption of the errors when the steps double."""
    frame = source.tables["weak_error"]
    fits = source.tables.get("weak_error_slope", pd.DataFrame())
    methods = [word for word in dict.fromkeys(words(fits, "method")) if word]
    made = f"; intervals of slopes: {', '.join(methods)}" if methods else ""
    return Caption(
        seen="Change of the mean of an observable over the images when the steps double from K to "
        "2K, on logarithmic axes. If the error falls at first order it is halved each time: slope "
        "−1 (grey line). Coloured lines: fitted slopes, through the middle of the resolved "
        "points.",
        null="No difference: the interval of a hollow point contains 0. No slope is fitted where "
        "too few points differ from 0.",
        against="A slope whose interval does not contain −1. At few steps −1 is not yet reached: "
        "closed forms for a Gaussian give −1.09 from K = 25 to 200 and −1.014 from 200 to 1600.",
        basis=f"{_images(frame)}; {bootstrapped(source, 'I2', 'images')}{made}.",
    )


def smoothness_caption(source: Source) -> Caption:
    """Caption of the size of the steps."""
    paths = source.tables.get("paths", pd.DataFrame())
    return Caption(
        seen="Change of a pixel in each reverse step (root mean square, mean over images). The "
        "path of the ODE is smooth. The path of the SDE is rough at every scale: its steps are "
        "larger, and its path becomes longer as the steps become finer.",
        null="For the SDE the squares of the steps add up to a sum that its noise sets "
        "(“expected” in the table below); for the ODE they go to 0.",
        against="A quadratic variation far from the expected value: then the steps are not small, "
        "or the noise does not follow the schedule.",
        basis=f"{_images(paths)}; {_STUDENT}.",
    )


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
    methods = [word for word in dict.fromkeys(words(frame, "interval_method")) if word]
    return Caption(
        seen="Share of the energy of the score that rotates, that is, the gradient of no function "
        "(R). It is cross-fitted: noise alone gives 0, and a value may fall below 0. At "
        f"{significant} of {len(frame)} times it differs from 0 (p < .05, filled). Below: the part "
        "of the score’s error that is a gradient, as a share of the same energy. Only this part "
        f"moves the marginals. {NOT_COMPARABLE}",
        null="The same measurement on a field that is a gradient (open diamonds) should give 0, "
        f"and with rotation planted in it (triangles) the planted share{share}. Where they do not, "
        "do not trust the measurement.",
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
        else f" From log snr {numeral(since)} on it is below 0, which is impossible for an "
        "entropy: there the prediction without a class is worse than the prediction with a class "
        "by more than the class can explain. Ignore the curve there."
    )
    return Caption(
        seen="Uncertainty about the class that remains given the noised image, H(Y | x), in nats; "
        f"below, its decrease per unit of log snr. {said}{beyond}{exact}",
        null="A flat curve: the state has no information about the class, and the rate is 0.",
        against="Against a window: a rate that is spread over all times.",
        basis=f"{_images(frame)}; {bootstrapped(source, '', 'images')}; the window is taken from "
        "the curve, without interval.",
    )


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
        basis=f"{_images(frame)}; intervals: 95\u00a0%, Wilson’s for shares, Student’s for means.",
    )


def uturn_strip_caption(source: Source, strip: Strip) -> Caption:
    """Caption of the strip of U-turns."""
    return Caption(
        seen="First row: images before. Below: the same images noised to the log snr at the left "
        "and denoised again. Look for the row from which they are of another class.",
        null="Rows that differ from the first as much as other images of the model do.",
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
        basis=f"{_images(frame)}; accuracy: 95\u00a0% intervals of Wilson; total variation: "
        f"{_grouped(source)}.",
    )


def _won(best: Winner) -> str:
    reading = f"{numeral(best.value)} {bounds(best.low, best.high)}".strip()
    if not best.beside:
        return f"λ = {best.lam:g} ({reading}, overlaps with no other λ)"
    return f"λ = {best.lam:g} ({reading}, overlaps with {_list(best.beside)})"


def _list(values: Sequence[float]) -> str:
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
