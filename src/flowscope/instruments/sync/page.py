"""The page of a run of coupled replicas."""

from flowscope.instruments.sync.figures.pictures import REPLICA_PICTURES
from flowscope.instruments.sync.figures.sections import replica_sections
from flowscope.instruments.sync.figures.tables import FEW_PAIRS, replica_facts, silent_replicas
from flowscope.report.small_runs import small_remark
from flowscope.report.source import Source
from flowscope.report.spec import Fact, Page

__all__ = ["PAGE"]

_TABLES = {
    "agreement": "how alike two replicas end, by the step at which they were let go",
    "commitment": "the step at which each kind of agreement sets in",
    "commitment_gap": "how many steps fine detail commits after coarse structure",
    "internal_gap": "the gap between leading and trailing modes, by layer",
    "energies": "the energy of leading and trailing modes over the reverse steps",
}
_EXTRAS = {
    "coupling_effect": "how much the coupling moves the step at which two replicas commit",
    "propagation": "how one block multiplies a difference, and through which channel",
    "mode_commitment": "when each mode was predicted to commit and when it did",
}
_STUDY_TABLES = {"synchronization_gap": "what the source says beside what was measured"}
_QUESTIONS = {
    "R1": "Is the rough layout of an image decided at an earlier step than its fine detail?",
    "R2": "Without any coupling, do the weak directions of difference inside the network keep "
    "more of their energy than the strong ones? Beside it: start and end of a pair "
    "exchanged at random.",
}


def _facts(source: Source) -> list[Fact]:
    return [(name, value) for name, value in replica_facts(source) if name != "encoder"]


def _remark(source: Source) -> str:
    return small_remark(source, FEW_PAIRS)


PAGE = Page(
    command="sync",
    telling=(*_TABLES, *_EXTRAS, *_STUDY_TABLES),
    kind="coupled replicas",
    tables=_TABLES,
    extras=_EXTRAS,
    study_tables=_STUDY_TABLES,
    arrays=("strip",),
    sections=replica_sections,
    facts=_facts,
    remark=_remark,
    silent=silent_replicas,
    scripts=("choices.js",),
    pictures=REPLICA_PICTURES,
    questions=_QUESTIONS,
    basis="R1",
    units="pairs",
    counted="pairs",
)
"""How a run of coupled replicas is shown."""
