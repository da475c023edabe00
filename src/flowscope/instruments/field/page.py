"""The page of a run about the field."""

from functools import partial

from flowscope.instruments.field import INSTRUMENT
from flowscope.instruments.field.budget.figures import FIGURES as BUDGET
from flowscope.instruments.field.budget.figures import budget_section, spectra_section
from flowscope.instruments.field.collapse.figures import FIGURES as COLLAPSE
from flowscope.instruments.field.collapse.figures import collapse_section
from flowscope.instruments.field.forecast.figures import FIGURES as FORECAST
from flowscope.instruments.field.forecast.figures import forecast_section
from flowscope.instruments.field.interventions.figures import FIGURES as INTERVENTIONS
from flowscope.instruments.field.interventions.figures import interventions_section
from flowscope.instruments.field.jacobians.figures import FIGURES as JACOBIANS
from flowscope.instruments.field.jacobians.figures import jacobians_section
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
        ("collapse", "Do tokens become alike?", collapse_section),
        ("spectra", "Is attention a low-pass filter?", spectra_section),
        ("jacobians", "Which blocks are stiff?", jacobians_section),
        ("forecast", "What does a change of one block cost?", forecast_section),
        ("interventions", "What does a change of all blocks cost?", interventions_section),
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
    figures={**BUDGET, **COLLAPSE, **JACOBIANS, **FORECAST, **INTERVENTIONS, **STUDY},
)
"""How a run about the field is shown."""
