"""The page of a run about the attention heads of a model."""

from collections.abc import Mapping

from flowscope.instruments.heads.figures.pictures import GEOMETRY_PICTURES
from flowscope.instruments.heads.figures.sections import geometry_sections, identities_section
from flowscope.instruments.heads.figures.tables import label_counts, silent_heads
from flowscope.records import Unavailable
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Fact, Page, Section

__all__ = ["PAGE"]

_TABLES = {
    "geometry": "how irreversible each head is",
    "sentence": "the tokens of the sentence that the heads are shown on",
    "dials": "the loss with one part of the scores turned up or down",
}
_STUDY_TABLES = {
    "diffusion_attention": "what the source says beside what was measured",
    "identities": "the identities of the source and how exactly they hold",
}
_QUESTIONS = {
    "M1": "Does a walk that follows attention from token to token go round, so that it could be "
    "told from the same walk run backwards? Beside it: the same network before training, which "
    "looks nearly everywhere alike and so goes nowhere.",
    "M2": "Does it go round more than a walk whose steps are as decided but unrelated? Beside it: "
    "the same rows with the keys permuted.",
}


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain run has no such section."""
    if not source.study:
        return []
    return [
        claims_section(claims(source, "diffusion_attention", "002")),
        ("identities", "Do its identities hold?", identities_section(source)),
    ]


def _facts(source: Source) -> list[Fact]:
    """Size of the model and of the measurement, and which chain was walked."""
    chain, measured = source.setting("chain"), source.setting("measured")
    facts: list[Fact] = []
    frame = source.table("geometry", "layer", "head")
    if not isinstance(frame, Unavailable):
        facts += [("layers", numeral(len(set(column(frame, "layer"))), 6))]
        facts += [("heads", numeral(len(frame), 6))]
    if isinstance(measured, Mapping):
        names = {"prompts": "prompts", "tokens_measured": "tokens"}
        facts += [(text, str(measured[name])) for name, text in names.items() if name in measured]
    return facts + ([("chain", chain)] if isinstance(chain, str) else [])


def _remark(source: Source) -> str:
    """How many heads carry each label."""
    labels = label_counts(source)
    if not labels:
        return ""
    shown = ", ".join(f"{label} {number}" for label, number in labels.items())
    return f"{count(sum(labels.values()), 'head')}: {shown}."


PAGE = Page(
    command="heads",
    telling=(*_TABLES, *_STUDY_TABLES),
    kind="heads",
    tables=_TABLES,
    study_tables=_STUDY_TABLES,
    arrays=("portrait",),
    sections=geometry_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    silent=silent_heads,
    scripts=("head_map.js", "portrait.js"),
    pictures=GEOMETRY_PICTURES,
    questions=_QUESTIONS,
    basis="M1",
    counted="prompts",
)
"""How a run about the heads is shown."""
