"""Schemas of tables: patterns expand, declarations are checked, the reference is current."""

from pathlib import Path

import pytest

from flowscope.lab.api.reference import homonyms, tables_text
from flowscope.lab.claim import ENDS, INTERVAL, Column, Table
from flowscope.lab.registry import instrument, instruments
from flowscope.records import Run
from flowscope.report.listings import numbers
from flowscope.report.source import read_source

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "folders"


def test_columns_beside_another_take_its_name_and_unit():
    table = Table(
        purpose="losses",
        keys=("layer",),
        columns=(Column("layer", "layer"), Column("loss", "mean loss", "nat", INTERVAL | ENDS)),
    )
    assert list(table.schema) == ["layer", "loss", "loss_low", "loss_high", "low", "high"]
    assert table.schema["loss_high"].unit == "nat"
    assert table.schema["low"].meaning == "lower end of the 95 % interval of `loss`"


def test_columns_of_an_optional_one_are_optional():
    (_, low, _) = Column("loss", "mean loss", "nat", INTERVAL, optional=True).expanded()
    assert low.optional


@pytest.mark.parametrize(
    ("keys", "names", "problem"),
    [(("layer",), ("loss",), "no column: \\['layer'\\]"), ((), ("a", "a"), "twice: \\['a'\\]")],
)
def test_table_with_a_repeated_column_or_an_unknown_key_is_refused(keys, names, problem):
    with pytest.raises(ValueError, match=problem):
        Table(purpose="losses", keys=keys, columns=tuple(Column(n, "a number") for n in names))


def test_the_reference_is_current():
    written = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    assert written == tables_text(), "run python -m flowscope.lab.api.reference"


def test_the_reference_has_every_table_and_column():
    text = tables_text()
    for one in instruments():
        studies = [one.study(reference).tables for reference in one.studies]
        for tables in (one.tables, *studies):
            for name, table in tables.items():
                part = text.split(f"## {one.name}\n")[1].split(f"### `{name}`\n")[1].split("###")[0]
                assert all(f"`{column}`" in part for column in table.schema), name


def test_both_meanings_of_total_variation_are_told_apart():
    places = dict(homonyms()["total_variation"])
    lengths = [place for place, column in places.items() if column.unit == "logit"]
    assert lengths == ["audit `segments`"]
    assert "path_length" in places["audit `segments`"].meaning
    distances = [column for place, column in places.items() if place not in lengths]
    assert len(distances) >= 3
    assert all("total variation distance" in column.meaning for column in distances)


def test_the_page_explains_columns_under_the_pointer():
    one = instrument("audit")
    source = read_source(Run.open(GOLDEN / "audit"), one.resolve(one.page))
    shown = numbers(source, "segments")
    assert 'title="Σ‖Δz‖², median over tokens [logit²]"' in shown
    assert shown.count(" title=") == len(source.tables["segments"].columns)
