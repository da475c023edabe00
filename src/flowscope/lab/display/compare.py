"""Two runs of one instrument side by side. What is compared is the instrument's to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.lab.registry import instrument_of
from flowscope.lab.result import Result, plain_rows
from flowscope.records import Run

__all__ = ["Comparison", "compare"]

_NO_CHANGE = "no difference outside its interval"


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

    @property
    def changed_verdicts(self) -> pd.DataFrame:
        """Verdicts that both runs have and that differ."""
        first, second = self.verdicts["first"], self.verdicts["second"]
        return self.verdicts[(first != second) & (first != "") & (second != "")]

    @property
    def title(self) -> str:
        """What the differences are and how they are taken."""
        how = "paired by prompt" if self.paired else "unpaired: the texts differ"
        return f"second − first, {how}; 95 % intervals"

    def __str__(self) -> str:
        lines = [
            f"{row['statistic']}  depth {row['depth']:.1f}  {row['first']:.3g} → "
            f"{row['second']:.3g}  difference {row['difference']:.3g} "
            f"[{row['low']:.2g}, {row['high']:.2g}]"
            for row in plain_rows(self.changes)
        ]
        verdicts = [
            f"{row['name']}: {row['first']} → {row['second']}"
            for row in plain_rows(self.changed_verdicts)
        ]
        return "\n".join([self.title, *(lines or [_NO_CHANGE]), *verdicts])

    def _repr_html_(self) -> str:
        changes = self.changes.drop(columns="changed")
        table = (
            changes.to_html(index=False, escape=True) if len(changes) else f"<p>{_NO_CHANGE}</p>"
        )
        verdicts = self.verdicts.to_html(index=False, escape=True)
        return f"<p>{escape(self.title)}</p>{table}{verdicts}"


def compare(first: str | Path | Result, second: str | Path | Result) -> Comparison:
    """Compare two runs of one instrument: what changed from the first to the second.

    Parameters
    ----------
    first, second
        Run folders, or results.

    Raises
    ------
    RecordError
        A folder holds no run.
    InvalidInputError
        The runs are of different instruments, or their instrument has no comparison; the message
        names the table to compare by hand.
    """
    runs = _run(first), _run(second)
    one, other = (instrument_of(run) for run in runs)
    if one.name != other.name:
        raise InvalidInputError(
            f"{runs[0].folder} is a run of {one.name}, {runs[1].folder} of {other.name}: "
            "only runs of the same instrument can be compared."
        )
    if not one.compare:
        raise InvalidInputError(
            f"{one.name} has no comparison of two runs yet. Its tables have the same columns in "
            f"every run: compare tables/{one.main_table}.csv in both folders, where a row is named "
            f"by {_listed(one.tables[one.main_table].keys)}."
        )
    comparison: Comparison = one.resolve(one.compare)(*runs)
    titles = [one.title(name) for name in comparison.verdicts.get("name", ())]
    return replace(comparison, verdicts=comparison.verdicts.assign(title=titles))


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _run(source: str | Path | Result) -> Run:
    return source.run if isinstance(source, Result) else Run.open(source)
