"""Numbers of a finished study, task by task, with intervals; for its statements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.pde_view.names import ARMS, TASKS, Pair
from flowscope.lab.statements import Agreement, Statement, chance_of, not_compared
from flowscope.records import Run
from flowscope.report.numerals import bounds, numeral

__all__ = [
    "EVERY",
    "LAST",
    "Cell",
    "Numbers",
    "Row",
    "in_words",
    "judged",
    "pairs_in_words",
    "unmeasured",
]

EVERY = "; yes where that holds on every task, no where it fails on one"
"""Ends the rule of a row that all tasks decide together."""
LAST = "after the last block"
"""Begins a number of the last states."""
_NOT_MEASURED = "not measured in this run"

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of one task with its interval; NaN ends where there is none."""

    task: str
    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def above(self, bound: float) -> Agreement:
        """Yes where the whole interval lies above the bound, no where it lies below."""
        if not self.known:
            return "cannot be told"
        return "yes" if self.low > bound else "no" if self.high < bound else "cannot be told"

    def below(self, bound: float) -> Agreement:
        """Yes where the whole interval lies below the bound, no where it lies above."""
        return self.negative().above(-bound)

    def holds(self, value: float) -> Agreement:
        """Whether the interval holds a value."""
        if not self.known:
            return "cannot be told"
        return "yes" if self.low <= value <= self.high else "no"

    def negative(self) -> Cell:
        """The number with the other sign."""
        return Cell(task=self.task, value=-self.value, low=-self.high, high=-self.low)


class Numbers:
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

    def last(
        self, column: str, arm: str, *, weights: str = "trained", table: str = "depth"
    ) -> list[Cell]:
        """The cells of an arm after its last block."""
        frame = self.table(table)
        if not len(frame):
            return []
        layer = int(frame["layer"].max())
        return self.cells(table, column, arm=arm, weights=weights, layer=layer)

    def differences(
        self, pair: Pair, column: str, scale: Callable[[Values], Values] = np.asarray
    ) -> list[Cell]:
        """Arm that has the thing less the arm that lacks it, over seeds, task by task."""
        frame, found = self.table("networks"), []
        for task in dict.fromkeys(frame["task"]) if len(frame) else ():
            rows = frame[frame["task"] == task]
            wide = rows.pivot(index="seed", columns="arm", values=column)
            if {pair.having, pair.lacking} <= set(wide):
                having, lacking = (
                    scale(wide[arm].to_numpy(float)) for arm in (pair.having, pair.lacking)
                )
                found.append(_over_seeds(str(task), having - lacking))
        return found


def _over_seeds(task: str, values: Values) -> Cell:
    sums = values[:, None]
    counts = resampled_counts(len(sums), resamples=999, seed=0)
    points, interval = mean_over_prompts(sums, np.ones_like(sums), counts)
    low, high = bounds_of(interval, 1)
    return Cell(task=task, value=float(points[0]), low=float(low[0]), high=float(high[0]))


Row = Callable[[Numbers], Statement]
"""Makes a row of the table of claims."""


def judged(answers: Iterable[Agreement], **words: Any) -> Statement:
    """Row that says yes where all answers do and no where one does.

    Parameters
    ----------
    answers
        One for each interval that can make the row disagree; without any, nothing was measured.
    **words
        Item, where, says, rule and measured of the statement.
    """
    found = list(answers)
    if not found:
        return unmeasured(**words)
    agrees: Agreement = "yes" if set(found) == {"yes"} else "cannot be told"
    if "no" in found:
        agrees = "no"
    return Statement(agrees=agrees, by_chance=chance_of(len(found)), **words)


def unmeasured(item: str, where: str, says: str, rule: str, measured: str = "") -> Statement:
    """Row about which the run has no number; what else was measured is not shown."""
    return not_compared(item, where, says, rule, _NOT_MEASURED)


def in_words(cells: Iterable[Cell], scale: Callable[[float], float] = float) -> str:
    """Numbers with intervals, task by task.

    >>> in_words([Cell(task="listops", value=0.5, low=0.4, high=0.6)])
    'ListOps 0.5 [0.4, 0.6]'
    """
    shown = []
    for cell in cells:
        value, low, high = (scale(x) for x in (cell.value, cell.low, cell.high))
        shown.append(f"{TASKS[cell.task]} {numeral(value)} {bounds(low, high)}".strip())
    return ", ".join(shown)


def pairs_in_words(
    found: Sequence[tuple[Pair, list[Cell]]], scale: Callable[[float], float] = float
) -> str:
    """Numbers of pairs of arms, task by task."""
    return "; ".join(
        f"{ARMS[pair.having].label} and {ARMS[pair.lacking].label}: {in_words(cells, scale)}"
        for pair, cells in found
        if cells
    )
