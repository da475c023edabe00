"""The maps of the heads, and the heads furthest from equilibrium."""

import math
from functools import partial

import pandas as pd

from flowscope.instruments.heads.geometry.maps import crossed, geometry_data, geometry_map
from flowscope.instruments.heads.portrait.figures import chain_words
from flowscope.records import Missing
from flowscope.report.drawing.panels import panel_row
from flowscope.report.escaping import html_text, json_island
from flowscope.report.figure_html import key
from flowscope.report.listings import numbers
from flowscope.report.numerals import bounds, count, numeral
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure

__all__ = [
    "FIGURES",
    "TOP",
    "furthest",
    "furthest_heading",
    "furthest_section",
    "irreversibility_section",
    "label_counts",
    "silent_heads",
    "with_bounds",
]


TOP = 10
"""Heads that the table of the most irreversible ones lists."""


_NAMED = 6


_LABELS = ("steady state", "equilibrium", "undecided", "refused")


_SHOWN = {
    "displacement": "displacement",
    "gap": "gap",
    "effective_keys": "effective keys",
    "flux_ratio": "flux ratio",
    "exact_share": "exact share",
}


_MARKS = [
    ("mark steady", "steady state"),
    ("mark equilibrium", "equilibrium"),
    ("mark undecided", "undecided"),
    ("cross", "abstained or refused"),
    ("mark blank", "no number"),
]


def _map_caption(source: Source) -> str:
    return (
        "Each cell is a head, coloured by the chosen statistic; both maps have the same scale. "
        "Click a cell, or use the arrow keys, to inspect that head below. Right: the same heads "
        f"with random weights. {source.basis('entropy_production')}."
    )


def irreversibility_section(source: Source) -> str:
    """Section of the maps over layers and heads, which the page's script draws."""
    data, caption = geometry_data(source), _map_caption(source)
    return (
        "<p>Attention defines a random walk from token to token. It is in equilibrium if the walk "
        "looks the same when it runs backwards. Entropy production is the rate at which the "
        "difference between forwards and backwards can be noticed. Each head has a label: "
        "equilibrium; a steady state, which circulates; or undecided, if the interval allows "
        "both.</p>"
        f'<p class="chain">{html_text(chain_words(source))}</p>'
        '<figure id="head-maps"><div class="controls">'
        '<label>Colour <select id="maps-statistic"></select></label>'
        '<span class="legend"><span id="maps-low"></span><span id="maps-ramp"></span>'
        '<span id="maps-high"></span></span></div>'
        f'<p class="about" id="maps-about"></p>{key(_MARKS)}<div class="pair">'
        '<div><h3>This model</h3><div class="head-map" id="maps-model" tabindex="0" '
        'role="application" aria-label="heads of the model; arrow keys choose a head"></div></div>'
        '<div><h3>Random weights</h3><div class="head-map" id="maps-random"></div></div></div>'
        '<p class="chosen" id="maps-chosen" role="status"></p>'
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
        f'<script type="application/json" id="data-geometry">{json_island(data)}</script>'
        + numbers(source, "geometry")
    )


def furthest_heading(source: Source) -> str:
    """Heading of the table of the most irreversible heads."""
    few = 0 < len(source.rows("geometry")) < TOP
    return "Heads furthest from equilibrium" if few else "Ten heads furthest from equilibrium"


def furthest_section(source: Source) -> str:
    """Section of the most irreversible heads."""
    ranked = furthest(source)
    frame = source.tables["geometry"]
    steps = next((v for v in column(frame, "steps") if v == v), None)
    level = source.setting("level")
    odds = 1 / level if isinstance(level, float) and 0 < level < 1 else 20
    walk = f" The label is about a walk of {numeral(steps, 6)} steps." if steps else ""
    return (
        "<p>Ranked by entropy production per step. Steps to tell: length of a walk after which its "
        f"direction in time is known with odds of {odds:.3g} : 1 (log {odds:.3g} divided by the "
        f"entropy production).{walk}</p>{ranked}"
    )


