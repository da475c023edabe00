"""Tables inside the page: they can be downloaded also where the run folder is not at hand.

A download is what people open in a spreadsheet, which runs text that begins with ``=``, ``+``,
``-``, ``@``, a tab or a carriage return. Such text gets an apostrophe in front, which a spreadsheet
takes for "this is text". The tables of the run folder stay exact.
"""

import re
from collections.abc import Mapping

from flowscope.report.escaping import json_island

__all__ = ["MOST_BYTES", "embedded", "harmless_csv"]

MOST_BYTES = 100_000
"""Size of a table beyond which the page links to its file in the run folder."""

# Text stands in quotes and numbers do not; a quote inside a text is doubled, so that no text can
# hold what begins a cell.
_RUN = re.compile(r'(?:^|(?<=,))"(?=[=+\-@\t\r])', re.MULTILINE)
_LINK = re.compile(r'<a href="tables/(\w+)\.csv">')


def embedded(content: str, texts: Mapping[str, str]) -> tuple[str, str]:
    """HTML whose links offer the tables of the page for download, and the elements that hold them.

    Parameters
    ----------
    content
        HTML with links to ``tables/NAME.csv``.
    texts
        Tables as CSV, by their names. A link to another table stays as it is.
    """
    linked = dict.fromkeys(name for name in _LINK.findall(content) if name in texts)
    held = "".join(
        f'<script type="application/json" id="table-{name}">{json_island(csv)}</script>'
        for name, csv in ((name, harmless_csv(texts[name])) for name in linked)
    )
    return _LINK.sub(lambda match: _link(match[1], texts), content), held


def harmless_csv(csv: str) -> str:
    r"""CSV of a table in which no text is a formula.

    Examples
    --------
    >>> harmless_csv('"token","p"\n"=1+1",-0.5\n')
    '"token","p"\n"\'=1+1",-0.5\n'
    """
    return _RUN.sub("\"'", csv)


def _link(name: str, texts: Mapping[str, str]) -> str:
    offer = f' download="{name}.csv" data-table="{name}"' if name in texts else ""
    return f'<a href="tables/{name}.csv"{offer}>'
