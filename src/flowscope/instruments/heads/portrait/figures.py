"""Data of the head viewer: the chain of each head on one sentence, as the page's script draws it.

The arrays ``portrait`` are indexed by layer and head in the order of the table ``geometry``. Of the
currents only the strongest are kept, with the sum of all; numbers have three figures. A page holds
so many heads as fit into :data:`MOST_ENTRIES`, the most irreversible first.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.instruments.heads.geometry.maps import crossed, geometry_data, rounded
from flowscope.records import Missing
from flowscope.report.escaping import html_text, json_island, shortened
from flowscope.report.figure_html import part
from flowscope.report.numerals import count
from flowscope.report.source import Source, column, words

__all__ = [
    "ARROWS",
    "MOST_ENTRIES",
    "MOST_TOKENS",
    "chain_words",
    "portrait_data",
    "token_labels",
    "viewer_section",
]


ARROWS = 15
"""Net flows that are drawn of each head."""


MOST_ENTRIES = 180_000
"""Entries of kernels that one page carries, a little over a megabyte."""


MOST_TOKENS = 64
"""Tokens beyond which a sentence cannot be drawn legibly."""


_TOKEN, _LABEL = 60, 16


_SMALLEST = 1e-6


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


_AXES = {"kernel": 4, "current": 4, "law": 3, "diffusion": 4, "magnetic": 4}


_CHAINS = {
    "unmasked": (
        "Unmasked chain: a walk may step from every token to every other token, by the scores of "
        "the head. A causal model does not use half of these pairs, so that this shows the scores "
        "and not what the running model attends to."
    ),
    "damped": (
        "Damped chain: the attention of the running model, mask included, but with probability "
        "{damping} a step goes to a random token. Without such jumps every walk under a "
        "causal mask ends at the first token and stays there."
    ),
    "quasi-stationary": (
        "Quasi-stationary chain: the attention of the running model, mask included, and the "
        "distribution of a walk that has not yet ended at the first token. No step can be "
        "reversed, so that this chain has neither currents nor a label, and no arrows are drawn."
    ),
}


_NO_CURRENTS = "no step of the quasi-stationary chain can be reversed, so that it has no currents"


def chain_words(source: Source) -> str:
    """Which chain the numbers are about, in plain words."""
    name, damping = source.setting("chain"), source.setting("damping")
    if not isinstance(name, str):
        return "Which chain was walked was not recorded."
    known = isinstance(damping, int | float) and not isinstance(damping, bool)
    size = f"{damping:g}" if known else "(not recorded)"
    return _CHAINS.get(name, f"Chain: {shortened(name, _TOKEN)}.").replace("{damping}", size)


def token_labels(tokens: list[str]) -> list[str]:
    """Short names of tokens; one that occurs twice carries its position.

    Examples
    --------
    >>> token_labels([" the", " cat", "the"])
    ['the₀', 'cat', 'the₂']
    """
    short = [
        shortened(token.strip(" ") or "␣" * min(len(token), 3) or "∅", _LABEL) for token in tokens
    ]
    return [
        f"{name}{str(k).translate(_SUBSCRIPTS)}" if short.count(name) > 1 else name
        for k, name in enumerate(short)
    ]


def portrait_data(source: Source) -> dict[str, Any]:
    """Everything the head viewer draws, as JSON can hold it, or why there is nothing to draw."""
    frame = source.table("geometry", "layer", "head")
    arrays = source.arrays.get("portrait")
    if not arrays:
        raise Missing("this run has no arrays “portrait” (the heads on one sentence)")
    size = _size(arrays)
    layers, heads = _numbers(frame, "layer"), _numbers(frame, "head")
    if (len(layers), len(heads)) != size[:2]:
        raise Missing(
            f"the arrays “portrait” are of {size[0]} × {size[1]} heads, the table “geometry” of "
            f"{len(layers)} × {len(heads)}"
        )
    tokens = _tokens(source, size[2])
    kept = _kept(frame, max(MOST_ENTRIES // size[2] ** 2, 1))
    return {
        "tokens": [shortened(token, _TOKEN) for token in tokens],
        "labels": token_labels(tokens),
        "currents_because": _NO_CURRENTS if source.setting("chain") == "quasi-stationary" else "",
        "heads": {
            f"{layer},{head}": _head(arrays, layers.index(layer), heads.index(head))
            for layer, head in kept
        },
    }


def _numbers(frame: pd.DataFrame, name: str) -> list[int]:
    return sorted({int(value) for value in column(frame, name) if math.isfinite(value)})


def _size(arrays: Mapping[str, NDArray[Any]]) -> tuple[int, int, int]:
    """Layers, heads and tokens that all arrays agree on."""
    own = {name: array for name, array in arrays.items() if name in _AXES}
    if not own:
        raise Missing(f"the arrays “portrait” hold none of {', '.join(_AXES)}")
    if any(array.ndim != _AXES[name] for name, array in own.items()):
        raise Missing("the arrays “portrait” do not have the axes layer, head, token")
    ends = {"kernel": "n", "current": "n", "diffusion": "2", "magnetic": "2"}
    sizes = {array.shape[:3] for array in own.values()}
    size = next(iter(sizes))
    last = {name: size[2] if end == "n" else 2 for name, end in ends.items()}
    if len(sizes) > 1 or any(own[name].shape[3] != last[name] for name in last if name in own):
        raise Missing("the arrays “portrait” are not all of one size")
    if not 0 < size[2] <= MOST_TOKENS:
        raise Missing(f"the sentence has {size[2]} tokens; it can be drawn with 1 to {MOST_TOKENS}")
    return int(size[0]), int(size[1]), int(size[2])


def _tokens(source: Source, n: int) -> list[str]:
    frame = source.table("sentence", "token")
    tokens = words(frame, "token")
    if len(tokens) != n:
        raise Missing(f"the table “sentence” has {len(tokens)} tokens, the arrays “portrait” {n}")
    return tokens


def _kept(frame: pd.DataFrame, most: int) -> list[tuple[int, int]]:
    """Heads whose portrait the page holds: all, or the most irreversible ones."""
    places = zip(column(frame, "layer"), column(frame, "head"), strict=True)
    values, out = column(frame, "entropy_production"), crossed(frame)
    rank = [(out[k], -v if math.isfinite(v) else math.inf, k) for k, v in enumerate(values)]
    found = [
        ((int(a), int(b)), rank[k])
        for k, (a, b) in enumerate(places)
        if math.isfinite(a) and math.isfinite(b)
    ]
    best = sorted(found, key=lambda pair: pair[1])[:most]
    return sorted(dict(best))


def _head(arrays: Mapping[str, NDArray[Any]], i: int, j: int) -> dict[str, Any]:
    own = {name: np.asarray(arrays[name][i, j], float) for name in _AXES if name in arrays}
    whole = {name: array for name, array in own.items() if np.isfinite(array).all()}
    data: dict[str, Any] = {
        name: [_figure(value) for value in whole[name].ravel().tolist()]
        for name in ("kernel", "law", "diffusion", "magnetic")
        if name in whole
    }
    if "current" in whole:
        data |= _flows(whole["current"])
    return data


def _figure(value: float) -> float | int:
    """Three figures, and nothing for what no eye can see: a bare 0 is the shortest number."""
    return rounded(value) if abs(value) >= _SMALLEST else 0


def _flows(current: NDArray[Any]) -> dict[str, Any]:
    """Strongest net flows as source, target, size; and the sum over all pairs."""
    rows, columns = np.triu_indices(len(current), 1)
    net = current[rows, columns]
    order = np.argsort(-np.abs(net), kind="stable")[:ARROWS]
    flows = [
        [int(a), int(b), rounded(float(abs(v)))]
        for a, b, v in (
            (rows[k], columns[k], net[k]) if net[k] > 0 else (columns[k], rows[k], net[k])
            for k in order
        )
        if v
    ]
    return {"flows": flows, "total": rounded(float(np.abs(net).sum())), "pairs": len(net)}


_PANELS = {
    "facts": ("This head in numbers", ""),
    "law": (
        "Where the walk is",
        "Share of the time a long walk spends at each token; dotted: all tokens equally often.",
    ),
    "kernel": (
        "Where each token looks",
        "Row: the token the walk is at; column: the token it steps to.",
    ),
    "flows": (
        "Which way it circulates",
        f"The {ARROWS} strongest net flows between two tokens.",
    ),
    "diffusion": (
        "Diffusion map",
        "Two tokens are close if walks from them soon become indistinguishable; a larger dot is "
        "visited more often.",
    ),
    "magnetic": (
        "Magnetic map",
        "The angle around the centre is the position along the flow; each ring inwards is ten "
        "times smaller, and tokens near the centre take hardly any part in it.",
    ),
}


def viewer_section(source: Source) -> str:
    """Section in which a reader inspects one head."""
    return _portrait(source, geometry_data(source))


@part("portrait")
def _portrait(source: Source, maps: dict[str, Any]) -> str:
    data = portrait_data(source)
    total = len(maps["at"])
    held = len(data["heads"])
    limited = (
        f" This page holds the {held} most irreversible of {total} heads; all are in "
        "arrays/portrait.safetensors."
        if held < total
        else ""
    )
    panels = "".join(
        f'<div><h4>{title}</h4><div class="drawing" id="head-{name}"></div>'
        f'<p class="drawn" id="head-{name}-note">{html_text(note)}</p></div>'
        for name, (title, note) in _PANELS.items()
    )
    sentence = "".join(f"<bdi>{html_text(token)}</bdi>" for token in data["tokens"])
    return (
        f"<p>One sentence of {count(len(data['tokens']), 'token')}, one head: a single measurement "
        f"without intervals.{limited}</p>"
        f'<blockquote class="sentence">{sentence}</blockquote>'
        f'<p class="chain">{html_text(chain_words(source))}</p>'
        '<div class="controls"><label>Layer <select id="head-layer"></select></label>'
        '<label>Head <select id="head-number"></select></label>'
        f'<button type="button" id="head-first">{_first_words(maps)}</button></div>'
        '<h3 id="head-title" aria-live="polite"></h3>'
        f'<div class="pair portrait" id="portrait">{panels}</div>'
        f'<script type="application/json" id="data-portrait">{json_island(data)}</script>'
    )


def _first_words(maps: dict[str, Any]) -> str:
    name = str(maps["statistics"][maps["shown"]]["label"])
    return "most irreversible" if name == "entropy production" else f"largest {name}"
