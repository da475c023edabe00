"""Drifts and clouds as lists for a reader."""

import math

import pandas as pd

from flowscope.records import Missing
from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import Source, column, words

__all__ = ["clouds", "drift_skills", "skill_sums"]


_BESIDE = {
    "flow": "flow, as chosen",
    "mean": "mean step of each layer",
    "scaled": "mean step and a scale",
    "lookup": "lookup by token and position",
    "floor": "floor",
}
"""Forecasts that stand below the kinds of drift."""


def drift_skills(source: Source) -> pd.DataFrame:
    """Kinds of drift, one row per segment and kind: held-out error and skill at the last layer."""
    fits = source.table("drifts", "first_layer", "last_layer", "drift")
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
        raise Missing("the table “drifts” names no segment")
    return pd.DataFrame(rows)


_SUMS = {
    "still": "nothing moves (persistence)",
    "mean_drift": "mean step of each layer",
    "scaled_drift": "mean step and a scale per layer",
    "lookup": "lookup by token and position",
    "flow_shuffled": "flow, layers in random order",
    "flow_half": "flow, fitted on half as many prompts",
    "flow": "flow",
    "floor": "the true coordinates (floor)",
}
"""Columns of the table ``adequacy_skill``, in the order of the list."""


def skill_sums(source: Source) -> pd.DataFrame:
    """Skill of every forecast over all prompts and layers, onward; “–” where one stopped."""
    frame = source.table("adequacy_skill", "still", "flow")
    sums = {name: sum(column(frame, name)) for name in _SUMS if name in frame}
    still = sums["still"]
    if not still > 0:
        raise Missing("the table “adequacy_skill” holds no motion")
    cells = [numeral(1 - sums[name] / still) for name in sums]
    shown = [
        cell if math.isfinite(sums[name]) else "–" for name, cell in zip(sums, cells, strict=True)
    ]
    return pd.DataFrame({"forecast": [_SUMS[name] for name in sums], "skill": shown})


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
    frame = source.rows("adequacy", "first_layer", "layer", "horizon", "forecast", "skill")
    at = zip(column(frame, "first_layer"), column(frame, "layer"), words(frame, "forecast"),
             strict=True)  # fmt: skip
    own = frame[[key == (first, last, name) for key in at]]
    parts = ("skill", "skill_low", "skill_high")
    values = zip(*(column(own, part) for part in parts), strict=True)
    for horizon, (skill, low, high) in zip(words(own, "horizon"), values, strict=True):
        title = "skill onward" if horizon == "onward" else "skill one layer ahead"
        found[title] = f"{numeral(skill)} {bounds(low, high)}".strip()
    return found


def clouds(source: Source) -> pd.DataFrame:
    """Distances between the clouds of forecast and true states, one row per layer."""
    frame = source.table("adequacy_clouds", "layer", "forecast")
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
