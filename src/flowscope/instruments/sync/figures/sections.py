"""The sections of a page about coupled replicas, between the verdicts and the appendix."""

from functools import partial

import pandas as pd

from flowscope.instruments.sync.figures.agreement_figures import agreement_figure, scale_figure
from flowscope.instruments.sync.figures.captions import (
    agreement_caption,
    energy_caption,
    gap_caption,
    mode_caption,
    propagation_caption,
    scale_caption,
    strip_caption,
)
from flowscope.instruments.sync.figures.depth_figures import (
    CHANNELS,
    default_layer,
    energy_figure,
    energy_layers,
    gap_figure,
    gap_panel,
    mode_figure,
    propagation_choices,
    propagation_figure,
)
from flowscope.instruments.sync.figures.series import Series, class_names, rows_of, series_of
from flowscope.instruments.sync.figures.strip import paired_samples
from flowscope.instruments.sync.figures.tables import (
    FEW_PAIRS,
    commitment_listing,
    effect_listing,
    replica_claims,
    replica_facts,
    without_midpoint,
)
from flowscope.records import Missing
from flowscope.report.captions import small_note
from flowscope.report.choosing import choice_data, choice_list, panel_grid, pictures_of
from flowscope.report.claims import claims_section
from flowscope.report.escaping import html_text, shortened
from flowscope.report.figure_html import fact_list, figure, fold, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.marks import Drawn, Entry
from flowscope.report.numerals import numeral
from flowscope.report.panels import beside, panel_row
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure, Section
from flowscope.report.strips import strip_figure, strip_html
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "replica_sections"]

_MOST = 8
"""Panels side by side; further couplings and classes are on the page alone."""


def replica_sections(source: Source) -> list[Section]:
    """Sections of the page of a run of coupled replicas, in order."""
    study = [claims_section(replica_claims)] if source.study else []
    extras: dict[str, Section] = {
        "propagation": ("propagation", "How a block multiplies a difference", _propagation),
        "mode_commitment": ("modes", "Predicted and measured commitment", _modes),
    }
    return [
        ("measured", "What was measured", _measured),
        *study,
        ("agreement", "When is it decided that two replicas end up the same?", _agreement),
        ("scales", "Is coarse structure decided before fine detail?", _scales),
        ("gap", "The internal gap, by layer", _gap),
        ("energies", "Energy of the modes over time", _energies),
        ("strip", "Pairs of samples", _strip),
        *(section for table, section in extras.items() if table in source.tables),
    ]


def _measured(source: Source) -> str:
    return (
        "<p>Two images, A and B, are generated side by side from nearly the same noise. With "
        "strength g each image also attends to the other: at g = 0 they are independent, at g = 1 "
        "both have the same weight. Steps count from the noise (step 0) to the finished image.</p>"
        "<p>First question: A and B are coupled up to some step and independent after it. If the "
        "finished images are similar, what they share was decided before that step. Second "
        "question: A and B stay coupled to the end, and their difference is measured inside the "
        "network, split into directions that are strong at the start (leading modes) and weak at "
        "the start (trailing modes).</p>"
        f"{small_note(source, FEW_PAIRS, ' of replicas')}{fact_list(replica_facts(source))}"
    )


def _classes(source: Source) -> dict[float, str]:
    return class_names(source) or {0.0: ""}


def _agreement_key(source: Source) -> list[Entry | Drawn]:
    more = [("rule grey", "fitted sigmoid (thin)"), ("abstained", "interval (in its colour)")]
    return [*series_of(source, "agreement"), *more]


_SAME = "When two replicas end up the same"


def _agreement_panels(source: Source) -> Picture:
    named = list(_classes(source).items())[:_MOST]
    panels = {
        ", ".join(filter(None, (_SAME, shortened(name, 24)))): partial(
            agreement_figure, label=label
        )
        for label, name in named
    }
    return panel_row(panels)(source)


@part("agreement", "tau_spec")
def _agreement(source: Source) -> str:
    classes, drawing = _classes(source), FIGURES["sync_agreement"]
    pictures = pictures_of([partial(agreement_figure, source, label) for label in classes],
                           must=True)  # fmt: skip
    caption, entries = drawing.caption(source), drawing.entries(source)
    return (
        choice_list("Class", ["agreement"], list(classes.values()))
        + figure("agreement", pictures[0], caption, entries)
        + choice_data("agreement", pictures)
        + _effect(source)
        + numbers(source, "agreement")
    )


