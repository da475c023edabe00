"""Every pass of a few prompts, when answers settle, and how certainty grows."""

import math
from functools import partial

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, line
from flowscope.report.figure_html import figure, part
from flowscope.report.listings import numbers
from flowscope.report.parts.choosing import choice_data, choice_list, pictures_of
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "map_section", "pass_map", "progress", "settling_section"]

_MAP_LINES = (
    "pass {pass:g}, position {position:g}",
    "would fill in “{token!s}”, p = {first}, next {second}",
    "entropy {entropy} nats",
    "filled in at last: “{filled!s}”",
)
_KNOWN = Look("filling all now gives the answer", theme.BLUE)
_SETTLED = Look("and it stays the answer from here on", theme.VERMILION, "dash")
_CONFIDENT = Look("median probability of the leading token", theme.BLUE)
_FINAL = Look("leading tokens that are the final ones", theme.GREEN, "dash")
_MASKED = Look("blanks that are still masked", theme.ORANGE, "dot")


def _prompts(source: Source) -> list[float]:
    frame = source.table("map", "prompt", "pass", "position", "first", "token", "filled")
    return sorted({value for value in column(frame, "prompt") if math.isfinite(value)})


def pass_map(source: Source, prompt: float | None = None) -> Picture:
    """Heat map of passes and blanks of one prompt; the first pass is at the top."""
    prompts = _prompts(source)
    if not prompts:
        raise Missing("the table “map” names no prompt")
    chosen = prompts[0] if prompt is None else prompt
    frame = source.table("map")
    frame = frame[[value == chosen for value in column(frame, "prompt")]]
    return _heat(frame)


def _heat(frame: pd.DataFrame) -> Picture:
    places = list(zip(column(frame, "pass"), column(frame, "position"), strict=True))
    passes, positions = (sorted(set(side)) for side in zip(*places, strict=True))
    cells = dict(zip(places, column(frame, "first"), strict=True))
    texts = dict(zip(places, notes(frame, *_MAP_LINES), strict=True))
    blanks = list(range(1, len(positions) + 1))
    heat = {
        "type": "heatmap",
        "x": blanks,
        "y": passes,
        "z": [[cells.get((row, at), math.nan) for at in positions] for row in passes],
        "zmin": 0.0,
        "zmax": 1.0,
        "xgap": 1,
        "ygap": 1,
        "colorscale": theme.colour_scale(theme.SCALE),
        "colorbar": {"thickness": 10, "len": 1, "outlinewidth": 0, "title": {"text": "p"}},
        "hovertext": [[texts.get((row, at), "") for at in positions] for row in passes],
        "hoverinfo": "text",
    }
    x = theme.axis("blank, from left to right", showgrid=False, **_steps(len(positions)))
    y = theme.axis("pass", showgrid=False, autorange="reversed", **_steps(len(passes)))
    height = 120 + 11 * max(16, min(len(passes), 60))
    return {"data": [heat, _settles(frame, positions)], "layout": theme.layout(x, y, height)}


def _steps(count: int) -> Picture:
    """Ticks at whole numbers, a dozen at most."""
    return {"dtick": max(1, round(count / 12)), "tick0": 1}


def _settles(frame: pd.DataFrame, positions: list[float]) -> Picture:
    """A mark on each blank in the first pass from which its leading token is the final one."""
    rows = sorted(
        zip(
            column(frame, "position"), column(frame, "pass"), words(frame, "token"),
            words(frame, "filled"), strict=True,
        )
    )  # fmt: skip
    first: dict[float, float] = {}
    for position, number, token, last in rows:
        if token != last:
            first.pop(position, None)
        else:
            first.setdefault(position, number)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [positions.index(position) + 1 for position in first],
        "y": list(first.values()),
        "marker": {"symbol": "circle", "size": 6, "color": theme.VERMILION},
        "hoverinfo": "skip",
    }


def _map_caption(source: Source) -> str:
    return (
        "Each cell is a blank (column) in a pass of the reference (row): how probable the model "
        "holds its leading token. A column ends in the pass in which the blank is filled; the red "
        "dot is the first pass from which its leading token stays the final one. What lies below "
        "the lowest dot are passes that an oracle would save. Single prompts, no intervals."
    )


