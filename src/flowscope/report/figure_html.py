"""A figure as HTML: an empty box, its data as JSON beside it, a key in words, a caption."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

from flowscope.records import Missing
from flowscope.report.drawing.marks import Drawn, Entry, key
from flowscope.report.escaping import html_text, json_island
from flowscope.report.source import Source
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["Caption", "fact_list", "figure", "fold", "key", "missing", "part", "plot", "shown"]

_P = ParamSpec("_P")
_Part = Callable[Concatenate[Source, _P], str]


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What is seen, what would be seen if nothing were there, what speaks against it, the basis."""

    seen: str
    null: str
    against: str
    basis: str

    def __str__(self) -> str:
        parts = (self.seen, f"Null: {self.null}", f"Would count against it: {self.against}")
        return " ".join((*parts, f"Basis: {self.basis}"))

    @property
    def html(self) -> str:
        """The caption as HTML."""
        parts = {"Null.": self.null, "Would count against it.": self.against, "Basis.": self.basis}
        rest = "".join(
            f"<p><strong>{lead}</strong> {html_text(text)}</p>" for lead, text in parts.items()
        )
        return f"<figcaption><p>{html_text(self.seen)}</p>{rest}</figcaption>"


def missing(lack: Missing) -> str:
    """Paragraph that stands where a figure would."""
    return f'<p class="missing">Not shown: {html_text(lack.reason.rstrip("."))}.</p>'


def part(*measurements: str, table: str = "", verdicts: Sequence[str] = ()
         ) -> Callable[[_Part[_P]], _Part[_P]]:  # fmt: skip
    """Decorator of a part of a page: where a table is missing, the part shows the reason alone.

    Parameters
    ----------
    *measurements, table, verdicts
        Where the reason is looked for: see `Source.why`.
    """

    def decorate(draw: _Part[_P]) -> _Part[_P]:
        @wraps(draw)
        def drawn(source: Source, /, *args: _P.args, **kwargs: _P.kwargs) -> str:
            try:
                return draw(source, *args, **kwargs)
            except Missing as lack:
                return missing(source.why(lack, *measurements, table=table, verdicts=verdicts))

        return drawn

    return decorate


def plot(name: str, picture: Picture, label: str) -> str:
    """Box that the page's script draws a picture into, and its data."""
    height = int(picture["layout"]["height"])
    return (
        f'<div class="plot" id="plot-{name}" data-height="{height}" role="img" '
        f'aria-label="{html_text(label)}"></div>'
        f'<script type="application/json" id="data-{name}">{json_island(picture)}</script>'
    )


def figure(
    name: str, picture: Picture, caption: str | Caption, entries: Sequence[Entry | Drawn] = ()
) -> str:
    """Picture under its key and above its caption."""
    legend = key(entries) if entries else ""
    if isinstance(caption, Caption):
        return f"<figure>{legend}{plot(name, picture, caption.seen)}{caption.html}</figure>"
    return (
        f"<figure>{legend}{plot(name, picture, caption)}"
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
    )


def shown(source: Source, name: str, drawing: Figure) -> str:
    """Figure of a run as HTML, or why there is none; ``name`` is that of its box on the page."""
    try:
        picture = drawing.draw(source)
        return figure(name, picture, drawing.caption(source), drawing.entries(source))
    except Missing as lack:
        return missing(drawing.why(source, lack))


def fact_list(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values in a box; nothing where there are none."""
    rows = "".join(
        f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>" for name, value in facts
    )
    return f'<div class="numbers"><dl>{rows}</dl></div>' if rows else ""


def fold(summary: str, content: str, *, opened: bool = False) -> str:
    """Content (HTML) behind a line to click on; ``summary`` is text."""
    state = " open" if opened else ""
    return f"<details{state}><summary>{html_text(summary)}</summary>{content}</details>"
