"""Looks tables and verdicts of a finished run up; what is not there gives no rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from flowscope.records import Run, Verdict

__all__ = ["Rows", "listed", "named"]


class Rows:
    """Tables of a run, with the columns that are asked for."""

    def __init__(self, run: Run) -> None:
        self._run, self._names = run, set(run.tables())

    def has(self, name: str) -> bool:
        """Whether the run has a table."""
        return name in self._names

    def table(self, name: str, *columns: str) -> pd.DataFrame:
        """A table; without rows where it, or one of the columns, is not there."""
        if name in self._names:
            frame = self._run.read_table(name)
            if set(columns) <= set(frame):
                return frame
        return pd.DataFrame(columns=list(columns))

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Verdicts by name."""
        return {verdict.name: verdict for verdict in self._run.read_verdicts()}


def listed(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as mappings."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def named(frame: pd.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    """Rows of a table by one of its columns."""
    return {str(row[key]): row for row in listed(frame)}
