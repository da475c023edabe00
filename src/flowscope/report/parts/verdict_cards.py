"""Verdicts as cards: the decision, the reason, the numbers and a small picture of them."""

import math
from collections.abc import Sequence

from flowscope.records import Interval, Measurement, Unavailable, Verdict
from flowscope.records.verdict_text import Gate, outcome_text, reason_text
from flowscope.report.escaping import html_text
from flowscope.report.numerals import bounds, numeral, reading
from flowscope.report.spec import Page

__all__ = ["card", "chip"]

_MEANING = {
    "holds": "The measurement supports the claim.",
    "fails": "The measurement contradicts the claim.",
    "uninformative": "The claim could not have failed on these data: this is no support for it.",
    "abstains": "The measurement decides nothing: data are missing or insufficient.",
}
_GATE = "This says what may be read, not what the model achieves."
_SIGN = {"holds": "✓", "fails": "✕", "uninformative": "○", "abstains": "–"}
_WIDTH, _LEFT, _RIGHT = 320, 54, 14


def chip(verdict: Verdict, *, gate: Gate = None) -> str:
    """Outcome with its strength, and a sign that does not depend on colour."""
    outcome = verdict.outcome
    strength = f" ({verdict.strength})" if verdict.strength else ""
    kind, sign = ("gate", "▸") if gate else (outcome, _SIGN[outcome])
    return (
        f'<span class="chip {kind}"><span aria-hidden="true">{sign}</span> '
        f"{outcome_text(outcome, gate)}{strength}</span>"
    )


def card(verdict: Verdict, anchor: str, page: Page) -> str:
    """Verdict as an article: claim, outcome, what it means, why, and by which numbers."""
    question = page.questions.get(verdict.name, "")
    label = f'<span class="key-label">{html_text(page.label(verdict.name))}</span> '
    gate = page.gates.get(verdict.name)
    kind, meaning = ("gate", _GATE) if gate else (verdict.outcome, _MEANING[verdict.outcome])
    asked = f'<p class="question">{html_text(question)}</p>' if question else ""
    return (
        f'<article class="verdict {kind}" id="{anchor}">'
        f"<header><h3>{label}{html_text(_sentence(verdict.claim)[:-1])}</h3>"
        f"{chip(verdict, gate=gate)}</header>{asked}"
        f'<p class="because"><strong>{meaning}</strong> '
        f"{html_text(_sentence(reason_text(verdict.because)))}</p>"
        f"<details><summary>The numbers behind this verdict</summary>"
        f'<div class="numbers">{_numbers(verdict, page.units)}{_forest(verdict)}</div></details>'
        "</article>"
    )


def _sentence(reason: str) -> str:
    text = reason.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def _numbers(verdict: Verdict, units: str) -> str:
    statistic = verdict.statistic
    rows = [(f"statistic: {statistic.name}", reading(statistic))]
    null = verdict.null
    name = "null" if isinstance(null, Unavailable) else f"null: {null.name}"
    rows += [(name, reading(null)), ("effect", _effect(verdict))]
    if statistic.n:
        rows += [(units, f"n = {statistic.n}")]
    interval = next(
        (i for i in (verdict.interval, statistic.interval) if isinstance(i, Interval)), None
    )
    if interval is not None:
        rows += [("interval", f"{100 * interval.level:g}\u00a0%, {interval.method}")]
    if not isinstance(verdict.p, Unavailable):
        rows += [("p", numeral(verdict.p))]
    parts = "".join(
        f"<div><dt>{html_text(term)}</dt><dd>{html_text(value)}</dd></div>" for term, value in rows
    )
    return f"<dl>{parts}</dl>"


def _effect(verdict: Verdict) -> str:
    if isinstance(verdict.effect, Unavailable):
        return f"not available: {verdict.effect.reason}"
    value = numeral(verdict.effect)
    if isinstance(verdict.interval, Interval):
        value += " " + bounds(float(verdict.interval.low), float(verdict.interval.high))
    return value


Row = tuple[str, float, float, float]


def _row(name: str, measurement: Measurement | Unavailable) -> list[Row]:
    if isinstance(measurement, Unavailable) or isinstance(measurement.values, Unavailable):
        return []
    value, interval = float(measurement.values), measurement.interval
    if not math.isfinite(value):
        return []
    if isinstance(interval, Interval) and isinstance(interval.low, float):
        return [(name, value, interval.low, float(interval.high))]
    return [(name, value, value, value)]


def _forest(verdict: Verdict) -> str:
    rows = _row("model", verdict.statistic) + _row("null", verdict.null)
    finite = sorted(v for row in rows for v in row[1:] if math.isfinite(v))
    if not rows or not finite:
        return ""
    log = finite[0] > 0 and finite[-1] > 30 * finite[0]
    place = _Placing(finite, log)
    drawn = [_whisker(row, 20 + 24 * k, place) for k, row in enumerate(rows)]
    foot = 24 * len(rows) + 14
    ends = (finite[0], finite[-1]) if finite[-1] > finite[0] else ()
    drawn += [
        f'<text x="{place(value):.1f}" y="{foot + 14}" text-anchor="{_anchor(place(value))}" '
        f'class="tick">{numeral(value)}</text>'
        for value in ends
    ]
    said = "; ".join(f"{name} {numeral(v)} {bounds(a, b)}" for name, v, a, b in rows)
    scale = ", logarithmic scale" if log else ""
    return (
        f'<svg class="forest" viewBox="0 0 {_WIDTH} {foot + 20}" role="img" '
        f'aria-label="{html_text(said + scale)}">'
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{foot}" y2="{foot}" class="base"/>'
        + "".join(drawn)
        + "</svg>"
    )


def _anchor(x: float) -> str:
    return "start" if x < _WIDTH / 2 else "end"


class _Placing:
    """Position along the picture of a value between the first and the last of ``values``."""

    def __init__(self, values: Sequence[float], log: bool) -> None:
        self.scale = math.log if log else float
        self.low, self.high = self.scale(values[0]), self.scale(values[-1])

    def __call__(self, value: float) -> float:
        if value == math.inf or value == -math.inf:
            return _WIDTH - _RIGHT if value > 0 else _LEFT
        share = (self.scale(value) - self.low) / ((self.high - self.low) or 1)
        room = _WIDTH - _LEFT - _RIGHT - 16
        return _LEFT + 8 + room * (share if self.high > self.low else 0.5)


def _whisker(row: Row, y: int, place: _Placing) -> str:
    name, value, low, high = row
    x, a, b = place(value), place(low), place(high)
    mark = (
        f'<circle cx="{x:.1f}" cy="{y}" r="5.5" class="dot"/>'
        if name == "model"
        else f'<path d="M{x:.1f} {y - 6}l6 6l-6 6l-6-6z" class="diamond"/>'
    )
    return (
        f'<text x="0" y="{y + 4}" class="name">{name}</text>'
        f'<line x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}" class="whisker {name}"/>{mark}'
    )
