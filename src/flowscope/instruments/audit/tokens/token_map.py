"""The token-by-layer map: data for the page, which draws it as a table one can read and scroll.

A heat map of plotly cannot hold a hundred columns of words with their heads kept in sight; an
HTML table can, needs no drawing, and its cells can be reached with the keyboard. The page
receives numbers and words; the script sets words as text, never as markup.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.escaping import shortened, visible
from flowscope.report.source import Source, column, words

__all__ = ["MOST_CELLS", "QUANTITIES", "prompts", "token_data"]

MOST_CELLS = 50_000
"""Cells of the map that one page carries; prompts beyond are left out, and the page says so."""

QUANTITIES = {
    "mobility_frobenius": ("mobility ‖J‖_F", 0.5),
    "entropy": ("entropy (nats)", 0.0),
    "total_variation": ("TV of the step", 1.0),
}
"""What the map can be coloured by: its name, and the end of the scale (0: the largest value)."""

_WORD, _TITLE = 60, 48


def prompts(frame: pd.DataFrame) -> list[str]:
    """Names of the prompts in the order of the table."""
    return list(dict.fromkeys(words(frame, "prompt")))


def token_data(source: Source) -> dict[str, Any]:
    """Everything the map shows, as JSON can hold it, or why there is no map."""
    frame = source.table("tokens", "prompt", "position", "token", "layer")
    present = {name: label for name, (label, _) in QUANTITIES.items() if name in frame}
    if not present:
        raise Missing(f"the table “tokens” has none of the columns {', '.join(QUANTITIES)}")
    placed = zip(column(frame, "position"), column(frame, "layer"), strict=True)
    frame = frame[[a == a and b == b for a, b in placed]]  # a cell without a place has none here
    names, cells = words(frame, "prompt"), 0
    shown: list[dict[str, Any]] = []
    vocabulary: dict[str, int] = {}
    for name in prompts(frame):
        part = frame[[other == name for other in names]]
        cells += len(part)
        if shown and cells > MOST_CELLS:
            break
        shown.append(_prompt(name, part, list(present), vocabulary))
    return {
        "prompts": shown,
        "left_out": len(prompts(frame)) - len(shown),
        "words": list(vocabulary),
        "quantities": [
            {"name": name, "label": label, "top": _top(frame, name)}
            for name, label in present.items()
        ],
        "abstained": _abstained(source),
        "scale": list(theme.SCALE),
    }


def _top(frame: pd.DataFrame, name: str) -> float:
    fixed = QUANTITIES[name][1]
    largest = max((value for value in column(frame, name) if value < float("inf")), default=0.0)
    return fixed or largest or 1.0


def _abstained(source: Source) -> list[int]:
    frame = source.rows("layers", "layer", "status")
    pairs = zip(column(frame, "layer"), words(frame, "status"), strict=True)
    return [int(layer) for layer, status in pairs if status == "abstained"]


def _prompt(
    name: str, frame: pd.DataFrame, present: Sequence[str], vocabulary: dict[str, int]
) -> dict[str, Any]:
    at, layer = column(frame, "position"), column(frame, "layer")
    positions, layers = sorted(set(at)), sorted(set(layer))
    row = {value: k for k, value in enumerate(layers)}
    place = {value: k for k, value in enumerate(positions)}
    where = [(row[a], place[b]) for a, b in zip(layer, at, strict=True)]

    def grid(cells: Sequence[Any]) -> list[list[Any]]:
        filled: list[list[Any]] = [[None] * len(positions) for _ in layers]
        for (i, j), cell in zip(where, cells, strict=True):
            filled[i][j] = cell
        return filled

    tokens = dict(zip(at, words(frame, "token"), strict=True))
    text = visible("".join(tokens[position] for position in positions)).strip()
    return {
        "title": f"prompt {visible(name)} · {shortened(text, _TITLE)}",
        "tokens": [shortened(tokens[position], _WORD) for position in positions],
        "positions": [int(position) for position in positions],
        "layers": [int(value) for value in layers],
        "top": grid([_index(word, vocabulary) for word in words(frame, "top_token")]),
        "values": {
            part: grid([_rounded(value) for value in column(frame, part)])
            for part in [*present, "p_max"]
            if part in frame
        },
    }


def _index(word: str, vocabulary: dict[str, int]) -> int:
    return vocabulary.setdefault(shortened(word, _WORD), len(vocabulary))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")  # as many figures as the map shows; half the size of the page
