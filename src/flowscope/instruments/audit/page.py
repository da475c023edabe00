"""The page of a depth audit."""

from functools import partial

from flowscope.instruments.audit import INSTRUMENT
from flowscope.instruments.audit.claims import VARIATION
from flowscope.instruments.audit.figures.sections import FIGURES, body_sections
from flowscope.instruments.audit.figures.spans import Span, spans
from flowscope.lab.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Absence, Fact, Section

__all__ = ["PAGE"]


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain audit has no such section."""
    return [claims_section(partial(claims, table="track_t", paper="000"))] if source.study else []


def _facts(source: Source) -> list[Fact]:
    layers = column(source.rows("layers", "layer"), "layer")
    return [("layers", numeral(max(layers), 6))] if layers else []


def _remark(source: Source) -> str:
    """How many layers the gate lets through."""
    stretches = spans(source)
    total = sum(span.last - span.first + 1 for span in stretches)
    passing = sum(span.last - span.first + 1 for span in stretches if span.passes)
    return f"{passing} of {total} layers can be read as a flow." if total else ""


def _withheld(source: Source) -> list[Absence]:
    """Stretches of depth that did not pass the gate."""
    return [
        (f"{_layers(span)} ({span.kind or 'segment'})", span.because or "no reason was recorded")
        for span in spans(source)
        if not span.passes
    ]


def _layers(span: Span) -> str:
    if span.first == span.last:
        return f"layer {span.first}"
    return f"layers {span.first}–{span.last}"


PAGE = declared_page(
    INSTRUMENT,
    kind="depth audit",
    sections=body_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    withheld=_withheld,
    figures=FIGURES,
    basis=VARIATION.name,
    symbols={"τ": "temperature by which the logits are divided; 1: as the model is"},
)
"""How a run of the depth audit is shown."""
