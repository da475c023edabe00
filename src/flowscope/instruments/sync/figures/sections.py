"""The sections of a page about coupled replicas, between the verdicts and the appendix."""

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
from flowscope.records import Unavailable
from flowscope.report.choosing import blank, choice_data, choice_list, panel_grid
from flowscope.report.claims import claims_section
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import captioned, fact_list, fold, key, missing, plot
from flowscope.report.listings import listing, numbers
from flowscope.report.marks import mark_key
from flowscope.report.numerals import numeral
from flowscope.report.small_runs import small_note
from flowscope.report.source import Source, column
from flowscope.report.spec import Section
from flowscope.report.strips import strip_html

__all__ = ["replica_sections"]


def replica_sections(source: Source) -> list[Section]:
    """Sections of the page of a run of coupled replicas, in order."""
    found = [("measured", "What was measured", _measured(source))]
    if source.study:
        found.append(claims_section(replica_claims(source)))
    found += [
        ("agreement", "When is it decided that two replicas end up the same?", _agreement(source)),
        ("scales", "Is coarse structure decided before fine detail?", _scales(source)),
        ("gap", "The internal gap, by layer", _gap(source)),
        ("energies", "Energy of the modes over time", _energies(source)),
        ("strip", "Pairs of samples", _strip(source)),
    ]
    if "propagation" in source.tables:
        heading = "How a block multiplies a difference"
        found.append(("propagation", heading, _propagation(source)))
    if "mode_commitment" in source.tables:
        found.append(("modes", "Predicted and measured commitment", _modes(source)))
    return found


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


def _agreement(source: Source) -> str:
    classes = class_names(source) or {0.0: ""}
    pictures = [agreement_figure(source, label) for label in classes]
    first = pictures[0]
    more = [("rule grey", "fitted sigmoid (thin)"), ("abstained", "interval (in its colour)")]
    legend = mark_key(series_of(source, "agreement"), more)
    if isinstance(first, Unavailable):
        return missing(source.noted(source.noted(first, "agreement"), "tau_spec"))
    drawn = captioned("agreement", first, agreement_caption(source), legend)
    chooser = choice_list("Class", ["agreement"], list(classes.values()))
    held = choice_data("agreement", pictures)
    return chooser + drawn + held + _effect(source) + numbers(source, "agreement")


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


def _scales(source: Source) -> str:
    frame = source.table("agreement")
    classes = class_names(source) or {0.0: ""}
    every = series_of(source, "agreement")
    if isinstance(frame, Unavailable) or not every:
        lack = frame if isinstance(frame, Unavailable) else Unavailable("no coupling is named")
        return missing(source.noted(lack, "agreement")) + _times(source)
    names, panels = [f"scale-{k}" for k in range(len(every))], []
    for name, one in zip(names, every, strict=True):
        pictures = [scale_figure(source, label, one) for label in classes]
        shown = blank(pictures[0], 278) if isinstance(pictures[0], Unavailable) else pictures[0]
        said = f"coarse and fine agreement, {one.label}"
        panels.append(
            f"<div><h3>{html_text(one.label)}</h3>{plot(name, shown, said)}"
            f"{choice_data(name, pictures)}</div>"
        )
    entries = [("disc", "coarse structure"), ("diamond", "fine detail"),
               ("rule grey", "fitted sigmoid (thin)"), ("band", "interval")]  # fmt: skip
    chooser = choice_list("Class", names, list(classes.values()))
    drawn = f"<figure>{key(entries)}{panel_grid(panels)}{scale_caption(source).html}</figure>"
    return chooser + drawn + _times(source)


def _times(source: Source) -> str:
    """Midpoints and gaps as a table, and why some are not there."""
    shown = commitment_listing(source)
    if isinstance(shown, Unavailable):
        lack = missing(source.noted(shown, "commitment"))
    else:
        lack = f"<h3>When it is decided</h3>{listing(shown, 'steps at which each scale commits')}"
    gaps = source.table("commitment_gap")
    if isinstance(gaps, Unavailable):
        lack += missing(source.noted(gaps, "commitment_gap"))
    silent = without_midpoint(source)
    reasons = (
        fold("Why some have no number", listing(silent, "curves without a midpoint"))
        if len(silent)
        else ""
    )
    return lack + reasons + numbers(source, "commitment") + numbers(source, "commitment_gap")


