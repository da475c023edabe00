"""Rows of a table: those with a value, those in order, their finite numbers."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from flowscope.report.source import column, words

__all__ = ["known", "ordered", "positive", "rows_where"]


def known(values: Iterable[float]) -> list[float]:
    """The finite ones of these values."""
    return [value for value in values if math.isfinite(value)]


def positive(values: Iterable[float]) -> list[float]:
    """Values for a logarithmic axis: undefined where they are not above 0."""
    return [value if 0 < value < math.inf else math.nan for value in values]


def ordered(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows by this column, the undefined ones last."""
    return frame.iloc[np.argsort(column(frame, name), kind="stable")]


def rows_where(frame: pd.DataFrame, name: str, value: object) -> pd.DataFrame:
    """Rows whose column has this value: a number by number, anything else by its text."""
    if isinstance(value, int | float):
        return frame[[cell == float(value) for cell in column(frame, name)]]
    return frame[[word == str(value) for word in words(frame, name)]]
