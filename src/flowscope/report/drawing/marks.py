"""Marks of the series of a figure, and its key: a line with its mark for each series.

Each series has a colour and a mark of its own, so that no distinction rests on colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flowscope.report import theme
from flowscope.report.drawing.colours import css_colour
from flowscope.report.escaping import html_text, plotly_text
from flowscope.report.theme import Picture

__all__ = ["SYMBOLS", "Drawn", "Entry", "Look", "key", "spread", "swatch_trace"]

Entry = tuple[str, str]
"""Entry of a key: the class of a swatch, and what the swatch stands for."""

_STOPS = ("#cb7400", "#e2622b", "#c93c52", "#9c2c72", "#6f2a8c", "#43208a", "#17112e")
_SHAPES = {
    "circle": "M7 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M7.5 2.5h7v7h-7z",
    "diamond": "M11 1l5 5l-5 5l-5-5z",
    "triangle-up": "M11 1.5l5 8.5h-10z",
    "triangle-down": "M11 10.5l5-8.5h-10z",
    "hexagon": "M11 1.5l4 2.2v4.6l-4 2.2l-4-2.2v-4.6z",
}
_DASHES = {"dash": ' stroke-dasharray="4 2.5"', "dot": ' stroke-dasharray="2 2"'}
SYMBOLS = tuple(_SHAPES)
"""Marks that a key can draw, by plotly's names."""


class Drawn(Protocol):
    """Anything that has a name, a colour, a dash and a mark."""

    @property
    def label(self) -> str:
        """Its name in a key."""
        ...

    @property
    def colour(self) -> str:
        """Its colour, ``#rrggbb``."""
        ...

    @property
    def dash(self) -> str:
        """Plotly's word for its dash."""
        ...

    @property
    def symbol(self) -> str:
        """Plotly's word for its mark; empty where it has none."""
        ...


@dataclass(frozen=True)
class Look:
    """Name, colour, dash and mark of a series; without a mark it is a bare line."""

    label: str
    colour: str
    dash: str = "solid"
    symbol: str = ""


def spread(place: int, total: int) -> str:
    """Colour of one of several ordered series, from orange to nearly black."""
    last = len(_STOPS) - 1
    return _STOPS[round(last * place / (total - 1))] if total > 1 else _STOPS[last // 2]


def key(entries: Sequence[Entry | Drawn]) -> str:
    """Key of a figure as HTML: a swatch, or the line and mark of a series, and its name, each."""
    return f'<ul class="key">{"".join(map(_item, entries))}</ul>'


def _item(entry: Entry | Drawn) -> str:
    if isinstance(entry, tuple):
        shape, label = entry
        return f'<li><span class="swatch {shape}" aria-hidden="true"></span>{html_text(label)}</li>'
    colour, dashed = css_colour(entry.colour), _DASHES.get(entry.dash, "")
    shape = entry.symbol and f'<path d="{_SHAPES[entry.symbol]}" style="fill:{colour}"/>'
    return (
        f'<li><svg class="swatch line-mark" viewBox="0 0 22 12" aria-hidden="true">'
        f'<path d="M0 6H22" style="stroke:{colour}" stroke-width="2"{dashed}/>{shape}</svg>'
        f"{html_text(entry.label)}</li>"
    )


def _rule(colour: str, dash: str = "solid", width: float = 2) -> Picture:
    return {"mode": "lines", "line": {"color": colour, "dash": dash, "width": width}}


def _area(fill: str, edge: str) -> Picture:
    line = {"color": edge, "width": 1}
    return {"mode": "lines", "fill": "toself", "fillcolor": fill, "line": line}


def _mark(symbol: str, colour: str, size: float = 9) -> Picture:
    line = {"width": 1.6, "color": colour}
    marker = {"symbol": symbol, "color": colour, "size": size, "line": line}
    return {"mode": "markers", "marker": marker}


_SWATCHES = {
    "line": _rule(theme.BLUE),
    "band": _area(theme.faded(theme.BLUE, 0.22), "#ffffff"),
    "bar": _area(theme.faded(theme.VERMILION, 0.55), "#ffffff"),
    "passing": _area(theme.PASSING, "#c4dcec"),
    "abstained": _area(theme.ABSTAINED, "#c6cbcf"),
    "diamond": _mark("diamond", theme.VERMILION),
    "diamond open": _mark("diamond-open", theme.GREEN),
    "diamond random": _mark("diamond-open", theme.VERMILION),
    "disc": _mark("circle", theme.BLUE),
    "dot": _mark("circle", theme.faded(theme.BLUE, 0.5), 5),
    "hollow": _mark("circle-open", "#7b8791"),
    "hollow blue": _mark("circle-open", theme.BLUE),
    "square": _mark("square", theme.BLUE),
    "square vermilion": _mark("square", theme.VERMILION),
    "triangle": _mark("triangle-up", theme.ORANGE),
    "cross": _mark("x-thin", theme.VERMILION),
    "rule": _rule(theme.INK),
    "rule layer": _rule("#9aa4ad", width=1),
    "rule grey": _rule("#7b8791"),
    "rule vacuous": _rule(theme.MUTED, "dot"),
    "rule half": _rule(theme.INK, "dash"),
    "upright": _rule(theme.MUTED, "dot"),
}
"""How a trace looks that stands for a swatch of ``page.css`` in a legend."""


def swatch_trace(entry: Entry | Drawn) -> Picture:
    """Trace without points that shows an entry of a key in a legend."""
    if isinstance(entry, tuple):
        look, label = _SWATCHES[entry[0]], entry[1]
    else:
        look, label = _rule(entry.colour, entry.dash), entry.label
        if entry.symbol:
            marker = {"color": entry.colour, "symbol": entry.symbol, "size": 7}
            look = {**look, "mode": "lines+markers", "marker": marker}
    return {"type": "scatter", "x": [None], "y": [None], **look, "name": plotly_text(label),
            "showlegend": True, "hoverinfo": "skip"}  # fmt: skip
