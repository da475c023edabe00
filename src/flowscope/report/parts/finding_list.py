"""The findings of a run as the first section of its page, each linked to its figure."""

import re
from collections.abc import Mapping
from typing import Any

from flowscope.report.escaping import html_text
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["findings_section", "with_links"]

_LINK = re.compile(r'<a data-figure="([^"<>]*)">(.*?)</a>')
_HEADING = re.compile(r'<h2 id="([^"]+)-heading">(.*?)</h2>')
_PLACE = re.compile(r'<(?:div|section|figure|table|ul)\b[^>]*?\sid="([^"]+)"')


def findings_section(source: Source) -> list[Section]:
    """The section with the findings; no section where there are none."""
    if not source.findings:
        return []
    items = "".join(_item(source, finding) for finding in source.findings)
    return [("findings", "Findings", f'<ol class="findings">{items}</ol>')]


def _item(source: Source, finding: Mapping[str, Any]) -> str:
    figure, table = str(finding["figure"]), str(finding["table"])
    parts = []
    if figure in source.page.figures:
        title = html_text(source.page.figures[figure].title)
        parts.append(f'Figure: <a data-figure="{html_text(figure)}">{title}</a>')
    if table:
        name = html_text(table)
        parts.append(f'Table: <a href="tables/{name}.csv">{name}</a>')
    where = f'<p class="source">{" · ".join(parts)}</p>' if parts else ""
    return (
        f"<li><p>{html_text(finding['text'])}</p>"
        f'<p class="next"><span aria-hidden="true">→</span> {html_text(finding["next"])}</p>'
        f"{where}</li>"
    )


def with_links(body: str) -> str:
    """HTML in which the findings link to the place of their figure, where the page has one.

    The box of a figure is called ``plot-NAME``, where the name may lack the first words of the
    figure's own: a figure ``x_loss`` is drawn in ``plot-loss``. A figure without such a box is
    looked for in the section that has its title as heading.

    Examples
    --------
    >>> with_links('<a data-figure="a_b">B</a><div class="plot" id="plot-b"></div>')
    '<a href="#plot-b">B</a><div class="plot" id="plot-b"></div>'
    >>> with_links('<a data-figure="a_b">B</a>')
    'B'
    """
    places = set(_PLACE.findall(body))
    headings = {title: anchor for anchor, title in _HEADING.findall(body)}

    def linked(match: re.Match[str]) -> str:
        anchor = _anchor(match[1], places) or headings.get(match[2], "")
        return f'<a href="#{anchor}">{match[2]}</a>' if anchor else match[2]

    return _LINK.sub(linked, body)


def _anchor(figure: str, places: set[str]) -> str:
    """Place of a figure among the ids of a page; empty where it has none."""
    starts = [0, *(found.end() for found in re.finditer("[_-]", figure))]
    names = [figure[start:] for start in starts]
    anchors = [f"plot-{form}" for name in names for form in (name, name.replace("_", "-"))]
    return next((anchor for anchor in anchors if anchor in places), "")
