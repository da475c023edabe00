"""The page of a run about the cloud of tokens."""

from functools import partial

from flowscope.instruments.latent import INSTRUMENT
from flowscope.instruments.latent.entropy.figures import FIGURES as ENTROPY
from flowscope.instruments.latent.entropy.figures import entropy_section
from flowscope.instruments.latent.stable_alignment.figures import FIGURES as STUDY
from flowscope.instruments.latent.stable_alignment.figures import study_sections
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    sections: list[Section] = [("entropy", "How widely are the tokens spread?", entropy_section)]
    return [*study_sections(source), *sections] if source.study else sections


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain run has no such section."""
    if not source.study:
        return []
    return [claims_section(partial(claims, table="stable_alignment", paper="003"))]


PAGE = declared_page(
    INSTRUMENT,
    kind="latent",
    sections=_sections,
    opening=_opening,
    figures={**ENTROPY, **STUDY},
)
"""How a run about the cloud of tokens is shown."""
