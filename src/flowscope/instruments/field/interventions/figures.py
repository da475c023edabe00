"""Figures of the interventions: what they cost, and what they do to the tokens along depth."""

from collections.abc import Mapping

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import beside
from flowscope.report.drawing.traces import ends, line
from flowscope.report.figure_html import shown
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "intervention_costs", "intervention_depth", "interventions_section"]

_MODEL = Look("model", theme.BLUE, "solid", "circle")
_TWIN = Look("random weights", theme.VERMILION, "dash", "square")
_SUBJECTS = {"model": _MODEL, "twin": _TWIN}
_DEPTH = {
    "none": Look("as it is", theme.INK, "solid", "circle"),
    "writes × 0.5": Look("writes × 0.5", theme.BLUE, "solid", "square"),
    "residual × 0": Look("no residual", theme.VERMILION, "dash", "diamond"),
    "residual × 0.97": Look("residual × 0.97", theme.VERMILION, "solid", "triangle-up"),
    "attention × 0": Look("no attention", theme.GREEN, "solid", "triangle-down"),
    "feed-forward × 0": Look("no feed-forward part", theme.ORANGE, "solid", "hexagon"),
    "norms frozen": Look("norms frozen", "#a3467e", "dash", "circle"),
    "norms removed": Look("norms removed", "#a3467e", "dot", "square"),
}


def intervention_costs(source: Source) -> Picture:
    """Added loss against the scale of all writes, and of the residual."""
    settings = ("residual", "attention", "feed_forward", "norm")
    frame = source.table("interventions", "subject", "change", *settings, "kl", "added")
    frame = rows_where(frame, "norm", "keep")
    value = "added" if known(column(frame, "added")) else "kl"
    title = {"added": "loss added, nats", "kl": "KL of the output, nats"}[value]
    rows = frame.to_dict("records")
    same = [row["attention"] == row["feed_forward"] for row in rows]
    still = [row["residual"] == 1.0 for row in rows]
    writes = frame[[a and b for a, b in zip(same, still, strict=True)]]
    stream = frame[[row["attention"] == 1.0 and row["feed_forward"] == 1.0 for row in rows]]
    pictures = {
        "all writes scaled": _scaled(writes, "attention", value, title),
        "residual scaled at every addition": _scaled(stream, "residual", value, title),
    }
    return beside(pictures)


def _scaled(frame: pd.DataFrame, x: str, value: str, title: str) -> Picture:
    traces: list[Picture] = []
    for subject, look in _SUBJECTS.items():
        own = ordered(rows_where(frame, "subject", subject), x)
        if known(column(own, value)):
            said = f"{look.label}: {{change!s}}", "{} nats"
            traces += line(x, own, ends(value), look, *said)
    axes = theme.axis("scale"), theme.axis(title)
    return {"data": traces, "layout": theme.layout(*axes, 300)}


def intervention_depth(source: Source) -> Picture:
    """Length and mean cosine of the tokens along depth under some changes."""
    frame = source.table("intervention_depth", "subject", "change", "layer", "norm", "mean_cosine")
    frame = rows_where(frame, "subject", "model")
    lengths = _depth(frame, "norm", "median length", log=True)
    return beside({"length": lengths, "likeness": _depth(frame, "mean_cosine", "mean cosine")})


def _depth(frame: pd.DataFrame, name: str, title: str, *, log: bool = False) -> Picture:
    traces: list[Picture] = []
    for change, look in _DEPTH.items():
        own = rows_where(frame, "change", change)
        if len(own):
            said = f"{look.label}, block {{layer:g}}", f"{title} {{}}"
            traces += line("layer", own, (name,), look, *said)
    if not traces:
        raise Missing("none of the changes that this figure shows was tried")
    scale = {"type": "log", "exponentformat": "power", "nticks": 6} if log else {}
    axes = theme.axis("block"), theme.axis(title, **scale)
    return {"data": traces, "layout": theme.layout(*axes, 300)}


def _costs_said(source: Source) -> str:
    return (
        "What scaling all writes, or the stream at every addition, costs: the model (blue) and a "
        "network with random weights (red), means over prompts with 95 % intervals. A common scale "
        "of embedding and writes would change nothing: only their ratio counts."
    )


def _depth_said(source: Source) -> str:
    return (
        "The tokens of the model after each block under changes of all blocks at once; a line ends "
        "before the block after which a state is not finite. " + _overflows(source)
    )


def _overflows(source: Source) -> str:
    """Which changes overflow, and where."""
    frame = source.rows("interventions", "subject", "change", "overflow")
    frame = rows_where(frame, "subject", "model") if len(frame) else frame
    found = [
        f"{change} in block {block:.0f}"
        for change, block in zip(words(frame, "change"), column(frame, "overflow"), strict=True)
        if block > 0
    ] if len(frame) else []  # fmt: skip
    return f"Overflow: {', '.join(found)}." if found else "None of them overflows."


def _entries(source: Source) -> list[Look]:
    there = set(words(source.rows("intervention_depth", "change"), "change"))
    return [look for change, look in _DEPTH.items() if change in there]


def interventions_section(source: Source) -> str:
    """Section of the interventions."""
    return "".join(shown(source, name, figure) for name, figure in FIGURES.items())


FIGURES: Mapping[str, Figure] = {
    "intervention_costs": Figure(
        title="What scaling writes or residual costs",
        draw=intervention_costs,
        caption=_costs_said,
        key=tuple(_SUBJECTS.values()),
        measurements=("interventions",),
    ),
    "intervention_depth": Figure(
        title="The tokens under changes of all blocks",
        draw=intervention_depth,
        caption=_depth_said,
        key=_entries,
        measurements=("interventions",),
    ),
}
"""Figures of the interventions."""
