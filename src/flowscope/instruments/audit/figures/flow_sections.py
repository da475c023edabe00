"""Sections about the flow: forecasts of layers, cost of the last layers, rotation."""

import math
from functools import partial

from flowscope.instruments.audit.claims import ADEQUACY, ROTATION
from flowscope.instruments.audit.figures import flow_figures, rotation_figures
from flowscope.instruments.audit.figures.depth_tables import clouds, drift_skills
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import fold, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, numeral, percent, reading
from flowscope.report.panels import panel_row
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure

__all__ = ["FLOW_FIGURES", "SHADES", "depth_loss_section", "flow_section", "rotation_section"]

_TABLES = ("adequacy", "adequacy_clouds", "drifts", "overlay", "budget")
SHADES = (("passing", "segment that passes the gate"), ("abstained", "abstained"))
"""Entries of a key for the shading of segments."""

_FEW_ROWS = 16
_MOBILITY_AND_GAIN = "rank correlation of mobility left and gain of the layers after"


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def flow_section(source: Source) -> str:
    """Forecasts, kinds of drift, clouds, bounds and the budget, or why there are none."""
    if not any(name in source.tables for name in _TABLES):
        source.table("adequacy")
    bounds = shown(source, "overlay", FLOW_FIGURES["overlay"])
    budget = shown(source, "budget", FLOW_FIGURES["budget"])
    return (
        "<p>A drift is a rule that predicts the next change of a token’s output from its present "
        "value. It is fitted on half of the prompts and judged on the other half. Total variation "
        "is the share of probability that the forecast puts on the wrong tokens: 0 is exact, 1 "
        "has nothing in common with the model. The flow is useful where its curve lies below "
        "“nothing moves”.</p>"
        + _forecasts(source)
        + _kinds(source)
        + _clouds(source)
        + f'<div class="pair"><div><h3>What bounds one layer</h3>{bounds}</div>'
        f"<div><h3>Budget against error</h3>{budget}</div></div>"
        + numbers(source, "overlay")
        + numbers(source, "budget")
    )


def _tokens(source: Source, table: str) -> str:
    """How many tokens stand behind a table, in words, to begin a list."""
    known = [v for v in column(source.rows(table, "tokens"), "tokens") if math.isfinite(v)]
    return f"{max(known):.0f} tokens, " if known else ""


_HORIZONS = {"onward": "From the first state onward", "one layer": "One layer ahead"}


def _forecast_caption(source: Source) -> str:
    return (
        "Total variation between the forecast and the output of the model, median over tokens of "
        "prompts that the drift was not fitted on. Onward: started once, at the first state of the "
        "segment; one layer ahead: restarted before every layer. The distance from persistence to "
        "flow is the gain of the flow; the distance from flow to floor is what a better drift in "
        f"the same coordinates could still gain.{_stopped(source)} "
        f"{_tokens(source, 'adequacy')}{source.basis(ADEQUACY.name)}."
    )


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def _forecasts(source: Source) -> str:
    drawing = FLOW_FIGURES["forecasts"]
    drawing.draw(source)  # raises where neither horizon can be drawn
    panels = "".join(
        f"<div><h3>{title}</h3>{_panel(source, horizon)}</div>"
        for horizon, title in _HORIZONS.items()
    )
    return (
        f'<figure>{key(drawing.entries(source))}<div class="pair">{panels}</div>'
        f"<figcaption>{html_text(_forecast_caption(source))}</figcaption></figure>"
        f"{numbers(source, 'adequacy')}"
    )


def _stopped(source: Source) -> str:
    if flow_figures.forecast_parts(source, "onward", "flow"):
        return ""
    return " The flow is not drawn, because it gave no number (its verdict gives the reason)."


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def _panel(source: Source, horizon: str) -> str:
    name = horizon.replace(" ", "-")
    picture = flow_figures.forecast(source, horizon)
    return plot(f"forecast-{name}", picture, f"total variation of forecasts by layer, {horizon}")


@part(table="drifts", verdicts=(ADEQUACY.name,))
def _kinds(source: Source) -> str:
    rows = drift_skills(source)
    frame = source.tables["drifts"]
    held = _held(column(frame, "coordinates"), column(frame, "variance_held"))
    caption = (
        "Held-out error is that of the velocity on prompts left out of the fit, for each half, "
        "relative to zero drift (1: no better). Skill is 1 − TV / TV of persistence at the last "
        "layer of the segment: 0 means no change, 1 is the model itself; in brackets its interval. "
        f"{held}{source.basis(ADEQUACY.name)}."
    )
    table = listing(rows, "skill by kind of drift")
    note = f'<p class="source">{html_text(caption)}</p>'
    title = f"Which drift? ({count(len(rows), 'row')})"
    return fold(title, table + note + numbers(source, "drifts"), opened=len(rows) <= _FEW_ROWS)


