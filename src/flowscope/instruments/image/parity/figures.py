"""Distances between ODE and SDE over time, their samples, and the steps of their paths."""

from collections.abc import Mapping
from functools import partial

import pandas as pd

from flowscope.instruments.image.axes import SAMPLERS, WHEN, clock_of, image_count, over_time
from flowscope.instruments.image.strips import channels_shown, illustration, images_of, strip_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, beside, stacked
from flowscope.report.drawing.traces import band, ends, line
from flowscope.report.figure_html import Caption, figure, part, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import bounds, count, numeral, percent
from flowscope.report.parts.choosing import choice_data, choice_list, pictures_of
from flowscope.report.parts.strips import Strip, strip_figure, strip_html
from flowscope.report.rows import above_zero, known, ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "STATISTICS",
    "above_null",
    "channel_name",
    "parity_caption",
    "parity_channels",
    "parity_figure",
    "parity_section",
    "paths_listing",
    "sample_caption",
    "sample_strip",
    "samples_section",
    "smoothness_caption",
    "smoothness_figure",
    "smoothness_is_log",
    "smoothness_section",
]


STATISTICS = {"tv": "total variation", "ks": "Kolmogorov–Smirnov"}
"""Distances between two histograms: the prefix of their columns and their name."""


_GREY = "#7b8791"


_WIDE = 20.0
"""Ratio of the largest to the least step from which the axis is logarithmic."""


def parity_channels(source: Source) -> list[str]:
    """Channels of the table ``parity``, their mean first."""
    frame = source.table("parity", "log_snr", "channel", "tv")
    found = list(dict.fromkeys(words(frame, "channel")))
    return sorted(found, key=lambda name: (name != "all", found.index(name)))


def channel_name(channel: str) -> str:
    """Words for a channel in a list of channels."""
    return "all channels (mean)" if channel == "all" else f"channel {channel}"


def above_null(rows: pd.DataFrame, name: str) -> list[bool]:
    """Whether each distance lies above the 95 % line of its null."""
    pairs = zip(column(rows, name), column(rows, f"{name}_null_high"), strict=True)
    return [value > top for value, top in pairs]


def parity_figure(source: Source, channel: str) -> Picture:
    """Distance between the two samplers over time above that between two runs of one."""
    frame = source.table("parity", "log_snr", "channel", "tv")
    rows, x, axis = over_time(rows_where(frame, "channel", channel))
    if rows.empty:
        raise Missing("the table “parity” has no rows of this channel")
    panels = [
        Panel(title=title, traces=_distance(rows, x, name), axis={"rangemode": "tozero"})
        for name, title in STATISTICS.items()
        if known(column(rows, name))
    ]
    if not panels:
        raise Missing("the table “parity” holds no distance")
    return stacked(panels, axis, 250)


def _distance(rows: pd.DataFrame, x: list[float], name: str) -> list[Picture]:
    null, top = f"{name}_null", f"{name}_null_high"
    look = Look(name, theme.BLUE, symbol="circle")
    own = line(
        *(x, rows, ends(name), look, WHEN, f"{STATISTICS[name]}: {{}}"),
        f"?median of the null: {{{null}:6}}",
        f"?95 % line of the null: {{{top}:6}}",
        f"?p value at this time: {{{name}_p:6}}",
        *("?share of values beyond the bins: {outside:6}", "?images: {images:6}"),
    )
    colours = [theme.BLUE if out else "#ffffff" for out in above_null(rows, name)]
    own[-1]["marker"] = {"size": 7, "color": colours, "line": {"width": 1.6, "color": theme.BLUE}}
    return [
        *band(x, [0.0] * len(x), column(rows, top), _GREY),
        *line(x, rows, (top,), Look("95 % of the null", _GREY)),
        *line(x, rows, (null,), Look("median of the null", _GREY, "dot")),
        *own,
    ]


def smoothness_is_log(frame: pd.DataFrame) -> bool:
    """Whether the sizes differ so much that their axis is logarithmic."""
    sizes = known(column(frame, "size"))
    return bool(sizes) and 0 < min(sizes) * _WIDE < max(sizes)


def smoothness_figure(source: Source) -> Picture:
    """Size of the steps of both samplers over time."""
    frame = source.table("smoothness", "sampler", "log_snr", "size")
    log, clock = smoothness_is_log(frame), clock_of(frame)
    place = above_zero if log else float
    traces: list[Picture] = []
    for name, look in SAMPLERS.items():
        rows = ordered(rows_where(frame, "sampler", name), "log_snr")
        if len(rows):
            x, texts = clock.at(column(rows, "log_snr")), (f"{look.label}, size of the step: {{}}",)
            traces += line(x, rows, ("size", "low", "high"), look, WHEN, *texts, place=place)
    if not traces:
        raise Missing("the table “smoothness” names neither sampler")
    title = "rms step per pixel"
    heights = [v for own in traces for v in own["y"]]
    scale = log_axis(title, heights, most=9) if log else {"rangemode": "tozero"}
    return stacked([Panel(title=title, traces=traces, axis=scale)], clock.axis(), 290)


