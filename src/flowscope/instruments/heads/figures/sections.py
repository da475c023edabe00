"""The sections of a page about the heads of a model, between the verdicts and the appendix."""

from functools import partial
from typing import Any

import pandas as pd

from flowscope.instruments.heads.figures.geometry_figures import geometry_map
from flowscope.instruments.heads.figures.map_figures import (
    MOST_DIALS,
    UNTURNED,
    dial_axis,
    dial_rows,
    dials,
    geometry_data,
)
from flowscope.instruments.heads.figures.portrait import ARROWS, chain_words, portrait_data
from flowscope.instruments.heads.figures.tables import TOP, dial_listing, furthest
from flowscope.report.claims import answer_chip
from flowscope.report.escaping import html_text, json_island
from flowscope.report.figure_html import key, part, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, numeral
from flowscope.report.panels import panel_row
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure, Section

__all__ = ["FIGURES", "geometry_sections", "identities_section"]

_MARKS = [
    ("mark steady", "steady state"),
    ("mark equilibrium", "equilibrium"),
    ("mark undecided", "undecided"),
    ("cross", "abstained or refused"),
    ("mark blank", "no number"),
]
_PANELS = {
    "facts": ("This head in numbers", ""),
    "law": (
        "Where the walk is",
        "Share of the time a long walk spends at each token; dotted: all tokens equally often.",
    ),
    "kernel": (
        "Where each token looks",
        "Row: the token the walk is at; column: the token it steps to.",
    ),
    "flows": (
        "Which way it circulates",
        f"The {ARROWS} strongest net flows between two tokens.",
    ),
    "diffusion": (
        "Diffusion map",
        "Two tokens are close if walks from them soon become indistinguishable; a larger dot is "
        "visited more often.",
    ),
    "magnetic": (
        "Magnetic map",
        "The angle around the centre is the position along the flow; each ring inwards is ten "
        "times smaller, and tokens near the centre take hardly any part in it.",
    ),
}


def geometry_sections(source: Source) -> list[Section]:
    """Sections of the page of a run of the heads, in order."""
    return [
        ("irreversibility", "How irreversible is each head?", _maps),
        ("head", "Inspect a head", _viewer),
        ("furthest", _furthest_heading(source), _furthest),
        ("dials", "What the dials do", _dials),
    ]


def _map_caption(source: Source) -> str:
    return (
        "Each cell is a head, coloured by the chosen statistic; both maps have the same scale. "
        "Click a cell, or use the arrow keys, to inspect that head below. Right: the same heads "
        f"with random weights. {source.basis('entropy_production')}."
    )


def _maps(source: Source) -> str:
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


def _viewer(source: Source) -> str:
    return _portrait(source, geometry_data(source))


@part("portrait")
def _portrait(source: Source, maps: dict[str, Any]) -> str:
    data = portrait_data(source)
    total = len(maps["at"])
    held = len(data["heads"])
    limited = (
        f" This page holds the {held} most irreversible of {total} heads; all are in "
        "arrays/portrait.safetensors."
        if held < total
        else ""
    )
    panels = "".join(
        f'<div><h4>{title}</h4><div class="drawing" id="head-{name}"></div>'
        f'<p class="drawn" id="head-{name}-note">{html_text(note)}</p></div>'
        for name, (title, note) in _PANELS.items()
    )
    sentence = "".join(f"<bdi>{html_text(token)}</bdi>" for token in data["tokens"])
    return (
        f"<p>One sentence of {count(len(data['tokens']), 'token')}, one head: a single measurement "
        f"without intervals.{limited}</p>"
        f'<blockquote class="sentence">{sentence}</blockquote>'
        f'<p class="chain">{html_text(chain_words(source))}</p>'
        '<div class="controls"><label>Layer <select id="head-layer"></select></label>'
        '<label>Head <select id="head-number"></select></label>'
        f'<button type="button" id="head-first">{_first_words(maps)}</button></div>'
        '<h3 id="head-title" aria-live="polite"></h3>'
        f'<div class="pair portrait" id="portrait">{panels}</div>'
        f'<script type="application/json" id="data-portrait">{json_island(data)}</script>'
    )


