"""Figures of a run of the heads: maps over layers and heads, and what the dials do to the loss.

The maps are drawn by the page's own script, because one picks a statistic and a head in them; the
data are numbers by layer and head, row by row. Model and random weights share one colour scale.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.grids import HEAD, head_map, head_table
from flowscope.report.escaping import shortened
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column, words
from flowscope.report.theme import Picture

__all__ = [
    "STATISTICS",
    "ColourScale",
    "colour_limits",
    "crossed",
    "first_head",
    "geometry_data",
    "geometry_map",
    "rounded",
]


STATISTICS = {
    "entropy_production": (
        "entropy production",
        "nats per step; 0 where a walk looks the same run backwards. Dark is irreversible.",
    ),
    "displacement": (
        "displacement",
        "total variation between the uniform distribution and the distribution one step later.",
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
        "share of the flux that is the difference of a potential: a tilt without circulation.",
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


_LOGARITHMIC = ("entropy_production", "flux_ratio")


_SPREAD = 30.0


_DEPTH = 1e-5


_WORDS = 300


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
        return "a quasi-stationary chain has no stationary distribution, so this is not defined"
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


def geometry_map(source: Source, name: str, *, random: bool = False) -> Picture:
    """Heat map of one statistic; heads that abstain are crossed out.

    Parameters
    ----------
    source
        The run.
    name
        Column of the table ``geometry``.
    random
        Whether the same heads with random weights are shown; both share one scale.

    Raises
    ------
    Missing
        The table or the column is not there, or holds no number.
    """
    frame = head_table(source, "geometry", f"{name}_random" if random else name)
    scale = colour_limits(frame, name)
    low = math.log10(scale.low) if scale.log else -math.inf

    def place(value: float) -> float:
        if not scale.log or math.isnan(value):
            return value
        return max(math.log10(value), low) if value > 0 else low

    crossed = {} if random else {"crossed": ("status", "abstained")}
    said = f"{STATISTICS[name][0]} {{value}}"
    return head_map(frame, HEAD, said, limits=_ends(scale), place=place, **crossed, **_bar(scale))


def _ends(scale: ColourScale) -> tuple[float, float]:
    ends = (scale.low, scale.high)
    return (math.log10(ends[0]), math.log10(ends[1])) if scale.log else ends


def _bar(scale: ColourScale) -> Picture:
    title = {"title": {"text": "nats per step"}}
    if not scale.log:
        return title
    low, high = _ends(scale)
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    places = powers if len(powers) > 1 else [low, high]
    return {**title, "tickvals": places, "ticktext": [numeral(10**place) for place in places]}
