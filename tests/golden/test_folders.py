"""Run folders of an earlier version: today's code opens, reports and compares them."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.records import Run

FOLDERS = Path(__file__).parent / "folders"
TABLES = {"audit": 22, "heads": 6, "sync": 11, "image": 10}
VERDICTS = {
    "audit": ("P0", "P1", "P2", "P3", "P4"),
    "heads": ("M1", "M2"),
    "sync": ("R1", "R2"),
    "image": ("I1", "I2", "I3"),
}
COMMIT = "d097631"


@pytest.fixture(params=sorted(VERDICTS))
def instrument(request):
    return request.param


def _cli(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "80"})


def test_the_folder_opens_with_its_manifest(instrument):
    manifest = Run.open(FOLDERS / instrument).read_manifest()
    assert manifest.commit.startswith(COMMIT)
    assert manifest.config_resolved["model"].startswith("src/flowscope/nets/")
    assert manifest.seeds["bootstrap"] == 0


def test_every_table_and_array_is_read(instrument):
    run = Run.open(FOLDERS / instrument)
    tables = {name: run.read_table(name) for name in run.tables()}
    assert len(tables) == TABLES[instrument]
    assert all(len(table) > 0 for table in tables.values())
    assert run.arrays()
    assert all(run.read_arrays(name) for name in run.arrays())


def test_verdicts_and_measurements_are_read(instrument):
    run = Run.open(FOLDERS / instrument)
    verdicts = run.read_verdicts()
    assert tuple(verdict.name for verdict in verdicts) == VERDICTS[instrument]
    assert {verdict.decision for verdict in verdicts} <= {"holds", "fails", "abstains"}
    assert all(verdict.because for verdict in verdicts)
    run.read_measurements()


def test_the_report_is_built_again(instrument, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(FOLDERS / instrument, folder)
    result = _cli("report", folder)
    assert result.exit_code == 0, result.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    model = Run.open(folder).read_manifest().config_resolved["model"]
    assert f"<h1>{model}</h1>" in page
    words = set(re.findall(r"\b[PMRI]\d\b", page))
    assert words >= set(VERDICTS[instrument])


def test_an_audit_is_compared_with_itself():
    folder = FOLDERS / "audit"
    result = _cli("compare", folder, folder)
    assert result.exit_code == 0, result.output
    assert "No difference is significant" in result.output


@pytest.mark.parametrize("instrument", ["heads", "sync", "image"])
def test_a_refused_comparison_names_a_table_of_the_folder(instrument):
    folder = FOLDERS / instrument
    result = _cli("compare", folder, folder)
    assert result.exit_code == 1
    words = "".join(result.output.split())
    table = re.search(r"tables/(\w+)\.csv", words)
    assert table, result.output
    assert table.group(1) in Run.open(folder).tables()