def _gap(source: Source) -> str:
    whole = gap_figure(source)
    if isinstance(whole, Unavailable):
        return missing(source.noted(source.noted(whole, "internal_gap"), "internal gap"))
    frame, every = source.tables["internal_gap"], series_of(source, "internal_gap")
    panels = [_gap_panel(source, frame, k, one) for k, one in enumerate(every)]
    entries = [("hollow", "hollow: inside its exchange null")]
    inner = [("abstained", "exchange null, 95 %"), ("band", "interval (in its colour)"),
             ("rule vacuous", "log G_int as published: its null is not 0 (E86)")]  # fmt: skip
    return (
        f"<figure>{mark_key(every, entries)}"
        f"{plot('gap', whole, 'gap between trailing and leading modes by layer and coupling')}"
        f"<h3>Each coupling against its null</h3>{key(inner)}{panel_grid(panels)}"
        f"{gap_caption(source).html}</figure>{numbers(source, 'internal_gap')}"
    )


def _gap_panel(source: Source, frame: pd.DataFrame, k: int, one: Series) -> str:
    picture = gap_panel(source, one)
    if isinstance(picture, Unavailable):
        return f"<div><h3>{html_text(one.label)}</h3>{missing(picture)}</div>"
    steps = sorted({step for step in column(rows_of(frame, one), "step") if step == step})
    where = f", measured at step {numeral(steps[0], 6)}" if len(steps) == 1 else ""
    box = plot(f"gap-{k}", picture, f"gap by layer with its null, {one.label}")
    return f"<div><h3>{html_text(one.label + where)}</h3>{box}</div>"


def _energies(source: Source) -> str:
    layers = energy_layers(source)
    if isinstance(layers, Unavailable):
        return missing(source.noted(source.noted(layers, "energies"), "internal gap"))
    shown = default_layer(layers)
    pictures = [energy_figure(source, layer) for layer in layers]
    more = [("rule", "leading modes"), ("rule vacuous", "trailing modes, dotted"),
            ("upright", "step where the gap above is measured")]  # fmt: skip
    legend = mark_key(series_of(source, "energies"), more)
    options = [f"layer {layer:g}" for layer in layers]
    return (
        choice_list("Shown", ["energies"], options, shown)
        + captioned("energies", pictures[shown], energy_caption(source), legend)
        + choice_data("energies", pictures, shown)
        + numbers(source, "energies")
    )


def _strip(source: Source) -> str:
    strip = paired_samples(source)
    if isinstance(strip, Unavailable):
        return missing(source.noted(strip, "strip"))
    return (
        "<p>Each cell shows A above B. From left to right the two were coupled for longer: look "
        "for the step from which they show the same object, then for the step from which even "
        "their details are the same. From top to bottom the coupling grows; the last row is the "
        "control, where only the noise was shared.</p>"
        f"<figure>{strip_html(strip)}{strip_caption(strip).html}</figure>"
    )


def _propagation(source: Source) -> str:
    choices = propagation_choices(source)
    if isinstance(choices, Unavailable):
        return missing(choices)
    pictures = [propagation_figure(source, one, step) for one, step in choices]
    options = [f"{one.label}, step {numeral(step, 6)}" for one, step in choices]
    shapes = ("disc muted", "square", "diamond", "triangle green")
    titles = [title for title, _, _ in CHANNELS.values()]
    entries = [("rule", "gain of leading modes"), ("rule vacuous", "gain of trailing modes"),
               *zip(shapes, titles, strict=True)]  # fmt: skip
    return (
        choice_list("Shown", ["propagation"], options)
        + captioned("propagation", pictures[0], propagation_caption(source), key(entries))
        + choice_data("propagation", pictures)
        + numbers(source, "propagation")
    )


def _modes(source: Source) -> str:
    legend = mark_key(
        series_of(source, "mode_commitment"), [("rule vacuous", "predicted = measured")]
    )
    drawn = captioned("modes", mode_figure(source), mode_caption(source), legend)
    return drawn + numbers(source, "mode_commitment")
