"""A figure as HTML: an empty box, its data as JSON beside it, a key in words, a caption."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowscope.records import Unavailable
from flowscope.report.escaping import html_text, json_island
from flowscope.report.theme import Picture

__all__ = ["Caption", "captioned", "fact_list", "figure", "fold", "key", "missing", "plot"]


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What is seen, what would be seen if nothing were there, what speaks against it, the basis."""

    seen: str
    null: str
    against: str
    basis: str

    @property
    def html(self) -> str:
        """The caption as HTML."""
        parts = {"Null.": self.null, "Would count against it.": self.against, "Basis.": self.basis}
        rest = "".join(
            f"<p><strong>{lead}</strong> {html_text(text)}</p>" for lead, text in parts.items()
        )
        return f"<figcaption><p>{html_text(self.seen)}</p>{rest}</figcaption>"


def missing(reason: Unavailable) -> str:
    """Paragraph that stands where a figure would."""
    return f'<p class="missing">Not shown: {html_text(reason.reason.rstrip("."))}.</p>'


def plot(name: str, picture: Picture, label: str) -> str:
    """Box that the page's script draws a picture into, and its data."""
    height = int(picture["layout"]["height"])
    return (
        f'<div class="plot" id="plot-{name}" data-height="{height}" role="img" '
        f'aria-label="{html_text(label)}"></div>'
        f'<script type="application/json" id="data-{name}">{json_island(picture)}</script>'
    )


def figure(name: str, picture: Picture | Unavailable, caption: str, legend: str = "") -> str:
    """Picture under its key and above its caption, or the reason there is none."""
    if isinstance(picture, Unavailable):
        return missing(picture)
    return (
        f"<figure>{legend}{plot(name, picture, caption)}"
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
    )


def captioned(name: str, picture: Picture | Unavailable, caption: Caption, legend: str = "") -> str:
    """Picture under its key and above a caption in parts, or the reason there is none."""
    if isinstance(picture, Unavailable):
        return missing(picture)
    return f"<figure>{legend}{plot(name, picture, caption.seen)}{caption.html}</figure>"


def fact_list(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values in a box; nothing where there are none."""
    rows = "".join(
        f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>" for name, value in facts
    )
    return f'<div class="numbers"><dl>{rows}</dl></div>' if rows else ""


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Key of a figure: the class of a swatch and what it stands for, each."""
    parts = "".join(
        f'<li><span class="swatch {shape}" aria-hidden="true"></span>{html_text(label)}</li>'
        for shape, label in entries
    )
    return f'<ul class="key">{parts}</ul>'


def fold(summary: str, content: str, *, opened: bool = False) -> str:
    """Content (HTML) behind a line to click on; ``summary`` is text."""
    state = " open" if opened else ""
    return f"<details{state}><summary>{html_text(summary)}</summary>{content}</details>"
