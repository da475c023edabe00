"""The couplings of a run of replicas as series: which rows are theirs, and how they are drawn.

Uncoupled replicas are blue; couplings run from orange to nearly black as g grows, and each has a
mark of its own, so that no distinction rests on colour alone. The control, uncoupled replicas that
share their noise up to the step at which the coupling of the others ended, is blue and dashed.
"""

import math
from dataclasses import dataclass

import pandas as pd

from flowscope.report import theme
from flowscope.report.drawing.marks import SYMBOLS, spread
from flowscope.report.source import Source, column, words

__all__ = ["BANDS", "CONTROL", "Series", "class_names", "rows_of", "series_of"]


CONTROL = "control"
"""Name of the uncoupled replicas that share their noise."""


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
                colour=theme.BLUE if place is None else spread(place, len(coupled)),
                dash="dash" if control else "solid",
                symbol="circle" if place is None else SYMBOLS[1 + place % (len(SYMBOLS) - 1)],
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


def rows_of(frame: pd.DataFrame, one: Series) -> pd.DataFrame:
    """Rows of one coupling."""
    keys = zip(column(frame, "g"), _controls(frame), strict=True)
    return frame[[key == (one.g, one.control) for key in keys]]


def class_names(source: Source) -> dict[float, str]:
    """Labels of the classes that were generated and their names, in order of the label."""
    frame = source.tables.get("agreement", pd.DataFrame())
    pairs = zip(column(frame, "label"), words(frame, "class"), strict=True)
    found = {label: name or f"label {label:g}" for label, name in pairs if math.isfinite(label)}
    return dict(sorted(found.items()))


BANDS = {"lead": ("leading modes", "solid"), "trail": ("trailing modes", "dot")}
