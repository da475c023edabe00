"""Reference of tables: what every table of a run folder holds, from the declarations.

``python -m flowscope.lab.api.reference`` writes ``docs/reference/tables.md`` of a checkout.
"""

from collections.abc import Iterator
from pathlib import Path

from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Instrument
from flowscope.lab.registry import instruments

__all__ = ["homonyms", "tables_text", "write_reference"]

_FILE = Path(__file__).parents[4] / "docs" / "reference" / "tables.md"
_HEAD = """# Tables of a run folder

<!-- Written by `python -m flowscope.lab.api.reference`; change the schemas of the instruments. -->

A run folder holds `tables/NAME.csv` for each table below; `result.tables.NAME` reads one. Columns
in **bold** are the keys, which together name a row. A column without a unit holds words, a count or
a pure number. Tables and columns marked *optional* are absent from some runs.

Unless a line says otherwise, an interval is at the 95 % level; the report names its method."""


def tables_text() -> str:
    """Text of the reference."""
    lines = [_HEAD, "", *_homonyms()]
    for one in instruments():
        lines += ["", f"## {one.name}"]
        for name, table in one.tables.items():
            lines += ["", *_table(name, table)]
        for study in (one.study(reference) for reference in one.studies):
            lines += ["", f"### Study {study.name}"]
            for name, table in study.tables.items():
                lines += ["", *_table(name, table)]
    return "\n".join([*lines, ""])


def write_reference() -> None:
    """Write the reference into the documentation of the checkout."""
    _FILE.parent.mkdir(parents=True, exist_ok=True)
    _FILE.write_text(tables_text(), encoding="utf-8")


def _table(name: str, table: Table) -> Iterator[str]:
    """Heading, purpose and columns of one table."""
    yield f"### `{name}`"
    yield ""
    yield f"{table.purpose[0].upper()}{table.purpose[1:]}.{' *Optional.*' * table.optional}"
    yield ""
    yield "| column | unit | meaning |"
    yield "|---|---|---|"
    for column in table.schema.values():
        shown = f"**`{column.name}`**" if column.name in table.keys else f"`{column.name}`"
        optional = " *(optional)*" if column.optional else ""
        yield f"| {shown} | {column.unit} | {_cell(column.meaning)}{optional} |"


def _cell(text: str) -> str:
    """Text that does not end the cell of a table."""
    return text.replace("|", "\\|")


def _homonyms() -> Iterator[str]:
    """Names that stand for different things in different tables."""
    yield "## Names with more than one meaning"
    yield ""
    yield "These columns have other units in other tables, because they are other quantities."
    yield ""
    yield "| column | table | unit | meaning |"
    yield "|---|---|---|---|"
    for name, places in homonyms().items():
        for place, column in places:
            yield f"| `{name}` | {place} | {column.unit} | {_cell(column.meaning)} |"


def homonyms() -> dict[str, list[tuple[str, Column]]]:
    """Columns whose unit is not the same in all tables that have them, with those tables.

    Columns beside another one are left out, because their meaning names that one.
    """
    places: dict[str, list[tuple[str, Column]]] = {}
    for one in instruments():
        for table_name, table in _every(one).items():
            for column in table.columns:
                places.setdefault(column.name, []).append((f"{one.name} `{table_name}`", column))
    return {
        name: places[name]
        for name in sorted(places)
        if len({column.unit for _, column in places[name]}) > 1
    }


def _every(instrument: Instrument) -> dict[str, Table]:
    """Tables of an instrument and of its studies."""
    studies = (instrument.study(reference) for reference in instrument.studies)
    of_studies = {name: table for study in studies for name, table in study.tables.items()}
    return {**instrument.tables, **of_studies}


if __name__ == "__main__":
    write_reference()
