"""The page of a depth audit."""

from flowscope.instruments.audit.figures.pictures import PICTURES
from flowscope.instruments.audit.figures.sections import body_sections
from flowscope.instruments.audit.figures.spans import Span, spans
from flowscope.records import Unavailable
from flowscope.report.claims import claims, claims_section
from flowscope.report.numerals import numeral
from flowscope.report.source import Source, column
from flowscope.report.spec import Absence, Fact, Page, Section

__all__ = ["PAGE"]

_TABLES = {
    "layers": "every quantity along depth",
    "segments": "the segments of the depth and their gate",
    "jumps": "the steps that are too large to be part of a segment",
    "locking": "how far a step moves the output, by tail mass",
    "locking_depth": "the layer from which the top token never changes",
    "tokens": "the token-by-layer map",
    "heads": "attention entropy by layer and head",
    "simplex_path": "one path on the simplex",
    "curvature": "curvature of attention by layer and head",
    "curvature_response": "curvature under other temperatures and key norms",
    "evi": "the evolution variational inequality along the output path",
    "adequacy": "how well a fitted flow forecasts the layers of other prompts",
    "adequacy_clouds": "forecast and true states compared as clouds of points",
    "drifts": "the kinds of drift that were fitted",
    "overlay": "how far each layer moves the output beside what bounds it",
    "budget": "the error of the forecast beside the budget of each token",
    "depth_loss": "what the last layers of a language model are worth",
    "rotation": "the share of the motion that turns, by layer",
}
_STUDY_TABLES = {
    "track_t": "what the source says beside what was measured",
    "identification": "the same weights with finer steps",
    "output_temperature": "mobility, loss and calibration by temperature of the output",
}
_QUESTIONS = {
    "P0": "Is the path through depth gentle enough to be read as a flow at all? "
    "Where it is not, every number that needs it is withheld.",
    "P1": "Does one smooth drift carry the distribution from layer to layer better than "
    "assuming that nothing moves?",
    "P2": "Once nearly all probability sits on one token, do later layers still move it?",
    "P3": "Do two tokens’ attention rows lie nearer to each other than the tokens themselves?",
    "P4": "Is the motion through depth transport, rather than turning that no potential explains?",
}


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain audit has no such section."""
    return [claims_section(claims(source, "track_t", "000"))] if source.study else []


def _facts(source: Source) -> list[Fact]:
    frame = source.table("layers", "layer")
    if isinstance(frame, Unavailable):
        return []
    return [("layers", numeral(max(column(frame, "layer")), 6))]


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


PAGE = Page(
    command="audit",
    telling=tuple(name for name in _TABLES if name != "rotation"),
    kind="depth audit",
    tables=_TABLES,
    study_tables=_STUDY_TABLES,
    sections=body_sections,
    opening=_opening,
    facts=_facts,
    remark=_remark,
    withheld=_withheld,
    pictures=PICTURES,
    questions=_QUESTIONS,
    basis="P0",
)
"""How a run of the depth audit is shown."""
