"""The page of a run about the field."""

from functools import partial

from flowscope.instruments.field import INSTRUMENT
from flowscope.instruments.field.budget.figures import FIGURES as BUDGET
from flowscope.instruments.field.budget.figures import budget_section
from flowscope.instruments.field.forecast.figures import FIGURES as FORECAST
from flowscope.instruments.field.forecast.figures import forecast_section
from flowscope.instruments.field.pde_view.figures import FIGURES as STUDY
from flowscope.instruments.field.pde_view.figures import study_sections
from flowscope.lab.display.pages import declared_page
from flowscope.report.claims import claims, claims_section
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    if source.study:
        return study_sections(source)
    return [
        ("budget", "What does each block do to the tokens?", budget_section),
        ("forecast", "What does a change of a block cost?", forecast_section),
    ]


def _opening(source: Source) -> list[Section]:
    """What the source says, first of all; a plain run has no such section."""
    if not source.study:
        return []
    return [claims_section(partial(claims, table="pde_view", paper="001"))]


PAGE = declared_page(
    INSTRUMENT,
    kind="field",
    sections=_sections,
    opening=_opening,
    figures={**BUDGET, **FORECAST, **STUDY},
)
"""How a run about the field is shown."""
