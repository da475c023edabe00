"""Numbers of a finished study, task by task, with intervals; for its statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.pde_view.names import TASKS, Pair
from flowscope.lab.statements import Agreement
from flowscope.records import Run
from flowscope.report.numerals import bounds, numeral

__all__ = ["Cell", "Evidence", "agreed", "in_words"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of one task with its interval; NaN ends where there is none."""

    task: str
    value: float
    low: float
    high: float

    def side(self, bound: float) -> Agreement:
        """Yes above the bound, no below it."""
        known = np.isfinite(self.low) and np.isfinite(self.high)
        if known and self.low > bound:
            return "yes"
        return "no" if known and self.high < bound else "cannot be told"


class Evidence:
    """Looks numbers up in the tables of a run; what is not there gives no cell."""

    def __init__(self, run: Run) -> None:
        self._run, self._names = run, set(run.tables())

    def table(self, name: str) -> pd.DataFrame:
        """A table of the run, without rows if it is not there."""
        return self._run.read_table(name) if name in self._names else pd.DataFrame()

    def cells(self, table: str, column: str, **keys: object) -> list[Cell]:
        """One cell a task: the rows of a table in which the keys have these values."""
        frame = self.table(table)
        for name, value in keys.items():
            frame = frame[frame[name] == value] if len(frame) else frame
        return [
            Cell(
                task=str(row["task"]), value=float(row[column]),
                low=float(row[f"{column}_low"]), high=float(row[f"{column}_high"]),
            )
            for _, row in frame.iterrows()
        ]  # fmt: skip

    def differences(
        self, pair: Pair, column: str, scale: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> list[Cell]:
        """Arm that has the thing less the arm that lacks it, over seeds, task by task."""
        frame = self.table("networks")
        if not len(frame):
            return []
        cells = []
        for task, rows in frame.groupby("task", sort=False):
            wide = rows.pivot(index="seed", columns="arm", values=column)
            if {pair.having, pair.lacking} <= set(wide):
                having, lacking = (
                    scale(wide[a].to_numpy(float)) for a in (pair.having, pair.lacking)
                )
                cells.append(_over_seeds(str(task), having - lacking))
        return cells


def _over_seeds(task: str, values: np.ndarray) -> Cell:
    sums = values[:, None]
    points, interval = mean_over_prompts(
        sums, np.ones_like(sums), resampled_counts(len(sums), resamples=999, seed=0)
    )
    low, high = bounds_of(interval, 1)
    return Cell(task=task, value=float(points[0]), low=float(low[0]), high=float(high[0]))


def agreed(answers: Iterable[Agreement]) -> Agreement:
    """Yes where all say yes, no where one says no."""
    found = list(answers)
    if not found:
        return "not measured"
    if "no" in found:
        return "no"
    return "yes" if set(found) == {"yes"} else "cannot be told"


def in_words(cells: Iterable[Cell], scale: Callable[[float], float] = float) -> str:
    """Numbers with intervals, task by task.

    >>> in_words([Cell(task="listops", value=0.5, low=0.4, high=0.6)])
    'ListOps 0.5 [0.4, 0.6]'
    """
    shown = []
    for cell in cells:
        value, low, high = (scale(x) for x in (cell.value, cell.low, cell.high))
        ends = f" {bounds(low, high)}" if np.isfinite(low) else ""
        shown.append(f"{TASKS[cell.task]} {numeral(value)}{ends}")
    return ", ".join(shown)
