"""The page of a run about the field."""

from flowscope.instruments.field import INSTRUMENT
from flowscope.instruments.field.budget.figures import FIGURES, budget_section
from flowscope.lab.display.pages import declared_page
from flowscope.report.source import Source
from flowscope.report.spec import Section

__all__ = ["PAGE"]


def _sections(source: Source) -> list[Section]:
    return [("budget", "What does each block do to the tokens?", budget_section)]


PAGE = declared_page(INSTRUMENT, kind="field", sections=_sections, figures=FIGURES)
"""How a run about the field is shown."""
