"""The gains of the blocks, and the steps at which modes commit."""

import math

import pandas as pd

from flowscope.instruments.sync.series import BANDS, Series, rows_by, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry
from flowscope.report.drawing.panels import beside
from flowscope.report.drawing.traces import compact, curve, extent, level
from flowscope.report.escaping import hover
from flowscope.report.figure_html import Caption, figure, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, numeral
from flowscope.report.parts.captions import counted
from flowscope.report.parts.choosing import choice_data, choice_list
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "CHANNELS",
    "mode_caption",
    "mode_figure",
    "modes_section",
    "propagation_caption",
    "propagation_choices",
    "propagation_figure",
    "propagation_section",
    "settled_modes",
]


CHANNELS = {
    "direct": ("direct − 1", "#5a6773", "circle"),
    "routing": ("routing", theme.BLUE, "square"),
    "query": ("query", theme.VERMILION, "diamond"),
    "key": ("key", theme.GREEN, "triangle-up"),
}
"""Channels of a modal gain: name, colour, marker; the direct one is drawn without the identity."""


_MOST_CHOICES = 14
"""Couplings and steps whose gains may be on the page; further steps are in the table alone."""


def propagation_choices(source: Source) -> list[tuple[Series, float]]:
    """Couplings and reverse steps at which the blocks were measured."""
    frame = source.table("propagation", "g", "layer", "band", "gain")
    found = []
    for one in series_of(source, "propagation"):
        steps = {step for step in column(rows_of(frame, one), "step") if math.isfinite(step)}
        found.append([(one, step) for step in sorted(steps)])
    room = max(1, _MOST_CHOICES // max(len(found), 1))
    kept = [own[:: math.ceil(len(own) / room)] for own in found if own]
    if not kept:
        raise Missing("the table “propagation” names no coupling and step")
    return [choice for own in kept for choice in own]


def propagation_figure(source: Source, one: Series, step: float) -> Picture:
    """Gains of both bands by depth, and below the channels that make them up."""
    frame = source.table("propagation", "g", "layer", "band", "gain")
    own = rows_where(rows_of(frame, one), "step", step)
    traces: list[Picture] = []
    for k, (name, (title, dash)) in enumerate(BANDS.items()):
        rows = rows_by(rows_where(own, "band", name), "layer")
        layers = column(rows, "layer")
        symbol = "circle" if name == "lead" else "circle-open"
        look = {"size": 8, "color": one.colour, "symbol": symbol}
        style = (title, one.colour, dash)
        traces.append(curve(layers, column(rows, "gain"), style, _gain_notes(rows, title),
                            mode="lines+markers", marker=look))  # fmt: skip
        for part, (label, colour, mark) in CHANNELS.items():
            less = 1.0 if part == "direct" else 0.0
            values = [v - less for v in column(rows, part)]
            small = {"size": 6, "color": colour, "symbol": mark}
            traces.append(curve(layers, values, (part, colour, "solid"), [], mode="lines+markers",
                                marker=small, yaxis=f"y{k + 2}"))  # fmt: skip
            traces[-1] |= {"hoverinfo": "x+y+name", "name": f"{label}, {title}"}
    x = theme.axis("layer", anchor="y3", showgrid=False, range=extent(column(frame, "layer")))
    y = theme.axis("gain", domain=[0.66, 1], nticks=6)
    rest = {
        "yaxis2": theme.axis("parts, leading", domain=[0.33, 0.61], nticks=5),
        "yaxis3": theme.axis("parts, trailing", domain=[0, 0.28], nticks=5, matches="y2"),
    }
    shapes = [level(1.0, yref="y"), level(0.0, yref="y2"), level(0.0, yref="y3")]
    return {"data": compact(traces), "layout": theme.layout(x, y, 560, **rest, shapes=shapes)}


def _gain_notes(rows: pd.DataFrame, name: str) -> list[str]:
    parts = ("layer", "gain", "direct", "routing", "query", "key", "eigenvalue")
    return [
        hover(
            [
                f"{name}, layer {numeral(layer, 6)}",
                f"gain {numeral(gain)} = direct {numeral(direct)} + routing {numeral(routing)} "
                f"+ query {numeral(query)} + key {numeral(key)}",
                f"largest eigenvalue, real part {numeral(top)}",
            ]
        )
        for layer, gain, direct, routing, query, key, top in zip(
            *(column(rows, part) for part in parts), strict=True
        )
    ]


def settled_modes(frame: pd.DataFrame) -> pd.DataFrame:
    """Modes that have both a predicted and a measured step."""
    pairs = zip(column(frame, "predicted"), column(frame, "measured"),
                words(frame, "status"), strict=True)  # fmt: skip
    return frame[[math.isfinite(a + b) and state in ("ok", "") for a, b, state in pairs]]


def mode_figure(source: Source) -> Picture:
    """Step at which each mode commits against the step at which its gain crosses 1."""
    frame = source.table("mode_commitment", "g", "layer", "mode", "predicted", "measured")
    known = settled_modes(frame)
    if known.empty:
        raise Missing("no mode has both a predicted and a measured step")
    ends = column(known, "predicted") + column(known, "measured")
    room = 0.04 * (max(ends) - min(ends) or 1.0)
    limits = [min(ends) - room, max(ends) + room]
    line = {"color": theme.MUTED, "width": 1.2, "dash": "dot"}
    traces: list[Picture] = [{"type": "scatter", "mode": "lines", "x": limits, "y": limits,
                              "line": line, "hoverinfo": "skip"}]  # fmt: skip
    for one in series_of(source, "mode_commitment"):
        rows = rows_of(known, one)
        places = zip(column(rows, "layer"), column(rows, "mode"), strict=True)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": column(rows, "predicted"),
                "y": column(rows, "measured"),
                "customdata": [list(place) for place in places],
                "marker": {"size": 7, "color": theme.faded(one.colour, 0.75), "symbol": one.symbol},
                "hovertemplate": f"{one.label}, layer %{{customdata[0]}}, mode %{{customdata[1]}}"
                "<br>predicted %{x:.3g}, measured %{y:.3g}<extra></extra>",
            }
        )
    x = theme.axis("predicted step (gain crosses 1)", range=limits)
    y = theme.axis("measured step", range=limits)
    return {"data": compact(traces), "layout": theme.layout(x, y, 420)}