def _effect(source: Source) -> str:
    """How much later the least coupling commits, where that was judged."""
    frame = source.tables.get("coupling_effect", pd.DataFrame())
    if frame.empty or "difference" not in frame:
        return ""
    table = '<a href="tables/coupling_effect.csv">tables/coupling_effect.csv</a>'
    return (
        "<h3>What the coupling moves</h3>"
        + listing(effect_listing(frame), "differences of τ spec between couplings")
        + f'<p class="source">Pairs resampled jointly. Drawn from {table}.</p>'
    )


def _scale_panels(source: Source) -> Picture:
    label = next(iter(_classes(source)))
    source.table("agreement", "label", "g", "measure")
    panels = {
        f"Coarse and fine, {one.label}": partial(scale_figure, label=label, one=one)
        for one in series_of(source, "agreement")[:_MOST]
    }
    return panel_row(panels)(source)


def _scales(source: Source) -> str:
    return _scale_figures(source) + _times(source)


@part("agreement")
def _scale_figures(source: Source) -> str:
    source.table("agreement")
    classes, every = _classes(source), series_of(source, "agreement")
    if not every:
        raise Missing("no coupling is named")
    names, panels = [f"scale-{k}" for k in range(len(every))], []
    for name, one in zip(names, every, strict=True):
        pictures = pictures_of([partial(scale_figure, source, label, one) for label in classes])
        said = f"coarse and fine agreement, {one.label}"
        panels.append(
            f"<div><h3>{html_text(one.label)}</h3>{plot(name, pictures[0], said)}"
            f"{choice_data(name, pictures)}</div>"
        )
    chooser = choice_list("Class", names, list(classes.values()))
    legend = key(FIGURES["sync_scales"].entries(source))
    return f"{chooser}<figure>{legend}{panel_grid(panels)}{scale_caption(source).html}</figure>"


@part("commitment")
def _commitments(source: Source) -> str:
    listed = listing(commitment_listing(source), "steps at which each scale commits")
    return f"<h3>When it is decided</h3>{listed}"


@part("commitment_gap")
def _gap_lack(source: Source) -> str:
    source.table("commitment_gap")
    return ""


def _times(source: Source) -> str:
    """Midpoints and gaps as a table, and why some are not there."""
    silent = without_midpoint(source)
    reasons = (
        fold("Why some have no number", listing(silent, "curves without a midpoint"))
        if len(silent)
        else ""
    )
    return (
        _commitments(source)
        + _gap_lack(source)
        + reasons
        + numbers(source, "commitment")
        + numbers(source, "commitment_gap")
    )


_GAP_NULL = (
    ("abstained", "exchange null, 95 %"),
    ("band", "interval (in its colour)"),
    ("rule vacuous", "log G_int as published: its null is not 0 (E86)"),
)


def _gap_key(source: Source) -> list[Entry | Drawn]:
    hollow = ("hollow", "hollow: inside its exchange null")
    return [*series_of(source, "internal_gap"), hollow]


def _gap_panels(source: Source) -> Picture:
    source.table("internal_gap", "g", "layer", "log_gap")
    every = series_of(source, "internal_gap")[:_MOST]
    if not every:
        raise Missing("the table “internal_gap” names no coupling")
    return panel_row({f"Internal gap, {one.label}": partial(gap_panel, one=one) for one in every}
                     )(source)  # fmt: skip


@part("internal_gap", "internal gap")
def _gap(source: Source) -> str:
    whole = gap_figure(source)
    panels = [_gap_panel(source, k, one) for k, one in enumerate(series_of(source, "internal_gap"))]
    return (
        f"<figure>{key(_gap_key(source))}"
        f"{plot('gap', whole, 'gap between trailing and leading modes by layer and coupling')}"
        f"<h3>Each coupling against its null</h3>{key(_GAP_NULL)}{panel_grid(panels)}"
        f"{gap_caption(source).html}</figure>{numbers(source, 'internal_gap')}"
    )


def _gap_panel(source: Source, k: int, one: Series) -> str:
    rows = rows_of(source.tables["internal_gap"], one)
    steps = sorted({step for step in column(rows, "step") if step == step})
    where = f", measured at step {numeral(steps[0], 6)}" if len(steps) == 1 else ""
    box = plot(f"gap-{k}", gap_panel(source, one), f"gap by layer with its null, {one.label}")
    return f"<div><h3>{html_text(one.label + where)}</h3>{box}</div>"


