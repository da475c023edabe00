"""Tables of the run as tables of the page."""

from collections.abc import Mapping

import pandas as pd

from flowscope.report.escaping import html_text
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column, words

__all__ = ["listing", "numbers"]

_LONGEST = 200
"""Rows up to which a table is shown in full."""

_PROSE = ("because", "rule", "setting")
"""Columns of sentences, which may break into lines."""


def listing(frame: pd.DataFrame, caption: str, meanings: Mapping[str, str] | None = None) -> str:
    """Table as HTML, numbers to three figures; meanings of columns appear under the pointer."""
    present, known = list(map(str, frame.columns)), meanings or {}
    head = "".join(
        f'<th scope="col"{_aligned(frame, name)}{_explained(known.get(name, ""))}>'
        f"{html_text(name.replace('_', ' '))}</th>"
        for name in present
    )
    cells = [_cells(frame, name) for name in present]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html_text(caption)}">'
        f'<table class="listing"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _explained(meaning: str) -> str:
    return f' title="{html_text(meaning)}"' if meaning else ""


def _aligned(frame: pd.DataFrame, name: str) -> str:
    kind = getattr(frame[name].dtype, "kind", "O")
    return ' class="number"' if kind in "iuf" else ""


def _cells(frame: pd.DataFrame, name: str) -> list[str]:
    if getattr(frame[name].dtype, "kind", "O") in "iu":
        return [f'<td class="number">{int(value)}</td>' for value in frame[name]]
    if _aligned(frame, name):
        return [f'<td class="number">{numeral(value)}</td>' for value in column(frame, name)]
    style = ' class="prose"' if name in _PROSE else ""
    return [f"<td{style}>{html_text(word)}</td>" for word in words(frame, name)]


def numbers(source: Source, table: str) -> str:
    """Table behind a figure, closed; a long one is only named."""
    frame = source.rows(table)
    if frame.empty:
        return ""
    link = f'<a href="tables/{table}.csv">tables/{table}.csv</a>'
    if len(frame) > _LONGEST:
        return f'<p class="source">Drawn from {link} ({len(frame)} rows).</p>'
    shown = listing(frame, f"numbers of the table {table}", source.page.columns.get(table))
    return f"<details><summary>The numbers ({link})</summary>{shown}</details>"
