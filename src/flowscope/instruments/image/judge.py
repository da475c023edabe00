"""The verdicts of ``flowscope image``, from the tables that its stages wrote."""

from __future__ import annotations

import pandas as pd

from flowscope.instruments.image.claims import GRADIENT, ORDER, PARITY
from flowscope.instruments.image.names import DECIDING
from flowscope.instruments.image.rules import judge_gradient, judge_order, judge_parity
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["gradient", "order", "parity"]

_GUIDED = (
    "with guidance the field is not the score of any distribution: ODE and SDE may differ, and the "
    "field need not be a gradient"
)


def order(records: Records) -> list[Verdict]:
    """Whether the error of sampling falls at first order."""
    slopes = records.table("weak_error_slope")
    return [judge_order(slopes, claim=ORDER, observable=DECIDING, seed=records.settings["seed"])]


def parity(records: Records) -> list[Verdict]:
    """Whether flow and SDE share their marginals."""
    if records.settings["guidance"] != 1:
        raise Abstention(_GUIDED)
    table = records.table("parity", "tv_p_overall")
    p = float(table["tv_p_overall"].iloc[0])
    return [judge_parity(table, p, claim=PARITY, seed=records.settings["seed"])]


def gradient(records: Records) -> list[Verdict]:
    """Whether the learned score is a gradient."""
    settings = records.settings
    if settings["guidance"] != 1:
        raise Abstention(_GUIDED)
    table = records.table("rotation", "mean_low", "mean_high", "mean_level", "mean_method")
    degree, seed = settings["rotation_degree"], settings["seed"]
    interval = _interval_of_the_mean(table)
    return [judge_gradient(table, interval, claim=GRADIENT, degree=degree, seed=seed)]


def _interval_of_the_mean(table: pd.DataFrame) -> Interval | Unavailable:
    """Interval of the mean share over times; every row repeats it."""
    row = table.iloc[0]
    if pd.isna(row["mean_low"]):
        return Unavailable(str(row["mean_method"]))
    low, high, level = (float(row[name]) for name in ("mean_low", "mean_high", "mean_level"))
    return Interval(low=low, high=high, level=level, method=str(row["mean_method"]))
