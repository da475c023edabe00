"""The gains of the blocks, and the steps at which modes commit."""

import math

import pandas as pd

from flowscope.instruments.sync.series import BANDS, Series, rows_of, series_of
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Drawn, Entry, Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, beside, stacked
from flowscope.report.drawing.traces import compact, curve, depth_axis, level, line, points
from flowscope.report.figure_html import Caption, figure, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, numeral
from flowscope.report.parts.captions import counted
from flowscope.report.parts.choosing import choice_data, choice_list
from flowscope.report.rows import ordered, rows_where
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
    "direct": Look("direct − 1", "#5a6773", symbol="circle"),
    "routing": Look("routing", theme.BLUE, symbol="square"),
    "query": Look("query", theme.VERMILION, symbol="diamond"),
    "key": Look("key", theme.GREEN, symbol="triangle-up"),
}
"""Channels of a modal gain; the direct one is drawn without the identity."""


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


_SAID = (
    "gain {gain} = direct {direct} + routing {routing} + query {query} + key {key}",
    "largest eigenvalue, real part {eigenvalue}",
)


def propagation_figure(source: Source, one: Series, step: float) -> Picture:
    """Gains of both bands by depth, and below the channels that make them up."""
    frame = source.table("propagation", "g", "layer", "band", "gain")
    own = rows_where(rows_of(frame, one), "step", step)
    gains: list[Picture] = []
    parts = []
    for k, (name, (title, dash)) in enumerate(BANDS.items()):
        rows = ordered(rows_where(own, "band", name), "layer")
        symbol = "circle" if name == "lead" else "circle-open"
        look = Look(title, one.colour, dash, symbol)
        gains += line("layer", rows, ("gain",), look, f"{title}, layer {{layer:6}}", *_SAID,
                      marker={"size": 8, "color": one.colour, "symbol": symbol})  # fmt: skip
        rest = rows.assign(direct=[v - 1 for v in column(rows, "direct")])
        drawn = [
            trace | {"hoverinfo": "x+y+name", "name": f"{channel.label}, {title}"}
            for part, channel in CHANNELS.items()
            for trace in line("layer", rest, (part,), channel)
        ]
        same = {"matches": "y2"} if k else {}
        parts.append(
            Panel(title=f"parts, {title.split(' ')[0]}", traces=drawn, shapes=[level(0.0)],
                  share=0.82, axis={"nticks": 5, **same})
        )  # fmt: skip
    whole = Panel(title="gain", traces=gains, shapes=[level(1.0)])
    return stacked([whole, *parts], depth_axis(column(frame, "layer")), 188, gap=0.05)


def settled_modes(frame: pd.DataFrame) -> pd.DataFrame:
    """Modes that have both a predicted and a measured step."""
    pairs = zip(column(frame, "predicted"), column(frame, "measured"),
                words(frame, "status"), strict=True)  # fmt: skip
    return frame[[math.isfinite(a + b) and state in ("ok", "") for a, b, state in pairs]]


def mode_figure(source: Source) -> Picture:
    """Step at which each mode commits against the step at which its gain crosses 1."""
    frame = source.table("mode_commitment", "g", "layer", "mode", "predicted", "measured")
    settled = settled_modes(frame)
    if settled.empty:
        raise Missing("no mode has both a predicted and a measured step")
    ends = column(settled, "predicted") + column(settled, "measured")
    room = 0.04 * (max(ends) - min(ends) or 1.0)
    limits = [min(ends) - room, max(ends) + room]
    line = {"color": theme.MUTED, "width": 1.2, "dash": "dot"}
    traces = [curve(limits, limits, Look("predicted = measured", theme.MUTED, "dot"), line=line)]
    for one in series_of(source, "mode_commitment"):
        rows = rows_of(settled, one)
        look = Look(one.label, theme.faded(one.colour, 0.75), symbol=one.symbol)
        said = notes(rows, f"{one.label}, layer {{layer:g}}, mode {{mode:g}}",
                     "predicted {predicted}, measured {measured}")  # fmt: skip
        places = column(rows, "predicted"), column(rows, "measured")
        traces.append(points(*places, look, said, size=7, line={"width": 0}))
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


FIGURES: dict[str, Figure] = {
    "sync_propagation": Figure(
        title="How a block multiplies a difference",
        draw=_first_propagation,
        caption=propagation_caption,
        key=(
            ("rule", "gain of leading modes"),
            ("rule vacuous", "gain of trailing modes"),
            *CHANNELS.values(),
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