def label_counts(source: Source) -> dict[str, int]:
    """How many heads carry each label, the known labels first; empty where there are none."""
    frame = source.rows("geometry", "label")
    found = [label or "no label" for label in words(frame, "label")]
    order = dict.fromkeys([*_LABELS, *found])
    return {label: found.count(label) for label in order if label in found}


def silent_heads(source: Source) -> list[tuple[str, str]]:
    """Heads that are crossed out, by their reason."""
    frame = source.rows("geometry", "layer", "head")
    places = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    groups: dict[str, list[str]] = {}
    for (layer, head), out, reason in zip(
        places, crossed(frame), words(frame, "because"), strict=True
    ):
        if out:
            groups.setdefault(reason, []).append(f"{numeral(layer, 6)}.{numeral(head, 6)}")
    return [
        (
            f"{count(len(names), 'head')} (layer.head {', '.join(names[:_NAMED])}"
            + (" …)" if len(names) > _NAMED else ")"),
            reason or "no reason was recorded",
        )
        for reason, names in groups.items()
    ]


def furthest(source: Source) -> str:
    """Table of the most irreversible heads; the script makes each name a way to its portrait."""
    frame = source.table("geometry", "layer", "head", "entropy_production")
    values, out = column(frame, "entropy_production"), crossed(frame)
    known = [k for k, v in enumerate(values) if math.isfinite(v) and not out[k]]
    if not known:
        raise Missing("no head of this run has an entropy production")
    best = frame.iloc[sorted(known, key=lambda k: -values[k])[:TOP]]
    names = [
        "entropy production", "random, as sharp", "keys permuted", "log ratio to permuted",
        "label", "label, all heads together", "steps to tell",
    ]  # fmt: skip
    names += _SHOWN.values()
    heading = "".join(f'<th scope="col">{name}</th>' for name in ("layer, head", *names))
    return (
        '<div class="scroll" tabindex="0" role="region" '
        'aria-label="heads furthest from equilibrium"><table class="listing furthest"><thead><tr>'
        f"{heading}</tr></thead><tbody>"
        + "".join(_furthest_row(best.iloc[[k]]) for k in range(len(best)))
        + "</tbody></table></div>"
    )


def _furthest_row(row: pd.DataFrame) -> str:
    layer, head = (int(column(row, name)[0]) for name in ("layer", "head"))
    cells = [
        with_bounds(row, "entropy_production"),
        numeral(column(row, "entropy_production_as_sharp")[0]),
        numeral(column(row, "entropy_production_permuted")[0]),
        with_bounds(row, "log_ratio_permuted"),
        words(row, "label")[0],
        words(row, "label_joint")[0],
        numeral(column(row, "steps_to_tell")[0]),
        *(numeral(column(row, name)[0]) for name in _SHOWN),
    ]
    shown = "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
    return (
        f'<tr><th scope="row"><button type="button" class="look" data-head="{layer},{head}">'
        f"layer {layer}, head {head}</button></th>{shown}</tr>"
    )


def with_bounds(row: pd.DataFrame, name: str, k: int = 0) -> str:
    """Value of a column in row ``k`` with its interval."""
    value, low, high = (column(row, f"{name}{end}")[k] for end in ("", "_low", "_high"))
    return f"{numeral(value)} {bounds(low, high)}".strip()


FIGURES: dict[str, Figure] = {
    "geometry": Figure(
        title="How irreversible is each head?",
        draw=panel_row({
            "Entropy production, this model": partial(geometry_map, name="entropy_production"),
            "Entropy production, random weights": partial(
                geometry_map, name="entropy_production", random=True
            ),
        }),
        caption=_map_caption,
        key=(("cross", "abstained"),),
    ),
}  # fmt: skip
"""Figures of the geometry by the name of their file."""
