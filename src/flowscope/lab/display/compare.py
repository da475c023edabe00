"""Two runs of one instrument side by side. What is compared is the instrument's to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.lab.registry import instrument_of
from flowscope.lab.result import Result, plain_rows
from flowscope.records import Run

__all__ = ["Comparison", "compare", "verdict_words"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Differences of the second run from the first, with intervals.

    Attributes
    ----------
    table
        statistic, depth (ℓ/L), first, second, difference; low and high of the difference by itself,
        joint_low and joint_high of all differences together, p corrected for all of them, changed.
        A difference is a change if its joint interval leaves zero out.
    paired
        Whether both runs read the same tokens, so that differences are taken within prompts.
    unpaired
        Why they are not paired, where they are not.
    verdicts
        name, title and, for each run, outcome (first, second), strength, effect and its interval.
    prompts
        How many prompts each run read.
    needed
        Prompts of each run below which no change is reported.
    """

    table: pd.DataFrame
    paired: bool
    unpaired: str = "the texts differ"
    verdicts: pd.DataFrame
    prompts: tuple[int, int]
    needed: int

    @property
    def changes(self) -> pd.DataFrame:
        """Rows whose simultaneous interval excludes zero."""
        return self.table[self.table["changed"]]

    @property
    def comparisons(self) -> int:
        """How many differences were taken, which the simultaneous intervals cover together."""
        return int(self.table["difference"].notna().sum())

    def to_json(self) -> dict[str, Any]:
        """Document of plain values."""
        return {
            "paired": self.paired,
            "unpaired": "" if self.paired else self.unpaired,
            "prompts": list(self.prompts),
            "comparisons": self.comparisons,
            "summary": self.summary,
            "next": self.next_step,
            "table": plain_rows(self.table),
            "changes": plain_rows(self.changes),
            "verdicts": plain_rows(self.verdicts),
        }

    @property
    def changed_verdicts(self) -> pd.DataFrame:
        """Verdicts that both runs have and whose outcomes differ."""
        first, second = self.verdicts["first"], self.verdicts["second"]
        return self.verdicts[(first != second) & (first != "") & (second != "")]

    @property
    def title(self) -> str:
        """What the differences are and how they are taken."""
        how = "paired by prompt" if self.paired else f"unpaired: {self.unpaired}"
        return (
            f"second − first, {how}; 95 % intervals, simultaneous over {self.comparisons} "
            "comparisons"
        )

    @property
    def summary(self) -> list[str]:
        """A sentence for each statistic that changed, or one that says that none did."""
        if min(self.prompts) < self.needed:
            return [
                f"No change is reported, because at least {self.needed} prompts are needed in each "
                f"run; these have {self.prompts[0]} and {self.prompts[1]}."
            ]
        over = f"95 % simultaneous over {self.comparisons} comparisons"
        changes = [
            f"{name} changed at {_depths(self.table[self.table['statistic'] == name])} ({over}); "
            f"{_largest_change(rows)}."
            for name, rows in self.changes.groupby("statistic", sort=False)
        ]
        return changes or [f"No difference is significant ({over})."]

    @property
    def next_step(self) -> str:
        """What to do with this comparison."""
        if min(self.prompts) < self.needed:
            return f"Run both again with at least {self.needed} prompts (--prompts)."
        if len(self.changes):
            return (
                "Look at these depths in both reports (flowscope report RUN), and compare two runs "
                "on other texts to see whether the change stays."
            )
        what = "tokens" if "tokens" in self.unpaired else "texts"
        pairs = "" if self.paired else f"give both runs the same {what}, or "
        return (
            f"To see smaller differences, {pairs}read more prompts: four times as many make the "
            "intervals half as wide."
        )

    def __str__(self) -> str:
        lines = [
            f"{row['statistic']}  depth {row['depth']:.1f}  {row['first']:.3g} → "
            f"{row['second']:.3g}  difference {row['difference']:.3g} "
            f"[{row['joint_low']:.2g}, {row['joint_high']:.2g}]"
            for row in plain_rows(self.changes)
        ]
        verdicts = [
            f"{row['name']}: {verdict_words(row, 'first')} → {verdict_words(row, 'second')}"
            for row in plain_rows(self.changed_verdicts)
        ]
        paragraphs = [self.title, *self.summary, *lines, *verdicts, f"Next: {self.next_step}"]
        return "\n".join(paragraphs)

    def _repr_html_(self) -> str:
        changes = self.changes.drop(columns="changed")
        table = changes.to_html(index=False, escape=True) if len(changes) else ""
        sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.summary)
        verdicts = self.verdicts.to_html(index=False, escape=True)
        after = f"<p>Next: {escape(self.next_step)}</p>"
        return f"<p>{escape(self.title)}</p><ul>{sentences}</ul>{table}{verdicts}{after}"


def verdict_words(row: Mapping[str, Any], side: str) -> str:
    """Outcome of one run with its strength and the interval of its effect, where there are any.

    Examples
    --------
    >>> row = {"first": "holds", "first_strength": "weak", "first_effect": 0.0625,
    ...        "first_low": 0.03, "first_high": 0.1}
    >>> verdict_words(row, "first")
    'holds (weak, effect 0.0625 [0.03, 0.1])'
    """
    effect, low, high = (row[f"{side}_{name}"] for name in ("effect", "low", "high"))
    numbers = [] if effect is None else [f"effect {effect:.3g}"]
    if numbers and low is not None and high is not None:
        numbers = [f"{numbers[0]} [{low:.2g}, {high:.2g}]"]
    inside = ", ".join([word for word in (row[f"{side}_strength"],) if word] + numbers)
    return f"{row[side]} ({inside})" if inside else str(row[side])


def _depths(rows: pd.DataFrame) -> str:
    """Depths of one statistic that changed; neighbours are written as a range.

    Examples
    --------
    >>> depths = [0.0, 0.1, 0.2, 0.3, 0.4]
    >>> _depths(pd.DataFrame({"depth": depths, "changed": [True, False, True, True, True]}))
    'depths 0.0, 0.2–0.4'
    """
    depths, changed = list(rows["depth"]), list(rows["changed"])
    ranges: list[list[float]] = []
    for place, (depth, here) in enumerate(zip(depths, changed, strict=True)):
        if here and place and changed[place - 1]:
            ranges[-1][1] = depth
        elif here:
            ranges.append([depth, depth])
    words = [f"{a:.1f}" if a == b else f"{a:.1f}–{b:.1f}" for a, b in ranges]
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"depth{'' if single else 's'} {', '.join(words)}"


def _largest_change(rows: pd.DataFrame) -> str:
    """The change of one statistic that is furthest from chance, in words."""
    reach = (rows["joint_high"] - rows["joint_low"]) / 2
    clearest = (rows["difference"].abs() / reach.where(reach > 0, 1e-300)).to_numpy().argmax()
    row = rows.iloc[int(clearest)]
    return f"clearest at depth {row['depth']:.1f}, from {row['first']:.3g} to {row['second']:.3g}"


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
