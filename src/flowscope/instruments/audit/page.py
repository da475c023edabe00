"""The page of a depth audit."""

from functools import partial

from flowscope.instruments.audit import INSTRUMENT
from flowscope.instruments.audit.adequacy import sections as adequacy
from flowscope.instruments.audit.contraction import sections as contraction
from flowscope.instruments.audit.exits import sections as exits
from flowscope.instruments.audit.locking import sections as locking
from flowscope.instruments.audit.rotation import sections as rotation
from flowscope.instruments.audit.spans import Span, spans
from flowscope.instruments.audit.tokens import sections as tokens
from flowscope.instruments.audit.track_t import figures as track_t
from flowscope.instruments.audit.variation import VARIATION
from flowscope.instruments.audit.variation import sections as variation
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Absence, Fact, Section

__all__ = ["FIGURES", "PAGE"]


FIGURES = {
    **variation.FIGURES,
    **locking.FIGURES,
    **tokens.FIGURES,
    **contraction.FIGURES,
    **adequacy.FIGURES,
    **exits.FIGURES,
    **rotation.FIGURES,
    **track_t.SWEEP_FIGURES,
}
"""Figures of a depth audit by the name of their file."""

_SWEEPS: list[Section] = [
    ("identification", "Does depth settle?", track_t.identification_section),
    ("temperature", "Temperature of the output", track_t.temperature_section),
]
"""What only a study measures."""


def _sections(source: Source) -> list[Section]:
    """Sections of the page in order."""
    return [
        ("map", "Where each token is decided", tokens.map_section),
        ("variation", "How far each layer moves the output", variation.variation_section),
        ("locking", "Locking", locking.locking_section),
        ("depth", "Certainty along depth", tokens.certainty_section),
        ("heads", "Attention entropy of every head", contraction.heads_section),
        (
            "curvature",
            "Does attention bring its points closer together?",
            contraction.curvature_section,
        ),
        ("evolution", "Is the output path a descent?", contraction.evolution_section),
        ("flow", "Can a flow predict the layers?", adequacy.flow_section),
        ("last-layers", "How much do the last layers contribute?", exits.depth_loss_section),
        ("rotation", "Does the motion rotate?", rotation.rotation_section),
        *(_SWEEPS if source.study else ()),
        ("path", "One path on the simplex", tokens.path_section),
        ("jumps", "Jumps and segments", variation.jumps_section),
    ]


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
    sections=_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    withheld=_withheld,
    figures=FIGURES,
    basis=VARIATION.name,
    symbols={"τ": "temperature by which the logits are divided; 1: as the model is"},
)
"""How a run of the depth audit is shown."""
