"""The end of the page: what was not measured, and where the run comes from."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pandas as pd

from flowscope.records import Manifest, Unavailable
from flowscope.report.escaping import html_text
from flowscope.report.numerals import cell_text, count, numeral
from flowscope.report.source import Source, words
from flowscope.report.spec import Absence

__all__ = ["absences", "manifest_details", "not_measured", "place_text", "silent_rows"]

_NAMED = 3
"""Rows that are named of those that share a reason."""

_REASONS = 6
"""Reasons that the list of what was not measured holds of one table."""


def absences(source: Source) -> list[Absence]:
    """What is missing or abstained, each with its reason."""
    page = source.page
    rows = list(page.withheld(source))
    rows += [
        (f"{page.label(verdict.name)}: {verdict.claim}", verdict.because)
        for verdict in source.verdicts
        if verdict.decision == "abstains"
    ]
    rows += [(f"{m.name} ({m.status})", m.because) for m in source.measurements if m.status != "ok"]
    rows += [
        (f"table {name}", f"not in this run; it would contain {purpose}")
        for name, purpose in source.expected.items()
        if name not in source.tables
    ]
    rows += page.silent(source)
    if not source.verdicts:
        rows.append(("verdicts", "this run has no verdicts"))
    return rows


def place_text(row: pd.DataFrame, name: str) -> str:
    """Column and its value in the first row, which name the row among others."""
    return f"{name} {cell_text(words(row, name)[0])}"


def silent_rows(
    source: Source,
    tables: Mapping[str, tuple[str, ...]],
    place: Callable[[pd.DataFrame, str], str] = place_text,
) -> list[Absence]:
    """Rows without a number, by table and reason; "no transition" is an outcome, not an absence.

    Parameters
    ----------
    source
        The run.
    tables
        Names of the tables, each with the columns that together name a row.
    place
        Words for one of these columns of a row.
    """
    absent: list[Absence] = []
    for table, names in tables.items():
        frame = source.tables.get(table, pd.DataFrame())
        groups: dict[str, list[str]] = {}
        for k, status in enumerate(words(frame, "status")):
            if status not in ("ok", "", "no transition"):
                row = frame.iloc[[k]]
                parts = [place(row, name) for name in names]
                groups.setdefault(words(row, "because")[0], []).append(", ".join(parts))
        if len(groups) > _REASONS:  # a different reason for nearly every row: the table has them
            total = sum(len(rows) for rows in groups.values())
            reasons = f"{len(groups)} reasons, e.g. {next(iter(groups))}; see tables/{table}.csv"
            absent.append((f"{table.replace('_', ' ')}, {count(total, 'row')}", reasons))
            continue
        absent += [
            (
                f"{table.replace('_', ' ')}, {count(len(rows), 'row')} "
                f"({'; '.join(rows[:_NAMED])}" + (" …)" if len(rows) > _NAMED else ")"),
                reason or "no reason was recorded",
            )
            for reason, rows in groups.items()
        ]
    return absent


def not_measured(source: Source) -> str:
    """Return the section that lists what was not measured."""
    absent = absences(source)
    if not absent:
        return "<p>Every part of this report was measured.</p>"
    rows = "".join(
        f'<tr><th scope="row">{html_text(what)}</th><td>{html_text(why)}</td></tr>'
        for what, why in absent
    )
    return (
        "<p>These parts have no number, each for the reason given. To abstain is not to fail: a "
        "number would have been misleading.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="what was not measured">'
        f'<table class="listing reasons"><tbody>{rows}</tbody></table></div>'
    )


def manifest_details(manifest: Manifest) -> str:
    """Manifest as collapsible tables, closed; print shows it open."""
    rows = [(field.name, getattr(manifest, field.name)) for field in fields(manifest)]
    body = "".join(
        f'<tr><th scope="row">{html_text(name.replace("_", " "))}</th><td>{_value(value)}</td></tr>'
        for name, value in rows
    )
    return (
        f"<details><summary>Manifest ({count(len(rows), 'entry').replace('entrys', 'entries')}): "
        "configuration, seeds, versions, device, hashes</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="manifest">'
        f'<table class="listing reasons manifest"><tbody>{body}</tbody></table></div></details>'
    )


def _value(value: Any) -> str:
    if isinstance(value, Unavailable):
        return f'<em class="absent">{html_text(value)}</em>'
    if isinstance(value, Mapping):
        if not value:
            return "–"
        rows = "".join(
            f'<tr><th scope="row">{html_text(key)}</th><td>{_value(item)}</td></tr>'
            for key, item in value.items()
        )
        return f"<table><tbody>{rows}</tbody></table>"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or "–"
    if isinstance(value, float):
        return html_text(numeral(value, 6))
    return f"<code>{html_text(value)}</code>"
