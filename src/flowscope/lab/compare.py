"""Two runs of one instrument side by side. What is compared is the instrument's to say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.lab.registry import instrument_of
from flowscope.lab.result import plain_rows
from flowscope.records import Run

__all__ = ["Comparison", "compared_folders"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Differences of the second run from the first, with intervals.

    Attributes
    ----------
    table
        statistic, depth (ℓ/L), first, second, difference, low, high, changed.
    paired
        Whether both runs read the same prompts, so that differences are taken within prompts.
    verdicts
        name, first, second, title: the decisions of both.
    """

    table: pd.DataFrame
    paired: bool
    verdicts: pd.DataFrame

    @property
    def changes(self) -> pd.DataFrame:
        """Rows whose interval excludes zero."""
        return self.table[self.table["changed"]]

    def to_json(self) -> dict[str, Any]:
        """Document of plain values."""
        return {
            "paired": self.paired,
            "table": plain_rows(self.table),
            "changes": plain_rows(self.changes),
            "verdicts": plain_rows(self.verdicts),
        }


def compared_folders(first: str | Path, second: str | Path) -> Comparison:
    """Compare the runs in two folders.

    Raises
    ------
    RecordError
        A folder holds no run.
    InvalidInputError
        The runs are of different instruments, or their instrument has no comparison; the message
        names the table to compare by hand.
    """
    runs = Run.open(first), Run.open(second)
    one, other = (instrument_of(run) for run in runs)
    if one.name != other.name:
        raise InvalidInputError(
            f"{runs[0].folder} is a run of {one.name}, {runs[1].folder} of {other.name}: "
            "only runs of the same instrument can be compared."
        )
    if not one.compare:
        raise InvalidInputError(
            f"{one.name} has no comparison of two runs yet. Its tables have the same columns in "
            f"every run: compare tables/{one.main_table}.csv in both folders."
        )
    comparison: Comparison = one.resolve(one.compare)(*runs)
    titles = [one.title(name) for name in comparison.verdicts.get("name", ())]
    return replace(comparison, verdicts=comparison.verdicts.assign(title=titles))
