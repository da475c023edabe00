"""Sections about the flow: forecasts of layers, cost of the last layers, rotation."""

import math

from flowscope.instruments.audit.claims import ADEQUACY, ROTATION
from flowscope.instruments.audit.figures import flow_figures, rotation_figures
from flowscope.instruments.audit.figures.depth_tables import clouds, drift_skills
from flowscope.records import Unavailable
from flowscope.report.escaping import html_text
from flowscope.report.figure_html import figure, fold, key, missing, plot
from flowscope.report.listings import listing, numbers
from flowscope.report.numerals import count, numeral, percent, reading
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = ["depth_loss_section", "flow_section", "rotation_section"]

_TABLES = ("adequacy", "adequacy_clouds", "drifts", "overlay", "budget")
_SHADES = [("passing", "segment that passes the gate"), ("abstained", "abstained")]
_FEW_ROWS = 16
_MOBILITY_AND_GAIN = "rank correlation of mobility left and gain of the layers after"


def flow_section(source: Source) -> str:
    """Forecasts, kinds of drift, clouds, bounds and the budget, or why there are none."""
    if not any(name in source.tables for name in _TABLES):
        return missing(_why(source, "adequacy", ADEQUACY.name))
    return (
        "<p>A drift is a rule that predicts the next change of a token’s output from its present "
        "value. It is fitted on half of the prompts and judged on the other half. Total variation "
        "is the share of probability that the forecast puts on the wrong tokens: 0 is exact, 1 "
        "has nothing in common with the model. The flow is useful where its curve lies below "
        "“nothing moves”.</p>"
        + _forecasts(source)
        + _kinds(source)
        + _clouds(source)
        + f'<div class="pair"><div><h3>What bounds one layer</h3>{_overlay(source)}</div>'
        f"<div><h3>Budget against error</h3>{_budget(source)}</div></div>"
        + numbers(source, "overlay")
        + numbers(source, "budget")
    )


def _why(source: Source, table: str, *verdicts: str) -> Unavailable:
    frame = source.table(table)
    lack = frame if isinstance(frame, Unavailable) else Unavailable("no number was recorded")
    return lack if table in source.tables else source.withheld(lack, *verdicts)


def _or_why(
    source: Source, picture: Picture | Unavailable, table: str, *verdicts: str
) -> Picture | Unavailable:
    """Picture, or the reason of its verdicts where its table is not there."""
    known = table in source.tables or not isinstance(picture, Unavailable)
    return picture if known else _why(source, table, *verdicts)


def _tokens(source: Source, table: str) -> str:
    """How many tokens stand behind a table, in words, to begin a list."""
    frame = source.table(table, "tokens")
    known = [] if isinstance(frame, Unavailable) else column(frame, "tokens")
    known = [number for number in known if math.isfinite(number)]
    return f"{max(known):.0f} tokens, " if known else ""


def _forecasts(source: Source) -> str:
    titles = {"onward": "From the first state onward", "one layer": "One layer ahead"}
    pictures = {
        horizon: _or_why(source, flow_figures.forecast(source, horizon), "adequacy", ADEQUACY.name)
        for horizon in titles
    }
    first = pictures["onward"]
    if all(isinstance(picture, Unavailable) for picture in pictures.values()):
        return missing(first) if isinstance(first, Unavailable) else ""
    panels = "".join(
        f"<div><h3>{titles[horizon]}</h3>{_panel(horizon, picture)}</div>"
        for horizon, picture in pictures.items()
    )
    shapes = ("line", "rule random_weights", "rule linear_interpolation", "rule grey")
    labels = [label for label, _, _ in flow_figures.FORECASTS.values()]
    entries = [*zip(shapes, labels, strict=True), ("band", "interval of the flow"), *_SHADES]
    caption = (
        "Total variation between the forecast and the output of the model, median over tokens of "
        "prompts that the drift was not fitted on. Onward: started once, at the first state of the "
        "segment; one layer ahead: restarted before every layer. The distance from persistence to "
        "flow is the gain of the flow; the distance from flow to floor is what a better drift in "
        f"the same coordinates could still gain.{_stopped(source)} "
        f"{_tokens(source, 'adequacy')}{source.basis(ADEQUACY.name)}."
    )
    return (
        f'<figure>{key(entries)}<div class="pair">{panels}</div>'
        f"<figcaption>{html_text(caption)}</figcaption></figure>{numbers(source, 'adequacy')}"
    )