def _first_propagation(source: Source) -> Picture:
    one, step = propagation_choices(source)[0]
    return beside({f"Gain, {one.label}, step {step:g}": propagation_figure(source, one, step)})


def propagation_section(source: Source) -> str:
    """Section of the gains of the blocks."""
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


def modes_section(source: Source) -> str:
    """Section of predicted and measured commitment."""
    return shown(source, "modes", FIGURES["sync_modes"]) + numbers(source, "mode_commitment")


def _mode_key(source: Source) -> list[Entry | Drawn]:
    return [*series_of(source, "mode_commitment"), ("rule vacuous", "predicted = measured")]


def propagation_caption(source: Source) -> Caption:
    """Caption of the gains of the blocks."""
    return Caption(
        seen="Factor by which each block multiplies a small difference between A and B along a "
        "mode, measured on the running model: above the dotted line at 1 it grows, below it "
        "shrinks. Below, its parts: gain = 1 + (direct − 1) + routing + query + key; direct is "
        "the residual stream with its MLP.",
        null="A block that does nothing: gain 1, all parts 0.",
        against="Against erratum E81 (coupling weakens routing and key, but not query): a query "
        "part that vanishes as g grows. Against a gap made here: equal gains of both bands.",
        basis=f"{counted(source.tables['propagation'], 'modes × states')}; means over the modes of "
        "a band, without interval.",
    )


def mode_caption(source: Source) -> Caption:
    """Caption of predicted against measured commitment."""
    frame = source.tables["mode_commitment"]
    settled = settled_modes(frame)
    steps = zip(column(settled, "predicted"), column(settled, "measured"), strict=True)
    apart = sorted(abs(a - b) for a, b in steps)
    far = f" Median distance from it: {numeral(apart[len(apart) // 2])} steps." if apart else ""
    never = sum(not math.isfinite(v) for v in column(frame, "predicted"))
    return Caption(
        seen="Each mark is a mode: the step at which its measured gain crosses 1, against the "
        "midpoint of the fall of its energy. On the dotted line the two agree." + far,
        null="No relation: a cloud without slope.",
        against="Against the account of 004: such a cloud, or one that is off the line.",
        basis=f"{len(settled)} of {count(len(frame), 'mode')} drawn; {len(frame) - len(settled)} "
        f"have no such pair of steps ({never} of them: the gain never crosses 1). Single "
        "measurements, without interval.",
    )


_CHANNEL_SHAPES = ("disc muted", "square", "diamond", "triangle green")


FIGURES: dict[str, Figure] = {
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
"""Figures of this diagnostic by the name of their file."""
