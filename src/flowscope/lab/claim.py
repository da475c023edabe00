"""What a verdict is about and what a table is for: words that are written once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from flowscope.errors import Missing

__all__ = [
    "CLAIMS_TABLE",
    "ENDS",
    "INTERVAL",
    "Abstention",
    "Claim",
    "Column",
    "Missing",
    "Table",
]


class Abstention(Exception):  # noqa: N818 - an outcome of a stage, not an error
    """A stage can say nothing about this subject; the message is the reason that is shown."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a verdict is about.

    Attributes
    ----------
    name
        Short name of the verdict, e.g. ``"P3"``.
    title
        One or two words shown with the short name everywhere, e.g. ``"Contraction"``.
    says
        The claim as a statement, e.g. "attention contracts distances between its rows".
    asks
        The same as a question to a reader who has not read the theory.
    unit
        What the numbers behind it are resampled over.
    gate
        Whether it says what may be read rather than what was found: it is shown without the colours
        and the count of claims.
    gate_words
        What a gate is called where it holds and where it fails; without, "readable as a flow" and
        "not readable as a flow".
    """

    name: str
    says: str
    asks: str
    title: str = ""
    unit: str = "prompts"
    gate: bool = False
    gate_words: tuple[str, str] | None = None


INTERVAL = {
    "{}_low": "lower end of the 95 % interval of `{}`",
    "{}_high": "upper end of the 95 % interval of `{}`",
}
"""Columns beside one that is measured: the ends of its interval, named after it."""

ENDS = {
    "low": "lower end of the 95 % interval of `{}`",
    "high": "upper end of the 95 % interval of `{}`",
}
"""The same for the main number of a table, whose ends are called ``low`` and ``high``."""


@dataclass(frozen=True)
class Column:
    """A column of a table, and the columns that repeat its name in a pattern.

    Attributes
    ----------
    name, meaning
        Name in the file, and one line that says what its numbers are.
    unit
        Unit of its numbers; empty for words, counts and pure numbers.
    beside
        Columns that belong to it: a pattern of the name and a pattern of the meaning, in which
        ``{}`` is the name of this column. They have the same unit. See `INTERVAL` and `ENDS`.
    optional
        Whether some runs lack it; the meaning says which.

    Examples
    --------
    >>> [column.name for column in Column("loss", "mean loss", "nat", INTERVAL).expanded()]
    ['loss', 'loss_low', 'loss_high']
    """

    name: str
    meaning: str
    unit: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    def expanded(self) -> Iterator[Column]:
        """Return this column, then those beside it."""
        yield replace(self, beside={})
        for name, meaning in self.beside.items():
            yield Column(
                name.format(self.name), meaning.format(self.name), self.unit, {}, self.optional
            )


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a table of a run folder is for, and what its columns are.

    Attributes
    ----------
    purpose
        What its rows say, in words that finish "this run has no table of …".
    keys
        Columns that together name a row.
    columns
        All columns, the keys among them, in the order of the file.
    optional
        Whether a complete run may lack the table: the report does not list it as missing.
    """

    purpose: str
    keys: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        names = [column.name for group in self.columns for column in group.expanded()]
        twice = sorted({name for name in names if names.count(name) > 1})
        absent = [key for key in self.keys if key not in names]
        if twice or absent:
            raise ValueError(
                f"table of {self.purpose}: columns declared twice: {twice}; keys that are no "
                f"column: {absent}"
            )

    @cached_property
    def schema(self) -> Mapping[str, Column]:
        """Every column by name, patterns expanded."""
        return {column.name: column for group in self.columns for column in group.expanded()}


CLAIMS_TABLE = Table(
    purpose="what the source says beside what was measured",
    keys=("item",),
    columns=(
        Column("item", "short name of the claim"),
        Column("where", "place of the claim in the source"),
        Column("says", "the claim, in the words of the source"),
        Column("measured", "what this run measured"),
        Column("agrees", "yes, no, cannot be told, or not measured"),
        Column("rule", "rule by which `agrees` was decided"),
        Column(
            "by_chance",
            "at most how probable a no is if the claim is true: 0.05 for each 95 % interval or "
            "test at 5 % that can decide it; empty where none decides",
            "probability",
        ),
    ),
)
"""Table of claims of every study, as `flowscope.lab.statements` makes it."""
