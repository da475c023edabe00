"""The identities of source 002 on the page of its study."""

from flowscope.report.claims import answer_chip
from flowscope.report.escaping import html_text
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column, words

__all__ = ["identities_section"]


def identities_section(source: Source) -> str:
    """Identities of the source with the largest error over all heads."""
    frame = source.table("identities", "identity", "error", "holds")
    texts = [words(frame, name) for name in ("identity", "formula")]
    figures = [column(frame, name) for name in ("error", "bound", "heads")]
    answers = [_ANSWER.get(word, word) for word in words(frame, "holds")]
    rows = "".join(_identity(*row) for row in zip(*texts, *figures, answers, strict=True))
    names = ("identity", "largest error", "bound", "heads", "holds?")
    heading = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        "<p>Equalities that the source proves, checked on the scores of this model: the largest "
        "error over all heads, and the bound that rounding allows.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="identities of the source">'
        f'<table class="listing claims"><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>"
        '<p class="source">Drawn from <a href="tables/identities.csv">tables/identities.csv</a>.'
        "</p>"
    )


_ANSWER = {"True": "yes", "False": "no", "": "not measured"}


def _identity(
    name: str, formula: str, error: float, bound: float, heads: float, answer: str
) -> str:
    place = f'<span class="where">{html_text(formula)}</span>' if formula else ""
    return (
        f'<tr><th scope="row">{html_text(name)}{place}</th>'
        f'<td data-label="largest error">{numeral(error)}</td>'
        f'<td data-label="bound">{numeral(bound)}</td>'
        f'<td data-label="heads">{numeral(heads, 6)}</td>'
        f'<td data-label="holds?">{answer_chip(answer)}</td></tr>'
    )
