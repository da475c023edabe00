"""Cards that a notebook shows: HTML with its styles inside, for light and dark backgrounds.

A card takes the colours of the notebook (``inherit``, transparent) and adds only chips with their
own ground. Everything that comes from a run or a model is escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from flowscope.records.verdict_text import outcome_text
from flowscope.report.escaping import html_text

__all__ = [
    "Chip",
    "card",
    "chip",
    "fact_table",
    "finding_list",
    "text_card",
    "verdict_table",
]

Chip = tuple[str, str]
"""Text of a chip and its look: holds, fails, uninformative, abstains or gate."""

_TEXT_WIDTH = 100
_LINE = "rgba(128,128,128,.4)"
_CARD = (
    f"border:1px solid {_LINE};border-radius:8px;padding:12px 16px;max-width:60em;"
    "font:14px/1.45 system-ui,'Segoe UI',Roboto,Arial,sans-serif;color:inherit;"
    "background:transparent;text-align:left;overflow-wrap:anywhere"
)
_GROUNDS = {
    "holds": "#00795a",
    "fails": "#b34700",
    "uninformative": "#6f2a8c",
    "abstains": "#59636e",
    "gate": "#2b5f8a",
}
_CELL = (
    "padding:3px 12px 3px 0;text-align:left;vertical-align:top;border:0;background:transparent;"
    "color:inherit;white-space:normal"
)
_SMALL = "opacity:.75;font-size:13px"


def card(kind: str, title: str, chips: Iterable[Chip], *parts: str) -> str:
    """A card: its kind, its title with chips, then parts that are HTML already.

    Parameters
    ----------
    kind, title
        Text above the title, and the title.
    chips
        Chips behind the title.
    *parts
        HTML of the content; an empty part is left out.
    """
    marks = " ".join(chip(text, look) for text, look in chips)
    return (
        f'<div style="{_CARD}"><div style="{_SMALL}">flowscope · {html_text(kind)}</div>'
        f'<div style="font-size:17px;font-weight:600;margin:0 0 6px">{html_text(title)} {marks}'
        f"</div>{''.join(parts)}</div>"
    )


def text_card(kind: str, title: str, facts: Iterable[tuple[str, str]]) -> str:
    """The same as plain text, for a terminal: a heading, then names and values in two columns.

    >>> print(text_card("model · causal_lm", "language", [("class", "LlamaForCausalLM")]))
    model · causal_lm: language
      class  LlamaForCausalLM
    """
    pairs = list(facts)
    width = max((len(name) for name, _ in pairs), default=0)
    lines = (
        textwrap.fill(
            f"{name:{width}}  {value}",
            _TEXT_WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
        )
        for name, value in pairs
    )
    return "\n".join([f"{kind}: {title}", *lines])


def chip(text: str, look: str) -> str:
    """A word on a coloured ground."""
    return (
        f'<span style="display:inline-block;padding:0 8px;border-radius:99px;font-size:12.5px;'
        f'font-weight:600;white-space:nowrap;color:#fff;background:{_GROUNDS[look]}">'
        f"{html_text(text)}</span>"
    )


def finding_list(findings: Sequence[Mapping[str, Any]]) -> str:
    """Findings as a numbered list, each with what to do next; empty where there are none."""
    items = "".join(
        f'<li style="margin:0 0 6px">{html_text(finding["text"])}'
        f'<div style="opacity:.85"><b>→</b> {html_text(finding["next"])}</div></li>'
        for finding in findings
    )
    return f'<ol style="margin:0 0 8px;padding-left:1.6em">{items}</ol>' if items else ""


def verdict_table(
    rows: Iterable[tuple[str, str, str, str]],
    gates: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """Verdicts as a table of label, outcome with strength, and reason.

    Parameters
    ----------
    rows
        Label, outcome, strength and reason of each verdict.
    gates
        Labels of the verdicts that are gates, and what each is called open and closed: they say
        what may be read, neither good nor bad.
    """

    def marked(label: str, outcome: str, strength: str) -> str:
        gate = gates.get(label)
        words = outcome_text(outcome, gate)
        return chip(f"{words} ({strength})" if strength else words, "gate" if gate else outcome)

    lines = "".join(
        f'<tr style="background:transparent"><th style="{_CELL};white-space:nowrap">'
        f'{html_text(label)}</th><td style="{_CELL}">'
        f"{marked(label, outcome, strength)}</td>"
        f'<td style="{_CELL}">{html_text(because)}</td></tr>'
        for label, outcome, strength, because in rows
    )
    return _table(lines)


def fact_table(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values as a table."""
    lines = "".join(
        f'<tr style="background:transparent"><th style="{_CELL};font-weight:400;opacity:.75;'
        f'white-space:nowrap">{html_text(name)}</th>'
        f'<td style="{_CELL}">{html_text(value)}</td></tr>'
        for name, value in facts
    )
    return _table(lines)


def _table(lines: str) -> str:
    if not lines:
        return ""
    style = f"border-collapse:collapse;border:0;border-top:1px solid {_LINE};margin:0 0 6px"
    return f'<table style="{style};color:inherit;background:transparent">{lines}</table>'