def _first_words(maps: dict[str, Any]) -> str:
    name = str(maps["statistics"][maps["shown"]]["label"])
    return "most irreversible" if name == "entropy production" else f"largest {name}"


def _furthest_heading(source: Source) -> str:
    few = 0 < len(source.rows("geometry")) < TOP
    return "Heads furthest from equilibrium" if few else "Ten heads furthest from equilibrium"


def _furthest(source: Source) -> str:
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


def _left_out(source: Source) -> int:
    """Settings of the dials that are not drawn."""
    drawn = len(dial_rows(source))
    return sum(word not in UNTURNED for word in words(source.tables["dials"], "dial")) - drawn


def _dial_caption(source: Source) -> str:
    frame, left = source.tables["dials"], _left_out(source)
    rest = f" {count(left, 'row')} more in tables/dials.csv." if left else ""
    prompts, tokens = (max(column(frame, n), default=0.0) for n in ("prompts", "tokens"))
    bent = " The axis is logarithmic beyond ±0.01." if dial_axis(dial_rows(source))[0] else ""
    return (
        "Change of the loss against the unchanged model on the same texts, with its interval, and "
        "the same for a random change of the logits of equal size. If a dial costs less than its "
        f"random control, the model hardly needs the part that it changes.{bent} "
        f"n = {numeral(prompts, 6)} prompts, {numeral(tokens, 6)} tokens; at most {MOST_DIALS} "
        f"settings are drawn.{rest} “Costs more” and “costs less” are decided by the "
        "interval of the difference of the two within prompts."
    )


@part("dials")
def _dials(source: Source) -> str:
    turned, whole = dial_rows(source), source.tables["dials"]
    unchanged = whole[[word in UNTURNED for word in words(whole, "dial")]]
    listed = listing(dial_listing(pd.concat([unchanged, turned])), "loss by dial and setting")
    return (
        "<p>A dial scales one part of the attention scores in the running model and leaves the "
        "rest unchanged.</p>"
        + shown(source, "dials", FIGURES["dials"])
        + f'<div class="compact">{listed}</div>'
        + '<p class="source">Drawn from <a href="tables/dials.csv">tables/dials.csv</a>.</p>'
    )


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
    "dials": Figure(
        title="What the dials do",
        draw=dials,
        caption=_dial_caption,
        key=(
            ("disc", "the dial"),
            ("diamond random", "random change of equal size"),
            ("rule vacuous", "unchanged model"),
        ),
        measurements=("dials",),
    ),
}  # fmt: skip
"""Figures of a page about the heads by the name of their file."""


def identities_section(source: Source) -> str:
    """Identities of the source with the largest error over all heads."""
    frame = source.table("identities", "identity", "error", "holds")
    texts = [words(frame, name) for name in ("identity", "formula")]
    figures = [column(frame, name) for name in ("error", "bound", "heads")]
    answers = [_ANSWER.get(word, word) for word in words(frame, "holds")]
    rows = "".join(_identity(*row) for row in zip(*texts, *figures, answers, strict=True))
    names = ("identity", "largest error", "bound", "heads", "holds?")
    heading = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        "<p>Equalities that the source proves, checked on the scores of this model: the largest "
        "error over all heads, and the bound that rounding allows.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="identities of the source">'
        f'<table class="listing claims"><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>"
        '<p class="source">Drawn from <a href="tables/identities.csv">tables/identities.csv</a>.'
        "</p>"
    )


_ANSWER = {"True": "yes", "False": "no", "": "not measured"}


def _identity(
    name: str, formula: str, error: float, bound: float, heads: float, answer: str
) -> str:
    place = f'<span class="where">{html_text(formula)}</span>' if formula else ""
    return (
        f'<tr><th scope="row">{html_text(name)}{place}</th>'
        f'<td data-label="largest error">{numeral(error)}</td>'
        f'<td data-label="bound">{numeral(bound)}</td>'
        f'<td data-label="heads">{numeral(heads, 6)}</td>'
        f'<td data-label="holds?">{answer_chip(answer)}</td></tr>'
    )
