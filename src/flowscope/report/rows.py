"""Rows of a table: those with a value, those in order, their finite numbers."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from flowscope.report.source import column, words

__all__ = ["above_zero", "known", "ordered", "rows_where"]


def known(values: Iterable[float]) -> list[float]:
    """The finite ones of these values."""
    return [value for value in values if math.isfinite(value)]


def above_zero(value: float) -> float:
    """Place of a value on a logarithmic axis: undefined where it is not above 0."""
    return value if 0 < value < math.inf else math.nan


def ordered(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows by this column, the undefined ones last."""
    return frame.iloc[np.argsort(column(frame, name), kind="stable")]


def rows_where(frame: pd.DataFrame, name: str, value: object) -> pd.DataFrame:
    """Rows whose column has this value: a number by number, anything else by its text."""
    if isinstance(value, int | float):
        return frame[[cell == float(value) for cell in column(frame, name)]]
    return frame[[word == str(value) for word in words(frame, name)]]
