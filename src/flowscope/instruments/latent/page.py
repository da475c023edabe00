"""The page of a run about the cloud of tokens."""

from flowscope.instruments.latent import INSTRUMENT
from flowscope.instruments.latent.entropy.figures import FIGURES as ENTROPY
from flowscope.instruments.latent.entropy.figures import entropy_section
from flowscope.instruments.latent.particles.figures import FIGURES as PARTICLES
from flowscope.instruments.latent.particles.figures import particle_section
from flowscope.instruments.latent.rate.figures import FIGURES as RATE
from flowscope.instruments.latent.rate.figures import rate_section
from flowscope.lab.display.pages import declared_page
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    return [
        ("entropy", "How widely are the tokens spread?", entropy_section),
        ("rate", "What flow changes their entropy?", rate_section),
        ("particles", "Does attention move tokens as particles?", particle_section),
    ]


PAGE = declared_page(
    INSTRUMENT, kind="latent", sections=_sections, figures={**ENTROPY, **RATE, **PARTICLES}
)
"""How a run about the cloud of tokens is shown."""
