"""Figures of a run of the heads: maps over layers and heads, and what the dials do to the loss.

The maps are drawn by the page's own script, because one picks a statistic and a head in them; the
data are numbers by layer and head, row by row. Model and random weights share one colour scale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.escaping import hover, plotly_text, shortened
from flowscope.report.numerals import bounds, numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = [
    "MOST_DIALS",
    "SIDES",
    "STATISTICS",
    "UNTURNED",
    "ColourScale",
    "colour_limits",
    "crossed",
    "dial_axis",
    "dial_labels",
    "dial_place",
    "dial_rows",
    "dials",
    "first_head",
    "geometry_data",
    "rounded",
]

STATISTICS = {
    "entropy_production": (
        "entropy production",
        "nats per step; 0 where a walk looks the same run backwards. Dark is irreversible.",
    ),
    "displacement": (
        "displacement",
        "total variation between the uniform law and the law one step later.",
    ),
    "gap": (
        "spectral gap",
        "1 − |λ₂|: how much of the past a walk forgets in one step.",
    ),
    "effective_keys": (
        "effective keys",
        "how many tokens a row spreads over: the exponential of its entropy, mean over rows.",
    ),
    "flux_ratio": (
        "flux ratio",
        "size of the antisymmetric part of the scores beside that of the symmetric part.",
    ),
    "exact_share": (
        "exact share",
        "share of the flux that is the difference of a potential: a tilt, which turns nothing.",
    ),
    "negative_share": (
        "share of negative D",
        "share of pairs whose D = d→ + d← is below 0, so that it is no divergence there.",
    ),
    "weight_ratio": (
        "R_qk of the weights",
        "‖antisym B‖ / ‖sym B‖ of the head’s query–key matrix B, without any text.",
    ),
}
"""Statistics of a head: the column of the table ``geometry``, its name, what it says."""

UNTURNED = ("none", "")
"""What the table ``dials`` calls the unchanged model."""

MOST_DIALS = 48
"""Settings that one figure of the dials holds."""

_LOGARITHMIC = ("entropy_production", "flux_ratio")
_SPREAD, _DEPTH = 30.0, 1e-5
_WORDS, _SETTING = 300, 13
_BEND = 0.01  # nats: within it the axis of the dials is straight, beyond it logarithmic


@dataclass(frozen=True, kw_only=True)
class ColourScale:
    """Ends of the colours of a statistic, and whether they are spaced by logarithms."""

    low: float
    high: float
    log: bool


def rounded(value: float) -> float:
    """Value to three figures, as many as the page shows."""
    return float(f"{value:.3g}")


def crossed(frame: pd.DataFrame) -> list[bool]:
    """Whether a head is crossed out: it abstains, or no label could be given to its chain.

    Where no head of the run has a label, as on a quasi-stationary chain, that marks none.
    """
    labels = words(frame, "label")
    refused = set(labels) != {"refused"}
    pairs = zip(words(frame, "status"), labels, strict=True)
    return [status == "abstained" or (refused and label == "refused") for status, label in pairs]


def colour_limits(frame: pd.DataFrame, name: str) -> ColourScale:
    """One scale for the model and for random weights."""
    both = (*column(frame, name), *column(frame, f"{name}_random"))
    known = sorted(value for value in both if math.isfinite(value))
    if not known:
        return ColourScale(low=0.0, high=1.0, log=False)
    positive = [value for value in known if value > 0]
    if name in _LOGARITHMIC and positive and positive[-1] > _SPREAD * positive[0]:
        low = positive[len(positive) // 50]
        return ColourScale(low=max(low, _DEPTH * positive[-1]), high=positive[-1], log=True)
    low, high = min(0.0, known[0]), known[-1]
    return ColourScale(low=low, high=high if high > low else low + 1.0, log=False)


def first_head(frame: pd.DataFrame) -> int:
    """Row of the head that is shown first: of those not crossed out the most irreversible.

    Where no head has an entropy production, the next statistic is asked.
    """
    out = crossed(frame)
    for name in STATISTICS:
        values = enumerate(column(frame, name))
        known = [(v, -k) for k, v in values if math.isfinite(v) and not out[k]]
        if known:
            return -max(known)[1]
    return 0


def geometry_data(source: Source) -> dict[str, Any]:
    """Everything the maps of the heads show, as JSON can hold it, or why there are none."""
    frame = source.table("geometry", "layer", "head")
    rows = _placed(frame)
    if not rows:
        raise Missing("the table “geometry” names no layer and head")
    present = {name: text for name, text in STATISTICS.items() if name in frame}
    if not present:
        raise Missing(f"the table “geometry” has none of the columns {', '.join(STATISTICS)}")
    kept = frame.iloc[list(rows.values())]
    vocabulary: dict[str, int] = {}
    return {
        "layers": sorted({layer for layer, _ in rows}),
        "heads": sorted({head for _, head in rows}),
        "at": list(rows),
        "first": first_head(kept),
        "statistics": [_statistic(kept, name) for name in present],
        "shown": next((k for k, name in enumerate(present) if _known(kept, name)), 0),
        "label": _indices(kept, "label", vocabulary),
        "because": _indices(kept, "because", vocabulary),
        "weight_because": _indices(kept, "weight_because", vocabulary),
        "crossed": list(map(int, crossed(kept))),
        "steps_to_tell": _numbers(kept, "steps_to_tell"),
        "steps": _numbers(kept, "steps"),
        "words": list(vocabulary),
        "scale": list(theme.SCALE),
    }


def _placed(frame: pd.DataFrame) -> dict[tuple[int, int], int]:
    """Row of each layer and head, in order; rows without a place have none."""
    pairs = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    found = {
        (int(a), int(b)): k
        for k, (a, b) in enumerate(pairs)
        if math.isfinite(a) and math.isfinite(b)
    }
    return dict(sorted(found.items()))


def _numbers(frame: pd.DataFrame, name: str) -> list[float]:
    return list(map(rounded, column(frame, name)))


def _indices(frame: pd.DataFrame, name: str, vocabulary: dict[str, int]) -> list[int]:
    """Texts of a column as places in the vocabulary, which grows."""
    texts = words(frame, name)
    short = {text: shortened(text, _WORDS) for text in set(texts)}
    return [vocabulary.setdefault(short[text], len(vocabulary)) for text in texts]


def _known(frame: pd.DataFrame, name: str) -> bool:
    return any(map(math.isfinite, column(frame, name)))


def _lack(frame: pd.DataFrame, name: str) -> str:
    """Why no head has this number, in the words of most heads; empty where one has."""
    if _known(frame, name):
        return ""
    reasons = words(frame, "weight_because" if name == "weight_ratio" else "because")
    if set(words(frame, "chain")) == {"quasi-stationary"} and not any(reasons):
        return "a quasi-stationary chain has no stationary law, so this is not defined"
    said = [reason for reason in reasons if reason]
    most = max(said, key=said.count) if said else "no reason was recorded"
    return shortened(most.rstrip("."), _WORDS)


def _statistic(frame: pd.DataFrame, name: str) -> dict[str, Any]:
    label, about = STATISTICS[name]
    scale = colour_limits(frame, name)
    parts = {"values": "", "lows": "_low", "highs": "_high", "random": "_random"}
    return {
        "name": name,
        "label": label,
        "about": about,
        "low": rounded(scale.low),
        "high": rounded(scale.high),
        "log": scale.log,
        "missing": _lack(frame, name),
        **{key: _numbers(frame, f"{name}{end}") for key, end in parts.items()},
    }


def dial_rows(source: Source) -> pd.DataFrame:
    """Settings of the dials as a figure shows them: those of the whole model first in each dial."""
    frame = source.table("dials", "dial", "setting", "change")
    names, changes = words(frame, "dial"), column(frame, "change")
    order = {name: k for k, name in enumerate(dict.fromkeys(names))}
    places = zip(words(frame, "layers"), words(frame, "heads"), strict=True)
    parts = [all(place in ("all", "") for place in pair) for pair in places]
    turned = [name not in UNTURNED for name in names]
    known = [k for k, change in enumerate(changes) if math.isfinite(change) and turned[k]]
    if not known:
        raise Missing("the column change of the table “dials” holds no number")
    kept = sorted(sorted(known, key=lambda k: not parts[k])[:MOST_DIALS])
    return frame.iloc[sorted(kept, key=lambda k: (order[names[k]], not parts[k]))]


def dial_labels(frame: pd.DataFrame) -> list[str]:
    """Dial, setting and place of each row in a few words, shortened; not yet escaped."""
    names = ("dial", "setting", "layers", "heads")
    rows = zip(*(words(frame, name) for name in names), strict=True)
    return [
        f"{shortened(dial, _SETTING)} {shortened(setting.strip(), _SETTING)}{_place(layers, heads)}"
        for dial, setting, layers, heads in rows
    ]


def _place(layers: str, heads: str) -> str:
    """Layer, or layer and head, where the dial was not turned everywhere."""
    if heads not in ("all", ""):
        return f" · head {shortened(layers, 4)}.{shortened(heads, 4)}"
    return f" · layer {shortened(layers, 4)}" if layers not in ("all", "") else ""


def dial_place(change: float, bent: bool) -> float:
    """Place of a change on the axis; with ``bent`` logarithmic beyond ±0.01 nats."""
    return math.asinh(change / _BEND) if bent else change


def dial_axis(frame: pd.DataFrame) -> tuple[bool, list[float]]:
    """Whether the axis of the dials is bent, and the changes that it marks."""
    names = ("change", "change_low", "change_high", "random_change", "random_change_low",
             "random_change_high")  # fmt: skip
    known = [v for name in names for v in column(frame, name) if math.isfinite(v)]
    largest = max(map(abs, known), default=0.0)
    if largest <= _SPREAD * _BEND:
        return False, []
    sizes = [0.1 * 10**k for k in range(8) if 0.1 * 10**k <= 3 * largest]
    below = [-size for size in reversed(sizes) if -size >= 2 * min(known)]
    return True, [*below, 0.0, *sizes]


SIDES = {
    "change": ("the dial", theme.BLUE, "circle", -0.16),
    "random_change": ("random change of equal size", theme.VERMILION, "diamond-open", 0.16),
}
"""What is drawn of each setting: the column of the table ``dials``, its name, colour and marker."""


def dials(source: Source) -> Picture:
    """Change of the loss at each setting, with its interval, beside that of a random change."""
    frame = dial_rows(source)
    bent, marks = dial_axis(frame)
    labels = dial_labels(frame)
    traces = [_points(frame, name, labels, bent) for name in SIDES]
    x = theme.axis("change of the loss (nats)", nticks=7, tickangle=0)
    if bent:
        x |= {
            "tickvals": [dial_place(m, bent) for m in marks],
            "ticktext": [numeral(m) for m in marks],
        }
    y = theme.axis("", showgrid=False, range=[len(labels) - 0.4, -0.6])
    y |= {
        "tickvals": list(range(len(labels))),
        "ticktext": [plotly_text(label) for label in labels],
    }
    height = 90 + 25 * len(labels)
    more = {"shapes": [_zero(), *_rules(words(frame, "dial"))]}
    return {"data": traces, "layout": theme.layout(x, y, height, **more)}


def _points(frame: pd.DataFrame, name: str, labels: Sequence[str], bent: bool) -> Picture:
    title, colour, symbol, shift = SIDES[name]
    values, low, high = (column(frame, f"{name}{end}") for end in ("", "_low", "_high"))
    places = [dial_place(value, bent) for value in values]
    ends = ([dial_place(v, bent) for v in side] for side in (low, high))
    arms = [
        [abs(end - place) if math.isfinite(end - place) else 0.0
         for end, place in zip(side, places, strict=True)]
        for side in ends
    ]  # fmt: skip
    norms = column(frame, "norm")
    notes = [
        hover([labels[k], f"{title}: {numeral(v)} nats {bounds(low[k], high[k])}",
               f"size of the change of the logits {numeral(norms[k])}"])
        for k, v in enumerate(values)
    ]  # fmt: skip
    return {
        "type": "scatter",
        "mode": "markers",
        "x": places,
        "y": [k + shift for k in range(len(values))],
        "marker": {"size": 9, "color": colour, "symbol": symbol,
                   "line": {"width": 1.6, "color": colour}},
        "error_x": {"type": "data", "symmetric": False, "array": arms[1], "arrayminus": arms[0],
                    "color": colour, "thickness": 1.6, "width": 0},
        "hovertext": notes,
        "hoverinfo": "text",
    }  # fmt: skip


def _zero() -> Picture:
    line = {"color": theme.MUTED, "width": 1.2, "dash": "dot"}
    ends = {"x0": 0, "x1": 0, "y0": 0, "y1": 1}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": line}


def _rules(names: Sequence[str]) -> list[Picture]:
    """Lines between one dial and the next."""
    at = [k - 0.5 for k in range(1, len(names)) if names[k] != names[k - 1]]
    line = {"color": theme.RULE, "width": 1}
    across = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "line": line}
    return [{**across, "y0": y, "y1": y} for y in at]
