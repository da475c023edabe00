"""The page of an instrument: what it declares, joined with how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flowscope.lab.claim import Column, Table
from flowscope.lab.finding import plain_findings
from flowscope.lab.instrument import Instrument
from flowscope.report import Page

__all__ = ["declared_page"]


def declared_page(instrument: Instrument, **drawing: Any) -> Page:
    """Page of an instrument; what it declares (tables, arrays, claims, findings) is taken from it.

    Parameters
    ----------
    instrument
        Its stages and studies name the tables, its claims the questions and titles.
    **drawing
        Other fields of `flowscope.report.Page`: sections, figures, facts.
    """
    studies = [instrument.study(reference) for reference in instrument.studies]
    of_studies = {name: table for study in studies for name, table in study.tables.items()}
    return Page(
        tables=_purposes(instrument.tables, optional=False),
        extras=_purposes({**instrument.tables, **of_studies}, optional=True),
        study_tables=_purposes(of_studies, optional=False),
        alone=frozenset(name for study in studies if study.prepare for name in study.tables),
        columns=_meanings({**instrument.tables, **of_studies}),
        arrays=instrument.arrays,
        findings=partial(plain_findings, instrument),
        questions={claim.name: claim.asks for claim in instrument.claims_with_studies},
        titles={claim.name: claim.title for claim in instrument.claims_with_studies},
        gates=instrument.gates,
        units=instrument.claims[0].unit,
        **drawing,
    )


def _purposes(tables: Mapping[str, Table], *, optional: bool) -> dict[str, str]:
    return {name: table.purpose for name, table in tables.items() if table.optional == optional}


def _meanings(tables: Mapping[str, Table]) -> dict[str, dict[str, str]]:
    return {
        name: {column.name: _meaning(column) for column in table.schema.values()}
        for name, table in tables.items()
    }


def _meaning(column: Column) -> str:
    return f"{column.meaning} [{column.unit}]" if column.unit else column.meaning
