"""Tables of a run of replicas: the claims of 004, when each scale commits, who is silent."""

from collections.abc import Mapping

import pandas as pd

from flowscope.instruments.sync.config import SMALL_RUN
from flowscope.instruments.sync.figures.series import Series, class_names, rows_of, series_of
from flowscope.records import Missing
from flowscope.report.appendix import place_text, silent_rows
from flowscope.report.claims import answer_chip, claims
from flowscope.report.escaping import html_text, shortened
from flowscope.report.numerals import bounds, cell_text, numeral
from flowscope.report.rows import rows_where
from flowscope.report.source import Source, column, words

__all__ = [
    "FEW_PAIRS",
    "commitment_listing",
    "effect_listing",
    "replica_claims",
    "replica_facts",
    "silent_replicas",
    "without_midpoint",
]

FEW_PAIRS = SMALL_RUN
"""Pairs below which a run is called small."""

_TIMES = {"feature": "τ spec (features)", "coarse": "τ coarse", "fine": "τ fine"}
_ANSWERS = ("yes", "partly", "no", "abstains")
_PLACES = {
    "commitment": ("class", "g", "measure"),
    "commitment_gap": ("class", "g"),
    "internal_gap": ("g", "layer"),
    "mode_commitment": ("g", "layer", "mode"),
}


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


def replica_facts(source: Source) -> list[tuple[str, str]]:
    """Size of the measurement, as name and value."""
    measured = source.setting("measured")
    known = dict(measured) if isinstance(measured, Mapping) else {}
    facts = [
        (text, str(known[name]))
        for name, text in {
            "pairs": "pairs",
            "steps": "reverse steps",
            "layers": "layers",
            "tokens": "tokens",
        }.items()
        if name in known
    ]
    couplings = [one.g for one in series_of(source, *source.tables) if not one.control]
    facts += [("g", ", ".join(f"{g:g}" for g in couplings))] * bool(couplings)
    classes = known.get("classes")
    if isinstance(classes, list | tuple) and classes:
        facts += [("class" if len(classes) == 1 else "classes", ", ".join(map(str, classes)))]
    return facts + ([("encoder", str(known["encoder"]))] if "encoder" in known else [])


def commitment_listing(source: Source) -> pd.DataFrame:
    """Midpoints of all three curves and the gap between the scales, one row per coupling."""
    frame = source.table("commitment", "label", "g", "measure", "midpoint")
    gaps = source.rows("commitment_gap", "label", "g", "gap")
    classes = class_names(source) or dict.fromkeys(sorted(set(column(frame, "label"))), "")
    shown: list[dict[str, str]] = []
    for label, name in classes.items():
        own = rows_where(frame, "label", label)
        for one in series_of(source, "commitment"):
            rows = rows_of(own, one)
            if rows.empty:
                continue
            times = {
                title: _reading(rows_where(rows, "measure", measure), "midpoint")
                for measure, title in _TIMES.items()
            }
            gap = _gap(gaps, label, one)
            shown.append(
                {"class": shortened(name, 24), "coupling": one.label, **times, "gap (steps)": gap}
            )
    if not shown:
        raise Missing("the table “commitment” names no coupling")
    listed = pd.DataFrame(shown)
    return listed if len(classes) > 1 else listed.drop(columns="class")


def effect_listing(frame: pd.DataFrame) -> pd.DataFrame:
    """Differences of the midpoint between couplings, each with its interval or the outcome."""
    rows = [frame.iloc[[k]] for k in range(len(frame))]
    return pd.DataFrame(
        {
            "class": [shortened(word, 24) for word in words(frame, "class")],
            "of τ spec": words(frame, "kind"),
            "steps later": [_reading(row, "difference") for row in rows],
            "because": words(frame, "because"),
        }
    )


def _gap(gaps: pd.DataFrame, label: float, one: Series) -> str:
    if gaps.empty:
        return "not in this run"
    return _reading(rows_of(rows_where(gaps, "label", label), one), "gap")


def _reading(rows: pd.DataFrame, name: str) -> str:
    """Value with its interval; without one, the word that says why."""
    if rows.empty:
        return "–"
    status = words(rows, "status")[0]
    value, low, high = (column(rows, part)[0] for part in (name, "low", "high"))
    if status not in ("ok", ""):
        return status
    return f"{numeral(value)} {bounds(low, high)}".strip()


def without_midpoint(source: Source) -> pd.DataFrame:
    """Curves and gaps without a number, each with its reason."""
    found = []
    for table, what in {"commitment": "", "commitment_gap": "gap"}.items():
        frame = source.tables.get(table, pd.DataFrame())
        for k, status in enumerate(words(frame, "status")):
            if status in ("ok", ""):
                continue
            row = frame.iloc[[k]]
            measure = words(row, "measure")[0] or what
            found.append({"class": words(row, "class")[0], "coupling": _coupling(row),
                          "of": measure, "outcome": status,
                          "because": words(row, "because")[0]})  # fmt: skip
    return pd.DataFrame(found)


def _coupling(row: pd.DataFrame) -> str:
    control = words(row, "control")[0] in ("True", "true", "1", "1.0")
    return "control" if control else f"g = {column(row, 'g')[0]:g}"


def silent_replicas(source: Source) -> list[tuple[str, str]]:
    """Rows that abstained, by table and reason; "no transition" is an outcome, not an absence."""
    return silent_rows(source, _PLACES, _place)


def _place(row: pd.DataFrame, name: str) -> str:
    return _coupling(row) if name == "g" else place_text(row, name)
