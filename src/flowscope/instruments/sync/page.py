"""The page of a run of coupled replicas."""

from flowscope.instruments.sync import INSTRUMENT
from flowscope.instruments.sync.claims import ORDER
from flowscope.instruments.sync.figures.sections import FIGURES, replica_sections
from flowscope.instruments.sync.figures.tables import FEW_PAIRS, replica_facts, silent_replicas
from flowscope.lab.pages import declared_page
from flowscope.report.captions import small_remark
from flowscope.report.source import Source
from flowscope.report.spec import Fact

__all__ = ["PAGE"]


def _facts(source: Source) -> list[Fact]:
    return [(name, value) for name, value in replica_facts(source) if name != "encoder"]


def _remark(source: Source) -> str:
    return small_remark(source, FEW_PAIRS)


PAGE = declared_page(
    INSTRUMENT,
    kind="coupled replicas",
    sections=replica_sections,
    facts=_facts,
    remark=_remark,
    silent=silent_replicas,
    scripts=("choices.js",),
    figures=FIGURES,
    basis=ORDER.name,
    counted="pairs",
    symbols={"τ": "step at which a pair commits: the midpoint of a fitted sigmoid"},
)
"""How a run of coupled replicas is shown."""