def _stopped(source: Source) -> str:
    if flow_figures.forecast_parts(source, "onward", "flow"):
        return ""
    return " The flow is not drawn, because it gave no number (its verdict gives the reason)."


def _panel(horizon: str, picture: Picture | Unavailable) -> str:
    if isinstance(picture, Unavailable):
        return missing(picture)
    name = horizon.replace(" ", "-")
    return plot(f"forecast-{name}", picture, f"total variation of forecasts by layer, {horizon}")


def _kinds(source: Source) -> str:
    shown = drift_skills(source)
    if isinstance(shown, Unavailable):
        return missing(
            _why(source, "drifts", ADEQUACY.name) if "drifts" not in source.tables else shown
        )
    frame = source.tables["drifts"]
    held = _held(column(frame, "coordinates"), column(frame, "variance_held"))
    caption = (
        "Held-out error is that of the velocity on prompts left out of the fit, for each half, "
        "relative to zero drift (1: no better). Skill is 1 − TV / TV of persistence at the last "
        "layer of the segment: 0 means no change, 1 is the model itself; in brackets its interval. "
        f"{held}{source.basis(ADEQUACY.name)}."
    )
    table = listing(shown, "skill by kind of drift")
    note = f'<p class="source">{html_text(caption)}</p>'
    title = f"Which drift? ({count(len(shown), 'row')})"
    return fold(title, table + note + numbers(source, "drifts"), opened=len(shown) <= _FEW_ROWS)


def _held(coordinates: list[float], shares: list[float]) -> str:
    pairs = sorted({pair for pair in zip(coordinates, shares, strict=True) if sum(pair) < math.inf})
    if not pairs:
        return ""
    (number, least), (_, most) = pairs[0], pairs[-1]
    held = percent(least) if least == most else f"{percent(least)} to {percent(most)}"
    return f"{number:g} coordinates hold {held} of the variance of the logits. "


def _clouds(source: Source) -> str:
    shown = clouds(source)
    if isinstance(shown, Unavailable):
        return missing(_why(source, "adequacy_clouds", ADEQUACY.name))
    note = (
        "All tokens of a layer at once, as a cloud of points in the coordinates: KS is the largest "
        "Kolmogorov–Smirnov distance of a coordinate, MMD the squared mean discrepancy without "
        "bias (it may fall below 0 by chance). Smaller is nearer. In brackets: 2.5 and 97.5 % "
        f"quantiles of resamples of prompts; {source.units(ADEQUACY.name)}."
    )
    table = listing(shown, "distances between clouds of forecast and true states")
    link = '<a href="tables/adequacy_clouds.csv">tables/adequacy_clouds.csv</a>'
    return fold(
        "Are the forecast states, taken together, where the true ones are?",
        f'{table}<p class="source">{html_text(note)} Drawn from {link}.</p>',
    )


def _overlay(source: Source) -> str:
    picture = _or_why(source, flow_figures.overlay(source), "overlay", ADEQUACY.name)
    if isinstance(picture, Unavailable):
        return missing(picture)
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
    caption = (
        "Change of the output in each layer, median over tokens, and the most that theory allows. "
        "A bound above .99 (dotted) is vacuous: no total variation exceeds 1, so that it cannot "
        f"fail. A bound is informative {writes}{percent(shares['restricted'])} for the "
        f"restricted bound; it is exceeded {count(int(exceeded), 'time')}. "
        f"{_tokens(source, 'overlay')}{source.units(ADEQUACY.name)}; medians, without interval."
    )
    shapes = ("line", "rule linear_interpolation", "rule random_weights", "rule")
    labels = [label for label, _, _ in flow_figures.BOUNDS.values()]
    entries = [*zip(shapes, labels, strict=True), ("rule vacuous", "vacuous where above .99")]
    return figure("overlay", picture, caption, key(entries))