def _held(coordinates: list[float], shares: list[float]) -> str:
    pairs = sorted({pair for pair in zip(coordinates, shares, strict=True) if sum(pair) < math.inf})
    if not pairs:
        return ""
    (number, least), (_, most) = pairs[0], pairs[-1]
    held = percent(least) if least == most else f"{percent(least)} to {percent(most)}"
    return f"{number:g} coordinates hold {held} of the variance of the logits. "


@part(table="adequacy_clouds", verdicts=(ADEQUACY.name,))
def _clouds(source: Source) -> str:
    rows = clouds(source)
    note = (
        "All tokens of a layer at once, as a cloud of points in the coordinates: KS is the largest "
        "Kolmogorov–Smirnov distance of a coordinate, MMD the squared mean discrepancy without "
        "bias (it may fall below 0 by chance). Smaller is nearer. In brackets: 2.5 and 97.5 % "
        f"quantiles of resamples of prompts; {source.units(ADEQUACY.name)}."
    )
    table = listing(rows, "distances between clouds of forecast and true states")
    link = '<a href="tables/adequacy_clouds.csv">tables/adequacy_clouds.csv</a>'
    return fold(
        "Are the forecast states, taken together, where the true ones are?",
        f'{table}<p class="source">{html_text(note)} Drawn from {link}.</p>',
    )


def _overlay_caption(source: Source) -> str:
    frame = source.tables["overlay"]
    shares = {
        name: _mean(column(frame, f"{name}_informative")) for name in ("budget", "restricted")
    }
    exceeded = sum(v for v in column(frame, "exceeded") if math.isfinite(v))
    writes = (
        f"in {percent(shares['budget'])} of token–layer pairs for the budget and in "
        if math.isfinite(shares["budget"])
        else "(the budget is missing, because the writes of a block cannot be separated) in "
    )
    return (
        "Change of the output in each layer, median over tokens, and the most that theory allows. "
        "A bound above .99 (dotted) is vacuous: no total variation exceeds 1, so that it cannot "
        f"fail. A bound is informative {writes}{percent(shares['restricted'])} for the "
        f"restricted bound; it is exceeded {count(int(exceeded), 'time')}. "
        f"{_tokens(source, 'overlay')}{source.units(ADEQUACY.name)}; medians, without interval."
    )


def _mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _budget_caption(source: Source) -> str:
    frame = source.tables["budget"]
    pairs = list(zip(column(frame, "error"), column(frame, "budget"), strict=True))
    covered = _mean([float(e <= xi) for e, xi in pairs if math.isfinite(e + xi)])
    drawn = len(flow_figures.budget_points(frame))
    name = "rank correlation of forecast error and budget"
    correlation = next((m for m in source.measurements if m.name == name), None)
    ranked = f" Rank correlation {reading(correlation)}." if correlation is not None else ""
    return (
        "One dot per token: the budget Ξ, made from the sizes of its steps, against the worst "
        "error of its forecast. The theory expects large errors only where Ξ is large: dots on or "
        f"below the line are covered, {percent(covered)} of all.{ranked} Ξ has two constants, "
        f"fitted on half of the prompts. {_drawn(drawn, len(pairs))}, "
        f"{source.units(name, ADEQUACY.name)}; "
        "single measurements, without interval."
    )


def _drawn(drawn: int, whole: int) -> str:
    return count(whole, "token") if drawn == whole else f"{drawn} of {whole} tokens drawn"


def depth_loss_section(source: Source) -> str:
    """What removing the last layers costs, beside the mobility left, or why it is not known."""
    drawn = shown(source, "depth-loss", FLOW_FIGURES["depth_loss"])
    return drawn + numbers(source, "depth_loss")


def _depth_loss_caption(source: Source) -> str:
    frame = source.tables["depth_loss"]
    free = flow_figures.free_layers(frame)
    most = max((v for v in column(frame, "removed") if math.isfinite(v)), default=math.nan)
    ended = (
        f"The last {free:g} of {most:g} layers can be removed (dotted): up to there the upper end "
        "of the interval of the rise is at most a hundredth of a nat. "
        if math.isfinite(free)
        else ""
    )
    return (
        "Mean loss on the next token when the last layers are removed, minus the loss of the whole "
        "model; 0 means that the removed layers were not needed. Below: the mobility ‖J‖ at that "
        f"layer, which measures how much the output could still change. {ended}"
        f"{_tokens(source, 'depth_loss')}"
        f"{source.basis(_MOBILITY_AND_GAIN, ADEQUACY.name)}."
    )


