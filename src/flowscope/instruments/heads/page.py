"""The page of a run about the attention heads of a model."""

from collections.abc import Mapping
from functools import partial

from flowscope.instruments.heads import INSTRUMENT
from flowscope.instruments.heads.claims import TRAINED
from flowscope.instruments.heads.figures.sections import (
    FIGURES,
    geometry_sections,
    identities_section,
)
from flowscope.instruments.heads.figures.tables import label_counts, silent_heads
from flowscope.lab.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Fact, Section

__all__ = ["PAGE"]


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain run has no such section."""
    if not source.study:
        return []
    return [
        claims_section(partial(claims, table="diffusion_attention", paper="002")),
        ("identities", "Do its identities hold?", identities_section),
    ]


def _facts(source: Source) -> list[Fact]:
    """Size of the model and of the measurement, and which chain was walked."""
    chain, measured = source.setting("chain"), source.setting("measured")
    facts: list[Fact] = []
    frame = source.rows("geometry", "layer", "head")
    if len(frame):
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


PAGE = declared_page(
    INSTRUMENT,
    kind="heads",
    sections=geometry_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    silent=silent_heads,
    scripts=("head_map.js", "portrait.js"),
    figures=FIGURES,
    basis=TRAINED.name,
    counted="prompts",
)
"""How a run about the heads is shown."""
