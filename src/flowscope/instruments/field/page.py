"""The page of a run about the field."""

from flowscope.instruments.field import INSTRUMENT
from flowscope.instruments.field.budget.figures import FIGURES as BUDGET
from flowscope.instruments.field.budget.figures import budget_section
from flowscope.instruments.field.forecast.figures import FIGURES as FORECAST
from flowscope.instruments.field.forecast.figures import forecast_section
from flowscope.lab.display.pages import declared_page
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    return [
        ("budget", "What does each block do to the tokens?", budget_section),
        ("forecast", "What does a change of a block cost?", forecast_section),
    ]


PAGE = declared_page(INSTRUMENT, kind="field", sections=_sections, figures={**BUDGET, **FORECAST})
"""How a run about the field is shown."""
