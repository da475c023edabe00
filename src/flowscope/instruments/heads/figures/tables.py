"""Tables of a run of the heads: the most irreversible ones, the dials, who is silent and why."""

import math

import pandas as pd

from flowscope.instruments.heads.figures.map_figures import UNTURNED, crossed
from flowscope.records import Missing
from flowscope.report.escaping import html_text, shortened
from flowscope.report.numerals import bounds, count, numeral
from flowscope.report.source import Source, column, words

__all__ = ["TOP", "dial_listing", "furthest", "label_counts", "silent_heads"]

TOP = 10
"""Heads that the table of the most irreversible ones lists."""

_NAMED = 6
_LABELS = ("steady state", "equilibrium", "undecided", "refused")
_SHOWN = {
    "displacement": "displacement",
    "gap": "gap",
    "effective_keys": "effective keys",
    "flux_ratio": "flux ratio",
    "exact_share": "exact share",
}


def label_counts(source: Source) -> dict[str, int]:
    """How many heads carry each label, the known labels first; empty where there are none."""
    frame = source.rows("geometry", "label")
    found = [label or "no label" for label in words(frame, "label")]
    order = dict.fromkeys([*_LABELS, *found])
    return {label: found.count(label) for label in order if label in found}


def silent_heads(source: Source) -> list[tuple[str, str]]:
    """Heads that are crossed out, by their reason."""
    frame = source.rows("geometry", "layer", "head")
    places = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    groups: dict[str, list[str]] = {}
    for (layer, head), out, reason in zip(
        places, crossed(frame), words(frame, "because"), strict=True
    ):
        if out:
            groups.setdefault(reason, []).append(f"{numeral(layer, 6)}.{numeral(head, 6)}")
    return [
        (
            f"{count(len(names), 'head')} (layer.head {', '.join(names[:_NAMED])}"
            + (" …)" if len(names) > _NAMED else ")"),
            reason or "no reason was recorded",
        )
        for reason, names in groups.items()
    ]


def furthest(source: Source) -> str:
    """Table of the most irreversible heads; the script makes each name a way to its portrait."""
    frame = source.table("geometry", "layer", "head", "entropy_production")
    values, out = column(frame, "entropy_production"), crossed(frame)
    known = [k for k, v in enumerate(values) if math.isfinite(v) and not out[k]]
    if not known:
        raise Missing("no head of this run has an entropy production")
    best = frame.iloc[sorted(known, key=lambda k: -values[k])[:TOP]]
    names = ["entropy production", "random weights", "keys permuted", "label", "steps to tell"]
    names += _SHOWN.values()
    heading = "".join(f'<th scope="col">{name}</th>' for name in ("layer, head", *names))
    return (
        '<div class="scroll" tabindex="0" role="region" '
        'aria-label="heads furthest from equilibrium"><table class="listing furthest"><thead><tr>'
        f"{heading}</tr></thead><tbody>"
        + "".join(_furthest_row(best.iloc[[k]]) for k in range(len(best)))
        + "</tbody></table></div>"
    )


def _furthest_row(row: pd.DataFrame) -> str:
    layer, head = (int(column(row, name)[0]) for name in ("layer", "head"))
    cells = [
        _with_bounds(row, "entropy_production"),
        numeral(column(row, "entropy_production_random")[0]),
        numeral(column(row, "entropy_production_permuted")[0]),
        words(row, "label")[0],
        numeral(column(row, "steps_to_tell")[0]),
        *(numeral(column(row, name)[0]) for name in _SHOWN),
    ]
    shown = "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
    return (
        f'<tr><th scope="row"><button type="button" class="look" data-head="{layer},{head}">'
        f"layer {layer}, head {head}</button></th>{shown}</tr>"
    )


def _with_bounds(row: pd.DataFrame, name: str, k: int = 0) -> str:
    value, low, high = (column(row, f"{name}{end}")[k] for end in ("", "_low", "_high"))
    return f"{numeral(value)} {bounds(low, high)}".strip()


def dial_listing(frame: pd.DataFrame) -> pd.DataFrame:
    """Settings of the dials as a reader asks of them, one row each."""
    rows = range(len(frame))
    places = zip(words(frame, "layers"), words(frame, "heads"), strict=True)
    shown = {
        "dial": ["unchanged model" if w in UNTURNED else w for w in words(frame, "dial")],
        "set to": [shortened(word, 60) for word in words(frame, "setting")],
        "where": [_where(*pair) for pair in places],
        "perplexity": column(frame, "perplexity"),
        "change of the loss": [_with_bounds(frame, "change", k) for k in rows],
        "random change": [_with_bounds(frame, "random_change", k) for k in rows],
        "beside random": [_beside(frame, k) for k in rows],
    }
    return pd.DataFrame(shown)


def _where(layers: str, heads: str) -> str:
    parts = [f"layer {layers}"] * (layers not in ("all", ""))
    parts += [f"head {heads}"] * (heads not in ("all", ""))
    return ", ".join(parts) or "everywhere"


def _beside(frame: pd.DataFrame, k: int) -> str:
    """Which of the two costs more, by the interval of their difference within prompts."""
    low, high = (column(frame, name)[k] for name in ("excess_low", "excess_high"))
    if math.isnan(low) or math.isnan(high):
        return "–"
    if low > 0:
        return "costs more"
    return "costs less" if high < 0 else "not told apart"
