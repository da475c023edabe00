"""The gap between trailing and leading modes by layer, and their energies over the steps."""

import math
from functools import partial

from flowscope.instruments.sync.internal_gap.curves import (
    beyond_null,
    default_layer,
    energy_figure,
    energy_layers,
    gap_figure,
    gap_panel,
)
from flowscope.instruments.sync.series import Series, rows_of, series_of
from flowscope.records import Missing
from flowscope.report.drawing.marks import Drawn, Entry
from flowscope.report.drawing.panels import beside, panel_row
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import Caption, figure, key, part, plot
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, numeral, percent
from flowscope.report.parts.captions import counted
from flowscope.report.parts.choosing import choice_data, choice_list, panel_grid
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["energies_section", "energy_caption", "gap_caption", "gap_section"]


_MOST = 8
"""Panels side by side; further couplings and classes are on the page alone."""


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
def gap_section(source: Source) -> str:
    """Section of the internal gap by layer."""
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
def energies_section(source: Source) -> str:
    """Section of the energies over the steps, layer by layer."""
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


def gap_caption(source: Source) -> Caption:
    """Caption of the internal gap by depth."""
    frame = source.tables["internal_gap"]
    bands = sorted(set(known(column(frame, "band"))))
    size = f"; bands of {numeral(bands[0], 6)} modes" if len(bands) == 1 else ""
    return Caption(
        seen="Above 0 the trailing modes have retained more of their energy than the leading ones. "
        "Modes come from one half of the pairs, energies from the other (split-half log ratio); "
        "both ends are measured at the same diffusion time, because time alone moves modes "
        "(erratum E99). Layer 0 is the latents: what they show is input to the network. "
        "Faint dotted: log of G_int as published (eq 80). It compares two times, and is fitted and "
        "measured on the same pairs, so it is not 0 when nothing has changed (erratum E86); it may "
        "leave the frame.",
        null=f"Start and end of a pair exchanged at random (grey, 95\u00a0%). {_outside(source)}"
        f"{_limit(source)}",
        against="Against a gap: a line that stays in the grey. Against a location in depth: all "
        "layers leave the grey equally far.",
        basis=f"{counted(frame, 'pairs')}{size}.",
    )


def _outside(source: Source) -> str:
    parts = []
    for one in series_of(source, "internal_gap"):
        outside = beyond_null(rows_of(source.tables["internal_gap"], one))
        parts.append(f"{sum(outside)} of {len(outside)} layers at {one.label}")
    outside_null = (
        f"Outside it: {', '.join(parts)}; by chance alone it would be about {percent(0.05)}."
    )
    joint = known(column(source.tables["internal_gap"], "p_all"))
    if not joint:
        return outside_null
    least = sum(p <= 0.05 for p in joint)
    return (
        f"{outside_null} Corrected for all layers of a coupling, {least} of {len(joint)} remain "
        "(p ≤ .05)."
    )


def _limit(source: Source) -> str:
    """Smallest gap that this run could have seen at each coupling, in words."""
    parts = []
    for one in series_of(source, "internal_gap"):
        rows = rows_of(source.tables["internal_gap"], one)
        least = sorted(known(column(rows, "detectable")))
        if least:
            middle = least[len(least) // 2]
            ratio = numeral(math.exp(middle))
            parts.append(f"{numeral(middle)} at {one.label} (a ratio of {ratio})")
    if not parts:
        return ""
    return (
        f" Smallest detectable gap, median over layers: {', '.join(parts)}; a smaller gap would "
        "probably not be detected."
    )


def energy_caption(source: Source) -> Caption:
    """Caption of the energies over the reverse steps."""
    layers = len(set(known(column(source.tables["energies"], "layer"))))
    return Caption(
        seen="Energy of the leading and of the trailing modes of the difference A − B, as a share "
        "of that at the start (eqs 78–79), in replicas that stay coupled to the end. Where a line "
        "falls, the two lose this part of their difference. Below: mean squared size of the "
        "difference per token, as a share of that of the hidden state.",
        null="Both bands fall equally. Basis and energies come from the same pairs here (E86), so "
        "that a distance between solid and dotted lines is no evidence; the figure above decides.",
        against="Against the account of 004: lines that do not fall faster at larger g.",
        basis=f"{count(layers, 'layer')} to choose from; means over pairs, without interval.",
    )


FIGURES: dict[str, Figure] = {
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
}
"""Figures of this diagnostic by the name of their file."""
