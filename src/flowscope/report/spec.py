"""What an instrument tells the report: which tables its runs hold and how a page shows them.

The report knows no instrument. Each instrument declares one :class:`Page`; whoever renders a run
passes the page of the instrument that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowscope.records import Missing, Run, Unavailable
from flowscope.records.verdict_text import verdict_label

if TYPE_CHECKING:
    from flowscope.report.drawing.marks import Drawn, Entry
    from flowscope.report.figure_html import Caption
    from flowscope.report.source import Source

__all__ = ["Absence", "Fact", "Figure", "Findings", "Page", "Section"]

Section = tuple[str, str, "str | Callable[[Source], str]"]
"""Anchor, heading and HTML of a section, or the function of the run that returns the HTML.

Where the function raises `flowscope.records.Missing`, the section shows what is missing.
"""

Fact = tuple[str, str | Unavailable]
"""Name and value of a fact below the title; one that is not available is left out."""

Findings = Sequence[Mapping[str, Any]]
"""Sentences of a run as plain values: text, value, interval, table, figure, next."""

Absence = tuple[str, str]
"""What gave no number, and why."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A figure of a page, as data: drawn by the page, by plotly and by matplotlib.

    Attributes
    ----------
    title
        What the figure shows, in a few words.
    draw
        Returns the picture (a plotly figure as plain data) of a run, and raises
        `flowscope.records.Missing` where the run lacks a table for it. A map of words or a sheet
        of images has no such data: its function returns a figure of matplotlib.
    caption
        Returns the caption.
    key
        What each line and mark stands for, or a function that returns it.
    measurements, table, verdicts
        Where the reason is looked for that is shown in place of the figure: see `Source.why`.
    """

    title: str
    draw: Callable[[Source], Any]
    caption: Callable[[Source], str | Caption]
    key: Sequence[Entry | Drawn] | Callable[[Source], Sequence[Entry | Drawn]] = ()
    measurements: tuple[str, ...] = ()
    table: str = ""
    verdicts: tuple[str, ...] = ()

    def entries(self, source: Source) -> Sequence[Entry | Drawn]:
        """What each line and mark stands for in the figure of this run."""
        return self.key(source) if callable(self.key) else self.key

    def why(self, source: Source, lack: Missing) -> Missing:
        """What is said where the figure would be."""
        return source.why(lack, *self.measurements, table=self.table, verdicts=self.verdicts)


def _nothing(source: Source) -> tuple[()]:
    return ()


def _unsaid(run: Run) -> tuple[()]:
    return ()


def _silence(source: Source) -> str:
    return ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Page:
    """How a run of one instrument is shown.

    Attributes
    ----------
    kind
        Kind of the run in the title, e.g. "depth audit".
    tables
        Tables that a run should have, each with its purpose; the page lists those that are absent.
    extras
        Tables that a run may lack without the page listing them as absent.
    study_tables
        Tables that only a study of a source writes. If one of them is there, all are expected.
    alone
        Those of studies that make their own subject: a run with one of them lacks ``tables``.
    columns
        Meaning of the columns of each table, shown where the pointer rests on a column's name.
    arrays
        Arrays that the figures read.
    sections
        Sections between the verdicts and the appendix.
    findings
        Returns what the run says in plain sentences, shown first of all.
    opening
        Sections before the verdicts.
    facts
        Size of the model and of the measurement, shown below the title.
    remark
        Sentence after the count of decisions at the top of the page.
    withheld
        Parts of the model that a gate excluded; first in the list of what was not measured.
    silent
        Rows of tables without a number; last in that list.
    scripts
        Assets of this package that the sections need beside ``page.js``.
    figures
        Figures of the PNG files and of `flowscope.lab.Result.plot`, by the name of the file.
    questions
        Each verdict as a question to a reader who has not read the theory, by its name.
    titles
        One or two words shown with the short name of each verdict, by its name.
    gates
        Verdicts that say what may be read, not what was found, by short name: what each is called
        where it holds and where it fails.
    basis
        Verdict whose number of units and interval are stated for a figure that has none of its own.
    units
        What a verdict counts, and what intervals are resampled over.
    counted
        Entry of the setting ``measured`` with the number of units where no verdict states it.
    symbols
        Symbols of the sections and their meaning, beside those that mean the same on every page.
    """

    kind: str
    tables: Mapping[str, str]
    sections: Callable[[Source], Sequence[Section]]
    extras: Mapping[str, str] = field(default_factory=dict)
    study_tables: Mapping[str, str] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    findings: Callable[[Run], Findings] = _unsaid
    opening: Callable[[Source], Sequence[Section]] = _nothing
    facts: Callable[[Source], Sequence[Fact]] = _nothing
    remark: Callable[[Source], str] = _silence
    withheld: Callable[[Source], Sequence[Absence]] = _nothing
    silent: Callable[[Source], Sequence[Absence]] = _nothing
    scripts: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    gates: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    basis: str = ""
    units: str = "prompts"
    counted: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """Short name of a verdict with its title."""
        return verdict_label(name, self.titles.get(name, ""))

    @cached_property
    def purposes(self) -> Mapping[str, str]:
        """Every table that a run may hold, with its purpose."""
        return {**self.tables, **self.extras, **self.study_tables}
