"""The index of what all sources claim: one page of every claim beside what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from flowscope.report.claims import answer_chip
from flowscope.report.drawing.colours import theme_css
from flowscope.report.escaping import html_text
from flowscope.report.numerals import count

__all__ = ["StudyEntry", "claim_index"]

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem;"
    "background:var(--page,#fff);color:var(--text,#111)}"
    "table{border-collapse:collapse;table-layout:fixed;width:100%;margin:.5rem 0 2rem}"
    "th:nth-child(1){width:17%}th:nth-child(2){width:29%}th:nth-child(4){width:11%}"
    "th,td{text-align:left;vertical-align:top;padding:.45rem .6rem;border-top:1px solid #8884;"
    "overflow-wrap:anywhere}thead th{border-top:0}td.answer{white-space:nowrap}"
    ".where{display:block;font-weight:400;opacity:.75}.missing{font-style:italic}"
    "h2{margin-top:2.5rem}code{font-size:.9em}"
)


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """One study on the page.

    Attributes
    ----------
    name, title, source
        Name, question, and number of the source that makes the claims.
    command
        What repeats it.
    rows
        Its claims: item, where, says, measured, agrees.
    chance
        How many rows chance alone explains, in a sentence.
    links
        Words and addresses relative to the page: report, table.
    missing
        Why it was not measured; empty where it was.
    """

    name: str
    title: str
    source: str
    command: str
    rows: Sequence[dict[str, str]] = ()
    chance: str = ""
    links: Sequence[tuple[str, str]] = field(default=())
    missing: str = ""


def claim_index(entries: Sequence[StudyEntry], facts: str) -> str:
    """Page of all studies as text: one file, no script, no network.

    Parameters
    ----------
    entries
        The studies, in the order in which they are shown.
    facts
        How they were measured, in a sentence.
    """
    rows = [row for entry in entries for row in entry.rows]
    answers = [row["agrees"] for row in rows]
    counts = ", ".join(f"{answer}: {answers.count(answer)}" for answer in dict.fromkeys(answers))
    done = sum(not entry.missing for entry in entries)
    contents = "".join(
        f'<li><a href="#{html_text(entry.name)}">{html_text(entry.name)}</a> '
        f"({html_text(entry.source)}): {html_text(entry.missing or _tally(entry))}</li>"
        for entry in entries
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        "<title>What the sources claim, what flowscope measures</title>"
        f"<style>{theme_css()}{_STYLE}</style></head><body>"
        "<h1>What the sources claim, what flowscope measures</h1>"
        f"<p>{count(len(rows), 'claim')} of {done} of {len(entries)} studies. "
        f"Does the measurement agree? {html_text(counts or 'nothing was measured')}. "
        f"{html_text(facts)}</p><ul>{contents}</ul>"
        + "".join(_section(entry) for entry in entries)
        + "</body></html>\n"
    )


def _tally(entry: StudyEntry) -> str:
    answers = [row["agrees"] for row in entry.rows]
    return ", ".join(f"{answer}: {answers.count(answer)}" for answer in dict.fromkeys(answers))


def _section(entry: StudyEntry) -> str:
    name, source = html_text(entry.name), html_text(entry.source)
    head = (
        f'<section id="{name}"><h2>{name} <small>source {source}</small></h2>'
        f"<p>{html_text(entry.title)}<br><code>{html_text(entry.command)}</code></p>"
    )
    if entry.missing:
        return f'{head}<p class="missing">Not measured: {html_text(entry.missing)}</p></section>'
    links = " · ".join(
        f'<a href="{html_text(address)}">{html_text(words)}</a>' for words, address in entry.links
    )
    rows = "".join(
        f'<tr><th scope="row">{html_text(row["item"])}'
        f'<span class="where">{html_text(row["where"])}</span></th>'
        f"<td>{html_text(row['says'])}</td><td>{html_text(row['measured'])}</td>"
        f'<td class="answer">{answer_chip(row["agrees"])}</td></tr>'
        for row in entry.rows
    )
    return (
        f'{head}<p>{links}</p><table><thead><tr><th scope="col">claim</th>'
        f'<th scope="col">{source} says</th><th scope="col">we measure</th>'
        f'<th scope="col">agrees?</th></tr></thead><tbody>{rows}</tbody></table>'
        f"<p>{html_text(entry.chance)}</p></section>"
    )
