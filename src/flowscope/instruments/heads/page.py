"""The page of a run about the attention heads of a model."""

from collections.abc import Mapping
from functools import partial

from flowscope.instruments.heads import INSTRUMENT
from flowscope.instruments.heads.dials import figures as dials
from flowscope.instruments.heads.diffusion_attention.figures import identities_section
from flowscope.instruments.heads.geometry import SHARPNESS
from flowscope.instruments.heads.geometry import figures as geometry
from flowscope.instruments.heads.labels import labels_in_words
from flowscope.instruments.heads.portrait.figures import viewer_section
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Fact, Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    """Sections of the page of a run of the heads, in order."""
    return [
        ("irreversibility", "How irreversible is each head?", geometry.irreversibility_section),
        ("head", "Inspect a head", viewer_section),
        ("furthest", geometry.furthest_heading(source), geometry.furthest_section),
        ("dials", "What the dials do", dials.dials_section),
    ]


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
    """How many heads carry each label, and how many labels may be wrong."""
    table = source.rows("labels", "label", "heads", "heads_joint", "expected_wrong")
    if len(table):
        return labels_in_words(table.to_dict("records"))
    labels = geometry.label_counts(source)
    if not labels:
        return ""
    shown = ", ".join(f"{label} {number}" for label, number in labels.items())
    return f"{count(sum(labels.values()), 'head')}: {shown}."


PAGE = declared_page(
    INSTRUMENT,
    kind="heads",
    sections=_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    silent=geometry.silent_heads,
    scripts=("head_map.js", "portrait.js"),
    figures={**geometry.FIGURES, **dials.FIGURES},
    basis=SHARPNESS.name,
    counted="prompts",
)
"""How a run about the heads is shown."""
