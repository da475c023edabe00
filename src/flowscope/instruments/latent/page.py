"""The page of a run about the cloud of tokens."""

from functools import partial

from flowscope.instruments.latent import INSTRUMENT
from flowscope.instruments.latent.entropy.figures import FIGURES as ENTROPY
from flowscope.instruments.latent.entropy.figures import entropy_section
from flowscope.instruments.latent.particles.figures import FIGURES as PARTICLES
from flowscope.instruments.latent.particles.figures import particle_section
from flowscope.instruments.latent.rate.figures import FIGURES as RATE
from flowscope.instruments.latent.rate.figures import rate_section
from flowscope.instruments.latent.stable_alignment.figures import FIGURES as STUDY
from flowscope.instruments.latent.stable_alignment.figures import study_sections
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    sections: list[Section] = [
        ("entropy", "How widely are the tokens spread?", entropy_section),
        ("rate", "What flow changes their entropy?", rate_section),
        ("particles", "Does attention move tokens as particles?", particle_section),
    ]
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
    figures={**ENTROPY, **RATE, **PARTICLES, **STUDY},
)
"""How a run about the cloud of tokens is shown."""
