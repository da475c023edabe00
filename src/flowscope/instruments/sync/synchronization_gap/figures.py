"""The claims of source 004 on the page of its study."""

import pandas as pd

from flowscope.report.claims import answer_chip, claims
from flowscope.report.escaping import html_text
from flowscope.report.numerals import cell_text
from flowscope.report.source import Source, words

__all__ = ["replica_claims"]


_ANSWERS = ("yes", "partly", "no", "abstains")


def replica_claims(source: Source) -> str:
    """Table of what 004 says, each with what was measured and whether they agree.

    Statements with their rule, as every study writes them, are shown as on its page.
    """
    if "says" in source.tables.get("synchronization_gap", pd.DataFrame()):
        return claims(source, "synchronization_gap", "004")
    frame = source.table("synchronization_gap", "statement", "measured", "agrees")
    answers = words(frame, "agrees")
    parts = [f"{answer}: {answers.count(answer)}" for answer in _ANSWERS if answer in answers]
    names = ("claim", "statement", "expected", "measured", "interval", "n", "because")
    columns = ([cell_text(word) for word in words(frame, name)] for name in names)
    rows = "".join(_claim(*row) for row in zip(*columns, answers, strict=True))
    table = "tables/synchronization_gap.csv"
    return (
        "<p>Each row is a statement of the source (004) about a large diffusion transformer, "
        "with what this run measured on this model. Another model may differ: “no” means that "
        f"this model does. Does it agree? {html_text(', '.join(parts))} "
        f"(of {len(answers)}).</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="claims of the source">'
        '<table class="listing claims"><thead><tr><th scope="col">claim</th>'
        '<th scope="col">004 says</th><th scope="col">we measure on this model</th>'
        f'<th scope="col">agrees?</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="source">Drawn from <a href="{table}">{table}</a>.</p>'
    )


def _claim(
    item: str, says: str, expected: str, measured: str, interval: str, n: str, why: str, answer: str
) -> str:
    def small(text: str) -> str:
        return f'<span class="where">{html_text(text)}</span>' if text else ""

    pairs = f"n = {n} pairs" if n and n != "–" else ""
    basis = ", ".join(part for part in (f"interval {interval}" if interval else "", pairs) if part)
    return (
        f'<tr><th scope="row">{html_text(item)}</th>'
        f'<td data-label="004 says">{html_text(says)}{small(expected)}</td>'
        f'<td data-label="we measure on this model">{html_text(measured or "–")}{small(basis)}'
        f'{small(why)}</td><td data-label="agrees?">{answer_chip(answer)}</td></tr>'
    )
