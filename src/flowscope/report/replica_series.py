"""The couplings of a run of replicas as series: which rows are theirs, and how they are drawn.

Uncoupled replicas are blue; couplings run from orange to nearly black as g grows, and each has a
mark of its own, so that no distinction rests on colour alone. The control, uncoupled replicas that
share their noise until they are let go, is blue and dashed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from flowscope.report import theme
from flowscope.report.escaping import html_text
from flowscope.report.source import Source, column, words

__all__ = ["CONTROL", "Series", "class_names", "rows_of", "rows_where", "series_key", "series_of"]

CONTROL = "control"
"""Name of the uncoupled replicas that share their noise."""

_STOPS = ("#ef8f0a", "#e2622b", "#c93c52", "#9c2c72", "#6f2a8c", "#43208a", "#17112e")
_MARKS = {
    "circle": "M7 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M7.5 2.5h7v7h-7z",
    "diamond": "M11 1l5 5l-5 5l-5-5z",
    "triangle-up": "M11 1.5l5 8.5h-10z",
    "triangle-down": "M11 10.5l5-8.5h-10z",
    "hexagon": "M11 1.5l4 2.2v4.6l-4 2.2l-4-2.2v-4.6z",
}
_SYMBOLS = tuple(_MARKS)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One coupling, and how it is drawn."""

    g: float
    control: bool
    colour: str
    dash: str
    symbol: str

    @property
    def label(self) -> str:
        """Its name in a key."""
        return CONTROL if self.control else f"g = {self.g:g}"


def series_of(source: Source, *tables: str) -> list[Series]:
    """Couplings of these tables: g = 0, then by g, the control last; looks are those of the run."""
    every = {key for frame in source.tables.values() for key in _keys(frame)}
    coupled = sorted(g for g, control in every if not control and g > 0)
    shown = {key for name in tables for key in _keys(source.tables.get(name, pd.DataFrame()))}
    found = []
    for g, control in sorted(shown, key=lambda key: (key[1], key[0])):
        place = coupled.index(g) if not control and g in coupled else None
        found.append(
            Series(
                g=g,
                control=control,
                colour=theme.BLUE if place is None else _colour(place, len(coupled)),
                dash="dash" if control else "solid",
                symbol="circle" if place is None else _SYMBOLS[1 + place % (len(_SYMBOLS) - 1)],
            )
        )
    return found


def _keys(frame: pd.DataFrame) -> list[tuple[float, bool]]:
    if "g" not in frame:
        return []
    rows = zip(column(frame, "g"), _controls(frame), strict=True)
    return [(g, control) for g, control in rows if math.isfinite(g)]


def _controls(frame: pd.DataFrame) -> list[bool]:
    return [word in ("True", "true", "1", "1.0") for word in words(frame, "control")]


def _colour(place: int, total: int) -> str:
    last = len(_STOPS) - 1
    return _STOPS[round(last * place / (total - 1))] if total > 1 else _STOPS[last // 2]


def rows_of(frame: pd.DataFrame, one: Series) -> pd.DataFrame:
    """Rows of one coupling."""
    keys = zip(column(frame, "g"), _controls(frame), strict=True)
    return frame[[key == (one.g, one.control) for key in keys]]


def rows_where(frame: pd.DataFrame, name: str, value: object) -> pd.DataFrame:
    """Rows whose column has this value: a number by number, anything else by its text."""
    if isinstance(value, int | float):
        return frame[[cell == float(value) for cell in column(frame, name)]]
    return frame[[word == str(value) for word in words(frame, name)]]


def class_names(source: Source) -> dict[float, str]:
    """Labels of the classes that were generated and their names, in order of the label."""
    frame = source.tables.get("agreement", pd.DataFrame())
    pairs = zip(column(frame, "label"), words(frame, "class"), strict=True)
    found = {label: name or f"label {label:g}" for label, name in pairs if math.isfinite(label)}
    return dict(sorted(found.items()))


def series_key(entries: Sequence[Series], more: Sequence[tuple[str, str]] = ()) -> str:
    """Key of a figure: a line with its mark for each coupling, then swatches as elsewhere."""
    drawn = "".join(
        f'<li><svg class="swatch line-mark" viewBox="0 0 22 12" aria-hidden="true">'
        f'<path d="M0 6H22" stroke="{one.colour}" stroke-width="2"'
        f"{' stroke-dasharray=' + chr(34) + '4 2.5' + chr(34) if one.dash == 'dash' else ''}/>"
        f'<path d="{_MARKS[one.symbol]}" fill="{one.colour}"/></svg>{html_text(one.label)}</li>'
        for one in entries
    )
    rest = "".join(
        f'<li><span class="swatch {shape}" aria-hidden="true"></span>{html_text(label)}</li>'
        for shape, label in more
    )
    return f'<ul class="key">{drawn}{rest}</ul>'