def _energy_key(source: Source) -> list[Entry | Drawn]:
    more = [("rule", "leading modes"), ("rule vacuous", "trailing modes, dotted"),
            ("upright", "step where the gap above is measured")]  # fmt: skip
    return [*series_of(source, "energies"), *more]


def _first_energies(source: Source) -> Picture:
    layers = energy_layers(source)
    layer = layers[default_layer(layers)]
    return beside({f"Modes over time, layer {layer:g}": energy_figure(source, layer)})


@part("energies", "internal gap")
def _energies(source: Source) -> str:
    layers = energy_layers(source)
    first = default_layer(layers)
    pictures = [energy_figure(source, layer) for layer in layers]
    drawing = FIGURES["sync_energies"]
    return (
        choice_list("Shown", ["energies"], [f"layer {layer:g}" for layer in layers], first)
        + figure("energies", pictures[first], energy_caption(source), drawing.entries(source))
        + choice_data("energies", pictures, first)
        + numbers(source, "energies")
    )


@part("strip")
def _strip(source: Source) -> str:
    strip = paired_samples(source)
    return (
        "<p>Each cell shows A above B. From left to right the two were coupled for longer: look "
        "for the step from which they show the same object, then for the step from which even "
        "their details are the same. From top to bottom the coupling grows; the last row is the "
        "control, where only the noise was shared.</p>"
        f"<figure>{strip_html(strip)}{strip_caption(strip).html}</figure>"
    )


def _first_propagation(source: Source) -> Picture:
    one, step = propagation_choices(source)[0]
    return beside({f"Gain, {one.label}, step {step:g}": propagation_figure(source, one, step)})


def _propagation(source: Source) -> str:
    choices, drawing = propagation_choices(source), FIGURES["sync_propagation"]
    pictures = [propagation_figure(source, one, step) for one, step in choices]
    options = [f"{one.label}, step {numeral(step, 6)}" for one, step in choices]
    caption, entries = propagation_caption(source), drawing.entries(source)
    return (
        choice_list("Shown", ["propagation"], options)
        + figure("propagation", pictures[0], caption, entries)
        + choice_data("propagation", pictures)
        + numbers(source, "propagation")
    )


def _modes(source: Source) -> str:
    return shown(source, "modes", FIGURES["sync_modes"]) + numbers(source, "mode_commitment")


def _mode_key(source: Source) -> list[Entry | Drawn]:
    return [*series_of(source, "mode_commitment"), ("rule vacuous", "predicted = measured")]


_CHANNEL_SHAPES = ("disc muted", "square", "diamond", "triangle green")

FIGURES: dict[str, Figure] = {
    "sync_agreement": Figure(
        title="When is it decided that two replicas end up the same?",
        draw=_agreement_panels,
        caption=agreement_caption,
        key=_agreement_key,
        measurements=("agreement", "tau_spec"),
    ),
    "sync_scales": Figure(
        title="Is coarse structure decided before fine detail?",
        draw=_scale_panels,
        caption=scale_caption,
        key=(
            ("disc", "coarse structure"),
            ("diamond", "fine detail"),
            ("rule grey", "fitted sigmoid (thin)"),
            ("band", "interval"),
        ),
        measurements=("agreement",),
    ),
    "sync_gap": Figure(
        title="The internal gap, by layer",
        draw=_gap_panels,
        caption=gap_caption,
        key=lambda source: [*_gap_key(source), *_GAP_NULL],
        measurements=("internal_gap", "internal gap"),
    ),
    "sync_energies": Figure(
        title="Energy of the modes over time",
        draw=_first_energies,
        caption=energy_caption,
        key=_energy_key,
        measurements=("energies", "internal gap"),
    ),
    "sync_strip": Figure(
        title="Pairs of samples",
        draw=lambda source: strip_figure(paired_samples(source)),
        caption=lambda source: strip_caption(paired_samples(source)),
        measurements=("strip",),
    ),
    "sync_propagation": Figure(
        title="How a block multiplies a difference",
        draw=_first_propagation,
        caption=propagation_caption,
        key=(
            ("rule", "gain of leading modes"),
            ("rule vacuous", "gain of trailing modes"),
            *zip(_CHANNEL_SHAPES, (title for title, _, _ in CHANNELS.values()), strict=True),
        ),
    ),
    "sync_modes": Figure(
        title="Predicted and measured commitment",
        draw=mode_figure,
        caption=mode_caption,
        key=_mode_key,
    ),
}
"""Figures of a page about coupled replicas by the name of their file."""
