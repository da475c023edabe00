"""The sections of a page about an image model and its samplers, between verdicts and appendix."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pandas as pd

from flowscope.instruments.image.figures.axes import SAMPLERS
from flowscope.instruments.image.figures.captions import (
    family_caption,
    information_caption,
    parity_caption,
    rotation_caption,
    sample_caption,
    smoothness_caption,
    uturn_caption,
    uturn_strip_caption,
    weak_error_caption,
)
from flowscope.instruments.image.figures.order_figures import (
    doublings,
    family_figure,
    family_looks,
    weak_error_figure,
)
from flowscope.instruments.image.figures.strips import sample_strip, uturn_strip
from flowscope.instruments.image.figures.tables import (
    FEW_IMAGES,
    image_claims,
    image_facts,
    paths_listing,
)
from flowscope.instruments.image.figures.time_figures import (
    EXACT,
    channel_name,
    information_figure,
    parity_channels,
    parity_figure,
    rotation_figure,
    rotation_rows,
    smoothness_figure,
    uturn_figure,
)
from flowscope.records import Missing
from flowscope.report.captions import small_note
from flowscope.report.choosing import choice_data, choice_list, panel_grid, pictures_of
from flowscope.report.claims import claims_section
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import fact_list, figure, fold, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.marks import Drawn, Entry
from flowscope.report.panels import beside, panel_row
from flowscope.report.rotation import CONTROLS
from flowscope.report.rows import known
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure, Section
from flowscope.report.strips import strip_figure, strip_html
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "image_sections"]

_PLACES = ("sampler", "observable")


def image_sections(source: Source) -> list[Section]:
    """Sections of the page of a run of an image model, in order."""
    study = [claims_section(image_claims)] if source.study else []
    return [
        ("measured", "What was measured", _measured),
        *study,
        ("parity", "Do ODE and SDE give the same distribution?", _parity),
        ("samples", "Samples side by side", _samples),
        ("order", "Does the error fall at first order?", _order),
        ("smoothness", "How smooth are the paths?", _smoothness),
        ("rotation", "Does the learned score rotate?", _rotation),
        ("information", "When does the image decide its class?", _information),
        ("uturn", "Add noise and remove it again", _uturn),
        ("family", "From ODE to SDE at equal cost", _family),
    ]


def _measured(source: Source) -> str:
    return (
        "<p>A diffusion model turns noise into images. It can do so along a smooth path (ODE, the "
        "probability flow) or along a noisy one (SDE); in theory both pass through the same "
        "distribution at every time. λ is the amount of noise: 0 for the ODE, 1 for the SDE.</p>"
        "<p>Time is shown as log snr, the logarithm of signal over noise: the noise is at the "
        "left, the image at the right, and at 0 both have the same strength.</p>"
        f"{small_note(source, FEW_IMAGES)}{fact_list(image_facts(source))}"
    )


def _first_parity(source: Source) -> Picture:
    channel = parity_channels(source)[0]
    return beside({f"Parity, {channel_name(channel)}": parity_figure(source, channel)})


@part("parity")
def _parity(source: Source) -> str:
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
def _samples(source: Source) -> str:
    strip = sample_strip(source)
    return f"<figure>{strip_html(strip)}{sample_caption(source, strip).html}</figure>"


@part("uturn_strip")
def _uturn_sheet(source: Source) -> str:
    strip = uturn_strip(source)
    return f"<figure>{strip_html(strip)}{uturn_strip_caption(source, strip).html}</figure>"


_ORDER_KEY = (
    ("rule layer", "slope −1"),
    ("hollow", "hollow: interval contains 0"),
    ("rule grey", "fitted slope (in its colour)"),
)


def _order_key(source: Source) -> list[Entry | Drawn]:
    """What the marks of both samplers stand for, with their slopes."""
    looks: list[Entry | Drawn] = []
    for sampler in SAMPLERS:
        with suppress(Missing):
            looks += [replace(doubling.look, label=f"{sampler.upper()}, {doubling.look.label}")
                      for doubling in doublings(source, sampler)]  # fmt: skip
    return [*looks, *_ORDER_KEY]


@part("weak_error_slope", "weak_error")
def _order(source: Source) -> str:
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


@part("paths")
def _paths(source: Source) -> str:
    return (
        f"<h3>The whole path</h3>{listing(paths_listing(source), 'lengths of the paths')}"
        '<p class="source">Variation: sum of the steps. Tortuosity: that sum over the distance '
        "from start to end, 1 for a straight line. Quadratic variation: sum of the squared "
        "steps; expected: what it tends to as the steps become small. In brackets: "
        "intervals over images.</p>"
    )


def _smoothness(source: Source) -> str:
    tables = numbers(source, "smoothness") + numbers(source, "paths")
    return shown(source, "smoothness", FIGURES["image_smoothness"]) + _paths(source) + tables


def _rotation_key(source: Source) -> list[Entry | Drawn]:
    names = [label for label, *_ in CONTROLS.values()]
    entries: list[Entry | Drawn] = [("disc", "share that rotates (hollow: not significant)"),
                                    ("diamond open", names[0]), ("triangle", names[1])]  # fmt: skip
    if known(column(rotation_rows(source), "gradient_error")):
        entries.append(("square vermilion", "gradient part of the error (below)"))
    return entries


def _rotation(source: Source) -> str:
    return shown(source, "rotation", FIGURES["image_rotation"]) + numbers(source, "rotation")


def _information_key(source: Source) -> list[Entry | Drawn]:
    return [("line", "measured"), ("band", "interval"), *_exact_entry(source, "information"),
            ("passing", "10 % to 90 % of what is gained")]  # fmt: skip


def _information(source: Source) -> str:
    drawn = shown(source, "information", FIGURES["image_information"])
    return drawn + numbers(source, "information")


def _exact_entry(source: Source, table: str) -> list[Entry]:
    return [("rule green", EXACT.label)] * bool(known(column(source.tables[table], "exact")))


def _uturn_key(source: Source) -> list[Entry | Drawn]:
    frame = source.tables["uturn"]
    entries: list[Entry | Drawn] = []
    if known(column(frame, "same_class")):
        entries = [("line", "same class"), *_exact_entry(source, "uturn"),
                   ("rule vacuous", "chance")]  # fmt: skip
    elif known(column(frame, "correlation_chance")):
        entries = [("rule vacuous", "of two different images")]
    return [*entries, ("diamond", "correlation of the two images"),
            ("abstained", "interval (in its colour)")]  # fmt: skip


def _uturn(source: Source) -> str:
    strip = f"<h3>Images after noising and denoising</h3>{_uturn_sheet(source)}"
    return shown(source, "uturn", FIGURES["image_uturn"]) + strip + numbers(source, "uturn")


def _family_key(source: Source) -> list[Entry | Drawn]:
    more = [("abstained", "total variation of the null, 95 %"), ("rule vacuous", "its median")]
    return [*family_looks(source).values(), *more]


def _family(source: Source) -> str:
    return shown(source, "family", FIGURES["image_family"]) + numbers(source, "family")


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
    "image_weak_error": Figure(
        title="Does the error fall at first order?",
        draw=panel_row({look.label: partial(weak_error_figure, sampler=sampler)
                        for sampler, look in SAMPLERS.items()}),
        caption=weak_error_caption,
        key=_order_key,
        measurements=("weak_error_slope", "weak_error"),
    ),
    "image_smoothness": Figure(
        title="How smooth are the paths?",
        draw=smoothness_figure,
        caption=smoothness_caption,
        key=(*SAMPLERS.values(), ("abstained", "interval (in its colour)")),
        measurements=("smoothness",),
    ),
    "image_rotation": Figure(
        title="Does the learned score rotate?",
        draw=rotation_figure,
        caption=rotation_caption,
        key=_rotation_key,
        measurements=("rotation",),
    ),
    "image_information": Figure(
        title="When does the image decide its class?",
        draw=information_figure,
        caption=information_caption,
        key=_information_key,
        measurements=("information",),
    ),
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
    "image_family": Figure(
        title="From ODE to SDE at equal cost",
        draw=family_figure,
        caption=family_caption,
        key=_family_key,
        measurements=("family",),
    ),
}  # fmt: skip
"""Figures of a page about an image model by the name of their file."""
