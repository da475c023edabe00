"""Marks of the series of a figure, and its key: a line with its mark for each series.

Each series has a colour and a mark of its own, so that no distinction rests on colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flowscope.report.colours import css_colour
from flowscope.report.escaping import html_text

__all__ = ["SYMBOLS", "Drawn", "Look", "mark_key", "spread"]

_STOPS = ("#cb7400", "#e2622b", "#c93c52", "#9c2c72", "#6f2a8c", "#43208a", "#17112e")
_SHAPES = {
    "circle": "M7 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M7.5 2.5h7v7h-7z",
    "diamond": "M11 1l5 5l-5 5l-5-5z",
    "triangle-up": "M11 1.5l5 8.5h-10z",
    "triangle-down": "M11 10.5l5-8.5h-10z",
    "hexagon": "M11 1.5l4 2.2v4.6l-4 2.2l-4-2.2v-4.6z",
}
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
        """Plotly's word for its mark."""
        ...


@dataclass(frozen=True, kw_only=True)
class Look:
    """Name, colour, dash and mark of a series."""

    label: str
    colour: str
    dash: str = "solid"
    symbol: str = "circle"


def spread(place: int, total: int) -> str:
    """Colour of one of several ordered series, from orange to nearly black."""
    last = len(_STOPS) - 1
    return _STOPS[round(last * place / (total - 1))] if total > 1 else _STOPS[last // 2]


def mark_key(entries: Sequence[Drawn], more: Sequence[tuple[str, str]] = ()) -> str:
    """Key of a figure: a line with its mark for each series, then swatches as elsewhere."""
    drawn = "".join(
        f'<li><svg class="swatch line-mark" viewBox="0 0 22 12" aria-hidden="true">'
        f'<path d="M0 6H22" style="stroke:{css_colour(one.colour)}" stroke-width="2"'
        f"{' stroke-dasharray=' + chr(34) + '4 2.5' + chr(34) if one.dash == 'dash' else ''}/>"
        f'<path d="{_SHAPES[one.symbol]}" style="fill:{css_colour(one.colour)}"/></svg>'
        f"{html_text(one.label)}</li>"
        for one in entries
    )
    rest = "".join(
        f'<li><span class="swatch {shape}" aria-hidden="true"></span>{html_text(label)}</li>'
        for shape, label in more
    )
    return f'<ul class="key">{drawn}{rest}</ul>'