def _mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _budget(source: Source) -> str:
    picture = _or_why(source, flow_figures.budget(source), "budget", ADEQUACY.name)
    if isinstance(picture, Unavailable):
        return missing(picture)
    frame = source.tables["budget"]
    pairs = list(zip(column(frame, "error"), column(frame, "budget"), strict=True))
    covered = _mean([float(e <= xi) for e, xi in pairs if math.isfinite(e + xi)])
    drawn = len(picture["data"][0]["x"])
    name = "rank correlation of forecast error and budget"
    correlation = next((m for m in source.measurements if m.name == name), None)
    ranked = f" Rank correlation {reading(correlation)}." if correlation is not None else ""
    caption = (
        "One dot per token: the budget Ξ, made from the sizes of its steps, against the worst "
        "error of its forecast. The theory expects large errors only where Ξ is large: dots on or "
        f"below the line are covered, {percent(covered)} of all.{ranked} Ξ has two constants, "
        f"fitted on half of the prompts. {_drawn(drawn, len(pairs))}, "
        f"{source.units(name, ADEQUACY.name)}; "
        "single measurements, without interval."
    )
    entries = [("dot", "one token"), ("rule random_weights", "error = budget")]
    return figure("budget", picture, caption, key(entries))


def _drawn(drawn: int, whole: int) -> str:
    return count(whole, "token") if drawn == whole else f"{drawn} of {whole} tokens drawn"


def depth_loss_section(source: Source) -> str:
    """What removing the last layers costs, beside the mobility left, or why it is not known."""
    picture = _or_why(
        source, flow_figures.depth_loss(source), "depth_loss", ADEQUACY.name, ROTATION.name
    )
    if isinstance(picture, Unavailable):
        return missing(picture)
    frame = source.tables["depth_loss"]
    free = flow_figures.free_layers(frame)
    most = max((v for v in column(frame, "removed") if math.isfinite(v)), default=math.nan)
    ended = (
        f"The last {free:g} of {most:g} layers can be removed (dotted): up to there the upper end "
        "of the interval of the rise is at most a hundredth of a nat. "
        if math.isfinite(free)
        else ""
    )
    caption = (
        "Mean loss on the next token when the last layers are removed, minus the loss of the whole "
        "model; 0 means that the removed layers were not needed. Below: the mobility ‖J‖ at that "
        f"layer, which measures how much the output could still change. {ended}"
        f"{_tokens(source, 'depth_loss')}"
        f"{source.basis(_MOBILITY_AND_GAIN, ADEQUACY.name)}."
    )
    entries = [
        ("line", "rise of the loss"),
        ("rule green", "mobility left"),
        ("band", "interval"),
        ("rule vacuous", "free up to here"),
    ]
    return figure("depth-loss", picture, caption, key(entries)) + numbers(source, "depth_loss")


def rotation_section(source: Source) -> str:
    """The share of the motion that turns, or why it is not known."""
    picture = _or_why(source, rotation_figures.rotation(source), "rotation", ROTATION.name)
    if isinstance(picture, Unavailable):
        return missing(picture)
    frame = rotation_figures.rotation_rows(source)
    if isinstance(frame, Unavailable):
        return missing(frame)
    significant, silent = detected(frame), len(source.tables["rotation"]) - len(frame)
    named = (word for word in words(frame, "interval_method") if word)
    methods = ", ".join(dict.fromkeys("BCa" if word == "bca" else word for word in named))
    planted = [v for v in column(frame, "planted_share") if math.isfinite(v)]
    share = f" (a share of {numeral(planted[0])})" if planted else ""
    caption = (
        "R_norm of the central layers: 0 is pure transport, 1 pure rotation, and the verdict asks "
        "on which side of one half their mean lies. Filled dots: rotation is detected "
        f"(p < .05), in {sum(significant)} of {count(len(significant), 'layer')}. Two checks of "
        "the method: the diamond, a gradient field, should lie near 0, and the triangle, the same "
        f"field with rotation planted in it{share}, near that share. "
        f"{count(silent, 'layer')} abstained. "
        f"{_tokens(source, 'rotation')}{source.units(ROTATION.name)}; intervals: 95 %, "
        f"{methods or 'method not recorded'}, resampling prompts."
    )
    entries = [
        ("disc", "share that rotates; rotation detected"),
        ("hollow blue", "not detected"),
        ("diamond open", CONTROLS["gradient_control"][0]),
        ("triangle", CONTROLS["planted_control"][0]),
        ("rule half", "one half"),
        *_SHADES,
    ]
    return (
        "<p>Motion down a slope can be written as the gradient of one function, a potential; "
        "motion around a centre cannot. R_norm is the share of the predictable motion that no "
        "potential explains.</p>"
        + figure("rotation", picture, caption, key(entries))
        + numbers(source, "rotation")
    )