@part(table="rotation", verdicts=(ROTATION.name,))
def rotation_section(source: Source) -> str:
    """The share of the motion that turns, or why it is not known."""
    rotation_figures.rotation_rows(source)  # raises where rotation was measured at no layer
    return (
        "<p>Motion down a slope can be written as the gradient of one function, a potential; "
        "motion around a centre cannot. R_norm is the share of the predictable motion that no "
        "potential explains.</p>"
        + shown(source, "rotation", FLOW_FIGURES["rotation"])
        + numbers(source, "rotation")
    )


def _rotation_caption(source: Source) -> str:
    frame = rotation_figures.rotation_rows(source)
    significant, silent = detected(frame), len(source.tables["rotation"]) - len(frame)
    named = (word for word in words(frame, "interval_method") if word)
    methods = ", ".join(dict.fromkeys("BCa" if word == "bca" else word for word in named))
    planted = [v for v in column(frame, "planted_share") if math.isfinite(v)]
    share = f" (a share of {numeral(planted[0])})" if planted else ""
    return (
        "R_norm of the central layers: 0 is pure transport, 1 pure rotation, and the verdict asks "
        "on which side of one half their mean lies. Filled dots: rotation is detected "
        f"(p < .05), in {sum(significant)} of {count(len(significant), 'layer')}. Two checks of "
        "the method: the diamond, a gradient field, should lie near 0, and the triangle, the same "
        f"field with rotation planted in it{share}, near that share. "
        f"{count(silent, 'layer')} abstained. "
        f"{_tokens(source, 'rotation')}{source.units(ROTATION.name)}; intervals: 95 %, "
        f"{methods or 'method not recorded'}, resampling prompts."
    )


_FORECAST_SHAPES = ("line", "rule random_weights", "rule linear_interpolation", "rule grey")
_BOUND_SHAPES = ("line", "rule linear_interpolation", "rule random_weights", "rule")

FLOW_FIGURES: dict[str, Figure] = {
    "forecasts": Figure(
        title="Can a flow predict the layers?",
        draw=panel_row({title: partial(flow_figures.forecast, horizon=horizon)
                        for horizon, title in _HORIZONS.items()}),
        caption=_forecast_caption,
        key=(
            *zip(_FORECAST_SHAPES, (label for label, _, _ in flow_figures.FORECASTS.values()),
                 strict=True),
            ("band", "interval of the flow"),
            *SHADES,
        ),
        table="adequacy",
        verdicts=(ADEQUACY.name,),
    ),
    "overlay": Figure(
        title="What bounds one layer",
        draw=flow_figures.overlay,
        caption=_overlay_caption,
        key=(
            *zip(_BOUND_SHAPES, (label for label, _, _ in flow_figures.BOUNDS.values()),
                 strict=True),
            ("rule vacuous", "vacuous where above .99"),
        ),
        table="overlay",
        verdicts=(ADEQUACY.name,),
    ),
    "budget": Figure(
        title="Budget against error",
        draw=flow_figures.budget,
        caption=_budget_caption,
        key=(("dot", "one token"), ("rule random_weights", "error = budget")),
        table="budget",
        verdicts=(ADEQUACY.name,),
    ),
    "depth_loss": Figure(
        title="How much do the last layers contribute?",
        draw=flow_figures.depth_loss,
        caption=_depth_loss_caption,
        key=(
            ("line", "rise of the loss"),
            ("rule green", "mobility left"),
            ("band", "interval"),
            ("rule vacuous", "free up to here"),
        ),
        table="depth_loss",
        verdicts=(ADEQUACY.name, ROTATION.name),
    ),
    "rotation": Figure(
        title="Does the motion rotate?",
        draw=rotation_figures.rotation,
        caption=_rotation_caption,
        key=(
            ("disc", "share that rotates; rotation detected"),
            ("hollow blue", "not detected"),
            ("diamond open", CONTROLS["gradient_control"][0]),
            ("triangle", CONTROLS["planted_control"][0]),
            ("rule half", "one half"),
            *SHADES,
        ),
        table="rotation",
        verdicts=(ROTATION.name,),
    ),
}  # fmt: skip
"""Figures of the flow and its rotation by the name of their file."""
