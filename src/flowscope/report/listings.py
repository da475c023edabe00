"""Tables of the run as tables of the page."""

import math

import pandas as pd

from flowscope.records import Unavailable
from flowscope.report.escaping import html_text
from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import Source, column, words

__all__ = ["clouds", "drift_skills", "gate", "listing", "numbers"]

_LONGEST = 200
"""Rows up to which a table is shown in full."""

_PROSE = ("because", "rule", "setting")
"""Columns of sentences, which may break into lines."""


def listing(frame: pd.DataFrame, caption: str) -> str:
    """Table as HTML, numbers to three figures."""
    present = list(map(str, frame.columns))
    head = "".join(
        f'<th scope="col"{_aligned(frame, name)}>{html_text(name.replace("_", " "))}</th>'
        for name in present
    )
    cells = [_cells(frame, name) for name in present]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html_text(caption)}">'
        f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _aligned(frame: pd.DataFrame, name: str) -> str:
    kind = getattr(frame[name].dtype, "kind", "O")
    return ' class="number"' if kind in "iuf" else ""


def _cells(frame: pd.DataFrame, name: str) -> list[str]:
    if getattr(frame[name].dtype, "kind", "O") in "iu":
        return [f'<td class="number">{int(value)}</td>' for value in frame[name]]
    if _aligned(frame, name):
        return [f'<td class="number">{numeral(value)}</td>' for value in column(frame, name)]
    style = ' class="prose"' if name in _PROSE else ""
    return [f"<td{style}>{html_text(word)}</td>" for word in words(frame, name)]


def numbers(source: Source, table: str) -> str:
    """Table behind a figure, closed; a long one is only named."""
    frame = source.table(table)
    if isinstance(frame, Unavailable):
        return ""
    link = f'<a href="tables/{table}.csv">tables/{table}.csv</a>'
    if len(frame) > _LONGEST:
        return f'<p class="source">Drawn from {link} ({len(frame)} rows).</p>'
    shown = listing(frame, f"numbers of the table {table}")
    return f"<details><summary>The numbers ({link})</summary>{shown}</details>"


def gate(segments: pd.DataFrame) -> pd.DataFrame:
    """Segments as a reader asks of them: where, how much, against what, and so."""
    parts = ("first_layer", "last_layer", "relative_variation", "low", "high")
    first, last, value, low, high = (column(segments, part) for part in parts)
    rows = range(len(segments))
    shown = {
        "layers": [f"{first[k]:g}" + f"–{last[k]:g}" * (first[k] != last[k]) for k in rows],
        "kind": words(segments, "kind"),
        "relative variation": [f"{numeral(value[k])} {bounds(low[k], high[k])}" for k in rows],
        "threshold": column(segments, "threshold"),
        "random weights": column(segments, "random_weights"),
        "straight line": column(segments, "linear_interpolation"),
        "decision": words(segments, "decision"),
        "because": words(segments, "because"),
    }
    return pd.DataFrame(shown)


_BESIDE = {"flow": "flow, as chosen", "floor": "floor"}
"""Forecasts that stand below the kinds of drift."""


def drift_skills(source: Source) -> pd.DataFrame | Unavailable:
    """Kinds of drift, one row per segment and kind: held-out error and skill at the last layer."""
    fits = source.table("drifts", "first_layer", "last_layer", "drift")
    if isinstance(fits, Unavailable):
        return fits
    firsts, lasts = column(fits, "first_layer"), column(fits, "last_layer")
    segments = sorted({pair for pair in zip(firsts, lasts, strict=True) if sum(pair) < math.inf})
    rows = []
    for first, last in segments:
        own = fits[[pair == (first, last) for pair in zip(firsts, lasts, strict=True)]]
        names = words(own, "drift")
        where = {"layers": f"{first:g}–{last:g}"}
        for kind in dict.fromkeys(names):
            fitted = _fitted(own[[name == kind for name in names]])
            rows.append({**where, "drift": kind, **_skills(source, kind, first, last), **fitted})
        for name, label in _BESIDE.items():
            beside = {"held-out error": "", "chosen": "", "setting": ""}
            rows.append({**where, "drift": label, **_skills(source, name, first, last), **beside})
    if not rows:
        return Unavailable("the table “drifts” names no segment")
    return pd.DataFrame(rows)


def _fitted(rows: pd.DataFrame) -> dict[str, str]:
    errors = ", ".join(numeral(value) for value in column(rows, "relative_error"))
    halves = words(rows, "chosen").count("True")
    settings = list(dict.fromkeys(word for word in words(rows, "setting") if word))
    stopped = list(dict.fromkeys(word for word in words(rows, "because") if word))
    return {
        "held-out error": errors,
        "chosen": {0: "", 1: "one half"}.get(halves, "both halves"),
        "setting": "; ".join(settings + [f"stopped: {reason}" for reason in stopped]),
    }


def _skills(source: Source, name: str, first: float, last: float) -> dict[str, str]:
    """Skill of a forecast at the last layer of a segment, for both horizons."""
    found = {"skill onward": "–", "skill one layer ahead": "–"}
    frame = source.table("adequacy", "first_layer", "layer", "horizon", "forecast", "skill")
    if isinstance(frame, Unavailable):
        return found
    at = zip(column(frame, "first_layer"), column(frame, "layer"), words(frame, "forecast"),
             strict=True)  # fmt: skip
    own = frame[[key == (first, last, name) for key in at]]
    parts = ("skill", "skill_low", "skill_high")
    values = zip(*(column(own, part) for part in parts), strict=True)
    for horizon, (skill, low, high) in zip(words(own, "horizon"), values, strict=True):
        title = "skill onward" if horizon == "onward" else "skill one layer ahead"
        found[title] = f"{numeral(skill)} {bounds(low, high)}".strip()
    return found


def clouds(source: Source) -> pd.DataFrame | Unavailable:
    """Distances between the clouds of forecast and true states, one row per layer."""
    frame = source.table("adequacy_clouds", "layer", "forecast")
    if isinstance(frame, Unavailable):
        return frame
    keys = list(zip(column(frame, "layer"), words(frame, "forecast"), strict=True))
    layers = sorted({layer for layer, _ in keys if math.isfinite(layer)})
    shown: dict[str, list[str]] = {"layer": [f"{layer:g}" for layer in layers]}
    for statistic in ("ks", "mmd"):
        ends = (statistic, f"{statistic}_low", f"{statistic}_high")
        rows = zip(*(column(frame, end) for end in ends), strict=True)
        texts = {
            key: f"{numeral(value)} {bounds(low, high)}".strip()
            for key, (value, low, high) in zip(keys, rows, strict=True)
        }
        for name in ("flow", "persistence"):
            cells = [texts.get((layer, name), "–") for layer in layers]
            shown[f"{statistic.upper()}, {name}"] = cells
    return pd.DataFrame(shown)
