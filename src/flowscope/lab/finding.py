"""What a run says in plain sentences, each with its number and what to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowscope.errors import Missing
from flowscope.lab.view import Records
from flowscope.records import Run

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument

__all__ = ["Finding", "collected", "complete_rows", "findings_of", "plain_findings"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence about a finished run.

    Attributes
    ----------
    text
        One or two sentences for a reader who has not read the theory.
    next
        What the reader should do, as an imperative sentence.
    value, interval
        The number that the text is about and both ends of its interval; None where there is none.
    table, figure
        Names of the table that holds the number and of the figure that shows it, or empty.

    Raises
    ------
    ValueError
        The text or the next step is no sentence with a full stop, or a number is not finite.

    Examples
    --------
    >>> finding = Finding(text="Half of the tokens are final.", value=0.5, next="Stop there.")
    >>> finding.plain()["value"], finding.plain()["interval"]
    (0.5, None)
    """

    text: str
    next: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    table: str = ""
    figure: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "next"):
            sentence = getattr(self, name)
            if len(sentence.strip(" .")) == 0 or not sentence.endswith("."):
                raise ValueError(f"{name} of a finding ends with a full stop; got {sentence!r}.")
        numbers = (*(() if self.value is None else (self.value,)), *(self.interval or ()))
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"the numbers of a finding are finite; got {numbers}.")

    def plain(self) -> dict[str, Any]:
        """The finding as plain values: text, value, interval, table, figure, next."""
        values = asdict(self)
        names = ("text", "value", "interval", "table", "figure", "next")
        return {name: values[name] for name in names} | {
            "interval": None if self.interval is None else list(self.interval)
        }


def collected(
    records: Records, makers: Iterable[Callable[[Records], Finding | None]]
) -> list[Finding]:
    """Findings of several functions of the records, in order.

    A function that returns None, or that raises `Missing` because the run lacks its table or a
    column of it, adds none.
    """
    findings = []
    for maker in makers:
        try:
            finding = maker(records)
        except Missing:
            continue
        if finding is not None:
            findings.append(finding)
    return findings


def complete_rows(
    records: Records, table: str, numbers: Sequence[str], others: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of a table that have a finite number in each of these columns, as plain values.

    Parameters
    ----------
    records, table
        The run and the name of its table.
    numbers, others
        Columns that a row is kept for, and columns that the table has to have beside them.

    Raises
    ------
    Missing
        The run lacks the table or one of the columns, or no row has all the numbers.
    """
    frame = records.table(table, *numbers, *others)
    rows = [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]
    complete = [row for row in rows if all(_is_number(row[name]) for name in numbers)]
    if not complete:
        raise Missing(f"no row of the table “{table}” has a number in {', '.join(numbers)}")
    return complete


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def findings_of(instrument: Instrument, run: Run) -> tuple[Finding, ...]:
    """Findings of a run, made from its tables; none where the instrument declares no function."""
    if not instrument.findings:
        return ()
    try:
        return tuple(instrument.resolve(instrument.findings)(Records(run=run)))
    except Missing:
        return ()


def plain_findings(instrument: Instrument, run: Run) -> list[dict[str, Any]]:
    """Findings of a run as plain values."""
    return [finding.plain() for finding in findings_of(instrument, run)]
