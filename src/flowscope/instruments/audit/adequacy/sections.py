"""The section on forecasts of the layers."""

import math
from functools import partial

from flowscope.instruments.audit.adequacy import ADEQUACY, figures
from flowscope.instruments.audit.adequacy.listings import clouds, drift_skills, skill_sums
from flowscope.instruments.audit.spans import SHADES, tokens_behind
from flowscope.report.drawing.panels import panel_row
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import fold, key, part, plot, shown
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, percent, reading
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "flow_section"]


_TABLES = ("adequacy", "adequacy_skill", "adequacy_clouds", "drifts", "overlay", "budget")


_FEW_ROWS = 16


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def flow_section(source: Source) -> str:
    """Forecasts, kinds of drift, clouds, bounds and the budget, or why there are none."""
    if not any(name in source.tables for name in _TABLES):
        source.table("adequacy")
    bounds = shown(source, "overlay", FIGURES["overlay"])
    budget = shown(source, "budget", FIGURES["budget"])
    return (
        "<p>A drift is a rule that predicts the next change of a token’s output from its present "
        "value. It is fitted on half of the prompts and judged on the other half. Total variation "
        "is the share of probability that the forecast puts on the wrong tokens: 0 is exact, 1 "
        "has nothing in common with the model. The flow predicts better than a shift, a scale "
        "or a lookup where its curve lies below both curves of the mean step and below the "
        "lookup.</p>"
        + _forecasts(source)
        + _learning(source)
        + _kinds(source)
        + _clouds(source)
        + f'<div class="pair"><div><h3>What bounds one layer</h3>{bounds}</div>'
        f"<div><h3>Budget against error</h3>{budget}</div></div>"
        + numbers(source, "overlay")
        + numbers(source, "budget")
    )


_HORIZONS = {"onward": "From the first state onward", "one layer": "One layer ahead"}


def _forecast_caption(source: Source) -> str:
    return (
        "Total variation between the forecast and the output of the model, median over tokens of "
        "prompts that the drift was not fitted on. Onward: started once, at the first state of the "
        "segment; one layer ahead: restarted before every layer. The distance from the best "
        "of persistence, mean step, scaled mean step and lookup to the flow is what is judged; "
        "the distance from flow to floor is what a better drift in the same coordinates could "
        f"still gain.{_stopped(source)} "
        f"{tokens_behind(source, 'adequacy')}{source.basis(ADEQUACY.name)}."
    )


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def _forecasts(source: Source) -> str:
    drawing = FIGURES["forecasts"]
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
    if figures.forecast_parts(source, "onward", "flow"):
        return ""
    return " The flow is not drawn, because it gave no number (its verdict gives the reason)."


@part(table="adequacy", verdicts=(ADEQUACY.name,))
def _panel(source: Source, horizon: str) -> str:
    name = horizon.replace(" ", "-")
    picture = figures.forecast(source, horizon)
    return plot(f"forecast-{name}", picture, f"total variation of forecasts by layer, {horizon}")


@part(table="adequacy_skill", verdicts=(ADEQUACY.name,))
def _learning(source: Source) -> str:
    """Skills that the verdict rests on, with the flow of less data."""
    rows = skill_sums(source)
    note = (
        "Skill is 1 − ΣTV / ΣTV of persistence, over held-out tokens and all layers, onward. A "
        "flow that gains with the number of prompts would gain more from more of them. A flow that "
        "loses nothing with its layers in random order does not depend on depth, which is no "
        f"fault. {source.basis(ADEQUACY.name)}."
    )
    table = listing(rows, "skill of every forecast")
    text = f'{table}<p class="source">{html_text(note)}</p>{numbers(source, "adequacy_skill")}'
    return fold("What the verdict rests on", text, opened=True)


@part(table="drifts", verdicts=(ADEQUACY.name,))
def _kinds(source: Source) -> str:
    rows = drift_skills(source)
    frame = source.tables["drifts"]
    held = _held(column(frame, "coordinates"), column(frame, "variance_held"))
    caption = (
        "Held-out error is that of the coordinates onward on prompts left out of the fit, for "
        "each half, relative to no motion (1: no better). Skill is 1 − TV / TV of persistence at "
        "the last layer of the segment: 0 means no change, 1 is the model itself; in brackets its "
        "interval. "
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
        f"{tokens_behind(source, 'overlay')}{source.units(ADEQUACY.name)}; medians, without "
        "interval."
    )


def _mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _budget_caption(source: Source) -> str:
    frame = source.tables["budget"]
    pairs = list(zip(column(frame, "error"), column(frame, "budget"), strict=True))
    covered = _mean([float(e <= xi) for e, xi in pairs if math.isfinite(e + xi)])
    drawn = len(figures.budget_points(frame))
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


FIGURES: dict[str, Figure] = {
    "forecasts": Figure(
        title="Can a flow predict the layers?",
        draw=panel_row({title: partial(figures.forecast, horizon=horizon)
                        for horizon, title in _HORIZONS.items()}),
        caption=_forecast_caption,
        key=(
            *figures.FORECASTS.values(),
            ("band", "interval of the flow"),
            *SHADES,
        ),
        table="adequacy",
        verdicts=(ADEQUACY.name,),
    ),
    "overlay": Figure(
        title="What bounds one layer",
        draw=figures.overlay,
        caption=_overlay_caption,
        key=(*figures.BOUNDS.values(), ("rule vacuous", "vacuous where above .99")),
        table="overlay",
        verdicts=(ADEQUACY.name,),
    ),
    "budget": Figure(
        title="Budget against error",
        draw=figures.budget,
        caption=_budget_caption,
        key=(("dot", "one token"), figures.DIAGONAL),
        table="budget",
        verdicts=(ADEQUACY.name,),
    ),
}  # fmt: skip
