"""Claims of a paper and what a study of it measured."""

from collections.abc import Callable

import pandas as pd

from flowscope.report.escaping import html_text
from flowscope.report.figure_html import fold
from flowscope.report.listings import listing
from flowscope.report.parts.chance import chance_of_claims
from flowscope.report.source import Source, words
from flowscope.report.spec import Section

__all__ = ["answer_chip", "claims", "claims_section"]

_ANSWERS = {
    "yes": ("holds", "✓"),
    "no": ("fails", "✕"),
    "cannot be told": ("abstains", "–"),
    "not measured": ("abstains", "○"),
    "partly": ("partly", "◐"),
    "abstains": ("abstains", "–"),
}
"""Answer to a claim: how its chip looks, and its sign."""


def claims(source: Source, table: str, paper: str, about: str = "transformers") -> str:
    """Table of a paper's claims, each with what was measured and whether they agree.

    Parameters
    ----------
    source
        The run.
    table
        Name of the table that holds the claims.
    paper
        Number of the paper.
    about
        What the paper makes its claims about.

    Raises
    ------
    Missing
        The run lacks the table.
    """
    frame = source.table(table, "says", "measured", "agrees")
    answers = words(frame, "agrees")
    parts = [f"{answer}: {answers.count(answer)}" for answer in _ANSWERS if answer in answers]
    columns = (words(frame, name) for name in ("item", "where", "says", "measured"))
    rows = "".join(_claim(paper, *row) for row in zip(*columns, answers, strict=True))
    rules = pd.DataFrame({"claim": words(frame, "item"), "rule": words(frame, "rule")})
    decided = listing(rules, "how each answer was decided")
    return (
        f"<p>Each row is a statement of the source ({paper}) about {about}, with the number that "
        "this run measured on this model. Does it agree? "
        f"{html_text(', '.join(parts))} (of {len(answers)}). "
        "The rule behind each answer is below the table.</p>"
        f"<p>{html_text(chance_of_claims(frame).sentence)}</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="claims of the source">'
        '<table class="listing claims"><thead><tr><th scope="col">claim</th>'
        f'<th scope="col">{paper} says</th><th scope="col">we measure</th>'
        f'<th scope="col">agrees?</th></tr></thead><tbody>{rows}</tbody></table></div>'
        + fold("How each answer was decided", decided)
        + f'<p class="source">Drawn from <a href="tables/{table}.csv">tables/{table}.csv</a>.</p>'
    )


def claims_section(content: Callable[[Source], str]) -> Section:
    """Section of a study that shows its claims, or why they are not there."""
    return ("claims", "What the source says, what we measure", content)


def answer_chip(answer: str) -> str:
    """Answer to a claim as a chip, with a sign that does not depend on colour."""
    look, sign = _ANSWERS.get(answer, ("abstains", "–"))
    return (
        f'<span class="chip {look}"><span aria-hidden="true">{sign}</span> '
        f"{html_text(answer or 'no answer')}</span>"
    )


def _claim(paper: str, item: str, where: str, says: str, measured: str, answer: str) -> str:
    place = f'<span class="where">{html_text(where)}</span>' if where else ""
    return (
        f'<tr><th scope="row">{html_text(item)}{place}</th>'
        f'<td data-label="{paper} says">{html_text(says)}</td>'
        f'<td data-label="we measure">{html_text(measured)}</td>'
        f'<td data-label="agrees?">{answer_chip(answer)}</td></tr>'
    )