def paths_listing(source: Source) -> pd.DataFrame:
    """Lengths of the paths of both samplers, each with its interval."""
    frame = source.table("paths", "sampler", "variation")
    names = [SAMPLERS[word].label if word in SAMPLERS else word for word in words(frame, "sampler")]
    return pd.DataFrame(
        {
            "sampler": names,
            "variation": _readings(frame, "variation"),
            "tortuosity": _readings(frame, "tortuosity"),
            "quadratic variation": _readings(frame, "quadratic"),
            "expected": [numeral(v) for v in column(frame, "expected_quadratic")],
            "images": [numeral(v, 6) for v in column(frame, "images")],
        }
    )


def _readings(frame: pd.DataFrame, name: str) -> list[str]:
    parts = (column(frame, f"{name}{end}") for end in ("", "_low", "_high"))
    rows = zip(*parts, strict=True)
    return [f"{numeral(value)} {bounds(low, high)}".strip() for value, low, high in rows]


def sample_strip(source: Source) -> Strip:
    """Samples of the ODE above those of the SDE, from the same noise, or why there are none."""
    images = images_of(source, "samples", "a few samples of both samplers")
    if len(images) != 2:
        raise Missing(
            f"the arrays “samples” should hold images of two samplers, they hold {len(images)}"
        )
    said = f"{count(images.shape[1], 'sample')} of the ODE above those of the SDE"
    return strip_of(images, ["ODE", "SDE"], ("noise no.", "samples of both samplers", said))


def _first_parity(source: Source) -> Picture:
    channel = parity_channels(source)[0]
    return beside({f"Parity, {channel_name(channel)}": parity_figure(source, channel)})


@part("parity")
def parity_section(source: Source) -> str:
    """Section of the distances between the two samplers."""
    channels = parity_channels(source)
    pictures = pictures_of([partial(parity_figure, source, channel) for channel in channels],
                           must=True)  # fmt: skip
    entries = FIGURES["image_parity"].entries(source)
    return (
        choice_list("Shown", ["parity"], [channel_name(channel) for channel in channels])
        + figure("parity", pictures[0], parity_caption(source), entries)
        + choice_data("parity", pictures)
        + numbers(source, "parity")
    )


@part("samples")
def samples_section(source: Source) -> str:
    """Section of the samples side by side."""
    strip = sample_strip(source)
    return f"<figure>{strip_html(strip)}{sample_caption(source, strip).html}</figure>"


@part("paths")
def _paths(source: Source) -> str:
    return (
        f"<h3>The whole path</h3>{listing(paths_listing(source), 'lengths of the paths')}"
        '<p class="source">Variation: sum of the steps. Tortuosity: that sum over the distance '
        "from start to end, 1 for a straight line. Quadratic variation: sum of the squared "
        "steps; expected: what it tends to as the steps become small. In brackets: "
        "intervals.</p>"
    )


def smoothness_section(source: Source) -> str:
    """Section of the steps and the lengths of the paths."""
    tables = numbers(source, "smoothness") + numbers(source, "paths")
    return shown(source, "smoothness", FIGURES["image_smoothness"]) + _paths(source) + tables


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
        basis=f"{image_count(frame)}; {_values(source)}{cut}{beyond}.",
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
        basis=illustration(strip) + channels_shown(source, "samples"),
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
        basis=f"{image_count(paths)}.",
    )


FIGURES: dict[str, Figure] = {
    "image_parity": Figure(
        title="Do ODE and SDE give the same distribution?",
        draw=_first_parity,
        caption=parity_caption,
        key=(
            ("line", "ODE against SDE"),
            ("band", "interval"),
            ("hollow blue", "hollow: not above the null’s 95 % line"),
            ("abstained", "SDE against SDE: 95 % of the null"),
            ("rule vacuous", "its median"),
        ),
        measurements=("parity",),
    ),
    "image_samples": Figure(
        title="Samples side by side",
        draw=lambda source: strip_figure(sample_strip(source)),
        caption=lambda source: sample_caption(source, sample_strip(source)),
        measurements=("samples",),
    ),
    "image_smoothness": Figure(
        title="How smooth are the paths?",
        draw=smoothness_figure,
        caption=smoothness_caption,
        key=(*SAMPLERS.values(), ("abstained", "interval (in its colour)")),
        measurements=("smoothness",),
    ),
}  # fmt: skip
"""Figures of this diagnostic by the name of their file."""