@part()
def map_section(source: Source) -> str:
    """Maps of a few prompts behind a list."""
    prompts = _prompts(source)
    pictures = pictures_of([partial(pass_map, source, prompt) for prompt in prompts], must=True)
    names = [f"fresh prompt {prompt:g}" for prompt in prompts]
    return (
        choice_list("Prompt", ["decode_map"], names)
        + figure("decode_map", pictures[0], _map_caption(source))
        + choice_data("decode_map", pictures)
    )


def settling(source: Source) -> Picture:
    """Share of the prompts whose answer is known, and has settled, by share of the passes."""
    frame = source.table("prompts", "part", "passes", "known", "settled")
    frame = frame[frame["part"] == "test"]
    total = column(frame, "passes")
    grid = [k / 50 for k in range(51)]
    traces = []
    for name, look in (("known", _KNOWN), ("settled", _SETTLED)):
        reached = [value / most for value, most in zip(column(frame, name), total, strict=True)]
        shares = [sum(value <= at for value in reached) / len(reached) for at in grid]
        texts = [
            f"after {at:.0%} of the passes: {share:.0%}"
            for at, share in zip(grid, shares, strict=True)
        ]
        traces.append(curve(grid, shares, look, texts))
    x = theme.axis("share of the reference's passes", tickformat=".0%", range=[0, 1])
    y = theme.axis("share of prompts", tickformat=".0%", range=[0, 1.02])
    return {"data": traces, "layout": theme.layout(x, y, 300)}


def progress(source: Source) -> Picture:
    """Certainty of the masked blanks as passes go by."""
    frame = source.table("progress", "progress", "confidence", "final", "masked")
    traces = [
        trace
        for name, look in (("confidence", _CONFIDENT), ("final", _FINAL), ("masked", _MASKED))
        for trace in line(
            "progress", frame, (name,), look, "{progress:%} of the passes", look.label + " {}"
        )
    ]
    mobility = line(
        "progress", frame, ("mobility",), Look("mobility", theme.VERMILION),
        "{progress:%} of the passes", "mobility {}",
    )  # fmt: skip
    x = theme.axis("share of the reference's passes", tickformat=".0%", range=[0, 1])
    panels = [
        Panel(title="share", traces=traces, axis={"range": [0, 1.02]}),
        Panel(title="mobility", traces=mobility, share=0.45, axis={"rangemode": "tozero"}),
    ]
    return stacked(panels, x, 260, gap=0.1)


def _settling_caption(source: Source) -> str:
    return (
        "Blue: share of fresh prompts for which filling all blanks at once gives the reference's "
        "answer. Red: the same, where no later pass would give another one. A rule that commits "
        "once and changes no answer cannot stop before the blue curve, and does not see it."
    )


def _progress_caption(source: Source) -> str:
    return (
        "Medians over masked blanks of the fresh prompts, by tenths of the passes. Mobility is how "
        "far a step of the logits can still move a law."
    )


def settling_section(source: Source) -> str:
    """When answers settle, and how certain the model is meanwhile."""
    return _shown(source, "settling") + _shown(source, "progress") + numbers(source, "progress")


@part()
def _shown(source: Source, name: str) -> str:
    drawing = FIGURES[f"decode_{name}"]
    return figure(
        f"decode_{name}", drawing.draw(source), drawing.caption(source), drawing.entries(source)
    )


FIGURES: dict[str, Figure] = {
    "decode_map": Figure(
        title="Passes and blanks of a prompt", draw=pass_map, caption=_map_caption
    ),
    "decode_settling": Figure(
        title="When the answer is known",
        draw=settling,
        caption=_settling_caption,
        key=(_KNOWN, _SETTLED),
    ),
    "decode_progress": Figure(
        title="Certainty along the passes",
        draw=progress,
        caption=_progress_caption,
        key=(_CONFIDENT, _FINAL, _MASKED),
    ),
}
