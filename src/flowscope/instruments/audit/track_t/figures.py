"""What only a study of depth has: finer steps, and the temperature of the output."""

import math

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.log_axes import log_axis, slope_line
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import curve, ends, line, points, upright
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import numeral, percent
from flowscope.report.rows import above_zero, known
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "DISTANCES",
    "PANELS",
    "SWEEP_FIGURES",
    "identification",
    "identification_section",
    "refinements",
    "temperature_section",
    "temperatures",
]

DISTANCES = {
    "state": Look("states", theme.BLUE, symbol="circle"),
    "drift": Look("fitted drift", theme.VERMILION, symbol="diamond"),
}
"""What the table ``identification`` compares: the prefix of its columns, and how it is drawn."""

PANELS = {"mobility": "mobility ‖J‖", "loss": "loss (nats)", "ece": "calibration error"}
"""Columns of the table ``output_temperature`` that are drawn, and the title of their axis."""


def refinements(source: Source) -> pd.DataFrame:
    """Refinements that have a next one to be compared with."""
    frame = source.table("identification", "n", "state_to_next", "drift_to_next")
    steps = zip(column(frame, "n"), column(frame, "state_to_next"), strict=True)
    rows = frame[[n > 0 and 0 < step < math.inf for n, step in steps]]
    if rows.empty:
        raise Missing("the table “identification” holds no distance")
    return rows


def identification(source: Source) -> Picture:
    """Distance from each refinement to the next on logarithmic axes, with the fitted slopes."""
    rows = refinements(source)
    n, heights = column(rows, "n"), []
    expected = slope_line(n, column(rows, "state_to_next")[:1] + [math.nan] * (len(n) - 1), -1.0)
    thin = {"color": "#9aa4ad", "width": 1, "dash": "solid"}
    traces = [curve(n, expected, Look("slope −1", "#9aa4ad"), line=thin)]
    for name, look in DISTANCES.items():
        values, slope = column(rows, f"{name}_to_next"), column(rows, f"{name}_order")[0]
        heights += values
        fitted = Look(look.label, look.colour, "dot")
        said = notes(rows, f"{look.label}, n = {{n:g}} to the next", f"{{{name}_to_next}}",
                     f"slope {numeral(slope)}")  # fmt: skip
        traces.append(curve(n, slope_line(n, values, slope), fitted))
        traces.append(points(n, list(map(above_zero, values)), look, said, size=10))
    x = theme.axis("steps per layer, n", type="log", tickvals=n, ticktext=[f"{a:g}" for a in n])
    y = log_axis("relative distance to the next n", heights, most=99)
    return {"data": traces, "layout": theme.layout(x, y, 340)}


def _identification_caption(source: Source) -> str:
    frame = source.tables["identification"]
    state, drift = (column(frame, f"{name}_order")[0] for name in ("state", "drift"))
    own, tokens = column(frame, "state_distance")[0], column(frame, "tokens")[0]
    return (
        "The same weights run with n small steps in place of each layer, n times smaller each; "
        "distance from one n to the next, relative to how far the states move and to the size of "
        "the drift. If depth were a flow cut into steps, the dots would fall along the grey "
        "line, of slope −1 (halved each time n doubles). Slopes here (dotted): "
        f"{numeral(state)} for the states, {numeral(drift)} for the drift; the model’s own steps "
        f"are {percent(own)} off the finest. n = {numeral(tokens, 6)} tokens; slopes by "
        "regression, without interval."
    )


def temperatures(source: Source) -> Picture:
    """Mobility, loss and calibration error against the temperature, one panel each."""
    frame = source.table("output_temperature", "temperature", *PANELS)
    places = [above_zero(place) for place in column(frame, "temperature")]
    ticks = known(places)
    if not ticks:
        raise Missing("the column temperature of the table “output_temperature” has no number")
    blue = Look("measured", theme.BLUE, symbol="circle")
    panels = [
        Panel(title=title, traces=line(places, frame, ends(name), blue, "τ = {temperature}",
                                       f"{title} {{}}"))
        for name, title in PANELS.items()
    ]  # fmt: skip
    x = theme.axis("temperature τ of the output (1: as is)", type="log", tickvals=ticks)
    x |= {"ticktext": [f"{place:g}" for place in ticks], "showgrid": False}
    return stacked(panels, x, 152, gap=0.08, shapes=[upright(1.0)])


def _temperature_caption(source: Source) -> str:
    frame = source.tables["output_temperature"]
    rows = zip(column(frame, "loss"), column(frame, "temperature"), strict=True)
    best = min(((v, tau) for v, tau in rows if math.isfinite(v)), default=(math.nan, math.nan))[1]
    return (
        "The model’s own output divided by τ before the softmax. Mobility is how easily the output "
        "still moves; the loss is lowest at the best temperature of the sweep "
        f"(τ = {numeral(best)}); the calibration error is the gap between how sure the model is "
        "and how often it is right, in bins of equal mass. Dotted: the model as it is. "
        f"{numeral(column(frame, 'tokens')[0], 6)} tokens, "
        f"{source.basis('loss gained by a temperature chosen on other prompts')}."
    )


SWEEP_FIGURES = {
    "identification": Figure(
        title="Does depth settle?",
        draw=identification,
        caption=_identification_caption,
        key=(
            ("disc", "states"),
            ("diamond", "fitted drift"),
            ("rule vacuous", "fitted slope"),
            ("rule layer", "slope −1 from the first dot: steps of a flow"),
        ),
    ),
    "output_temperature": Figure(
        title="Temperature of the output",
        draw=temperatures,
        caption=_temperature_caption,
        key=(("line", "measured"), ("band", "interval"), ("rule vacuous", "τ = 1")),
    ),
}
"""Figures of a study by the name of their file."""


def identification_section(source: Source) -> str:
    """How states and drift change as the steps become finer."""
    drawn = shown(source, "identification", SWEEP_FIGURES["identification"])
    return drawn + numbers(source, "identification")


def temperature_section(source: Source) -> str:
    """What the temperature of the output does to mobility, loss and calibration."""
    drawn = shown(source, "temperature", SWEEP_FIGURES["output_temperature"])
    return drawn + numbers(source, "output_temperature")
