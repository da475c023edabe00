"""The page: one file, no network, nothing executed but a few known scripts.

Scripts are admitted by their sha256 in a content security policy, so even markup that slipped
through the escaping could not run; data stand in JSON elements, which no browser executes.
The bytes depend on the run folder and the version of flowscope alone.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

from flowscope.records import Missing, Run, Unavailable
from flowscope.records.files import is_file, remove_file, write_file
from flowscope.records.verdict import Outcome
from flowscope.report.drawing.canvas import png
from flowscope.report.drawing.colours import theme_css
from flowscope.report.escaping import html_text, script_hash
from flowscope.report.figure_html import part
from flowscope.report.numerals import count, numeral
from flowscope.report.parts.appendix import manifest_details, not_measured
from flowscope.report.parts.downloads import embedded
from flowscope.report.parts.finding_list import findings_section, with_links
from flowscope.report.parts.symbols import explained
from flowscope.report.parts.verdict_cards import card, chip
from flowscope.report.source import Source, read_source
from flowscope.report.spec import Page, Section

__all__ = ["render", "report_html"]

_SCRIPTS = ("plot_axes.js", "plot_traces.js", "plot_frame.js", "plot.js", "page.js")
_OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "uninformative": ("is uninformative", "are uninformative"),
    "abstains": ("abstains", "abstain"),
}
"""Verb of each outcome, for one claim and for several."""


def report_html(run: Run, page: Page) -> str:
    """Page of a run as text: self-contained, well below a megabyte for most runs.

    Parameters
    ----------
    run
        Its tables, verdicts, measurements and manifest are read, and nothing else.
    page
        How a run of its instrument is shown.

    Raises
    ------
    RecordError
        A file of the run is damaged. A table that is not there is no error: the page says so.
    """
    return _page(read_source(run, page))


def render(run: Run, page: Page, *, with_png: bool = False) -> tuple[Path, ...]:
    """Write ``report.html`` and, on demand, ``figures/*.png``; return their paths.

    Each file is replaced atomically. Pictures that an earlier report wrote are drawn again, so
    that they show the same tables as the page. A picture whose table is not there is not written,
    and one that an earlier report left is removed.

    Parameters
    ----------
    run
        The run folder.
    page
        How a run of its instrument is shown.
    with_png
        Whether all pictures are drawn.

    Raises
    ------
    RecordError
        A file of the run is damaged, or the folder cannot be written.
    """
    source = read_source(run, page)
    contents = {run.folder / "report.html": _page(source).encode()}
    for name in page.figures:
        path = run.folder / "figures" / f"{name}.png"
        if not with_png and not is_file(path):
            continue
        try:
            contents[path] = png(source, name)
        except Missing:
            remove_file(path)
    for path, content in contents.items():
        write_file(path, content)
    return tuple(contents)


def _page(source: Source) -> str:
    style = theme_css() + _asset("page.css")
    scripts = [_asset(name) for name in (*_SCRIPTS, *source.page.scripts)]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(script_hash, scripts))}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    sections: list[Section] = [
        *findings_section(source),
        *source.page.opening(source),
        ("verdicts", "Verdicts", _verdicts(source)),
        *source.page.sections(source),
        ("not-measured", "Not measured", not_measured(source)),
        ("manifest", "Where this comes from", manifest_details(source.manifest)),
    ]
    body = with_links("\n".join(_section(source, section) for section in sections))
    content, tables = embedded(body, source.texts)
    title = f"{html_text(source.model)} · {html_text(source.page.kind)} · flowscope"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title>\n<style>{style}</style></head>\n<body>"
        f'<a class="skip" href="#main">Skip to the content</a>{_head(source)}'
        f'<div class="frame">{_contents(sections)}<main id="main">'
        "<noscript><p class=missing>The figures need JavaScript. The command flowscope "
        "report RUN --png writes them as PNG files.</p></noscript>"
        f"{content}</main></div>\n{tables}\n"
        + "\n".join(f"<script>{script}</script>" for script in scripts)
        + "\n</body></html>\n"
    )


@cache
def _asset(name: str) -> str:
    return (files("flowscope.report") / name).read_text(encoding="utf-8")


def _head(source: Source) -> str:
    manifest = source.manifest
    facts = [
        *source.page.facts(source),
        ("made", manifest.created_at),
        ("device", manifest.device),
        ("took", _seconds(manifest.wall_time)),
    ]
    shown = "".join(
        f"<li><span>{name}</span> {html_text(value)}</li>"
        for name, value in facts
        if not isinstance(value, Unavailable)
    )
    chips = "".join(
        f'<li><a href="#verdict-{k}"><span class="key-label">'
        f"{html_text(source.page.label(verdict.name))}</span> "
        f"{chip(verdict, gate=source.page.gates.get(verdict.name))}</a></li>"
        for k, verdict in enumerate(source.verdicts)
    )
    return (
        '<header class="top"><div><button class="theme" id="theme" hidden>Dark theme</button>'
        '<p class="eyebrow">flowscope · '
        f"{html_text(source.page.kind)}</p>"
        f"<h1>{html_text(source.model)}</h1>"
        f'{_caution(source)}<p class="lead">{html_text(_summary(source))}</p>'
        f'<ul class="chips">{chips}</ul><ul class="facts">{shown}</ul></div></header>'
    )


def _caution(source: Source) -> str:
    caution = html_text(source.caution)
    return f'<p class="caution" role="alert">{caution}</p>' if caution else ""


def _seconds(wall_time: float | Unavailable) -> str | Unavailable:
    return wall_time if isinstance(wall_time, Unavailable) else f"{numeral(wall_time)} s"


def _summary(source: Source) -> str:
    if not source.verdicts:
        return "This run holds no verdicts."
    outcomes = [v.outcome for v in source.verdicts if v.name not in source.page.gates]
    if not outcomes:
        return source.page.remark(source)
    parts = [
        f"{number} {one if number == 1 else several}"
        for (one, several), number in (
            (_OUTCOMES[each], outcomes.count(each)) for each in _OUTCOMES
        )
        if number
    ]
    decided = f"Of {count(len(outcomes), 'claim')}, {', '.join(parts)}."
    return f"{decided} {source.page.remark(source)}".strip()


def _verdicts(source: Source) -> str:
    if not source.verdicts:
        return '<p class="missing">Not shown: this run has written no verdicts.</p>'
    cards = enumerate(source.verdicts)
    usual = source.usual_intervals
    said = (
        f'<p class="source">Intervals, where a caption says nothing else: {html_text(usual)}.</p>'
        if usual
        else ""
    )
    return said + "".join(card(verdict, f"verdict-{k}", source.page) for k, verdict in cards)


def _contents(sections: list[Section]) -> str:
    links = "".join(
        f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading, _ in sections
    )
    return f'<nav aria-label="sections"><ul>{links}</ul></nav>'


def _section(source: Source, section: Section) -> str:
    anchor, heading, content = section
    if callable(content):
        content = part()(content)(source)
    content = explained(content, source.page.symbols)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-heading">'
        f'<h2 id="{anchor}-heading">{heading}</h2>{content}</section>'
    )
