"""A finished run is judged again from its folder, without torch and without a model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flowscope as fs
from flowscope.lab.result import open_run
from flowscope.records import Run

OLD = Path(__file__).parents[1] / "golden" / "folders"
SMALL = {
    "images": 64, "steps": 20, "doubling": (10, 20), "family_images": 64, "information_images": 0,
    "uturn_images": 0, "bins": 8, "resamples": 50, "draws": 99,
}  # fmt: skip


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return fs.image("mixture", out=tmp_path_factory.mktemp("mixture") / "run", **SMALL)


def plain(verdicts):
    return [json.loads(verdict.to_pandas().to_json()) for verdict in verdicts]


def test_verdicts_made_again_are_equal(mixture, tmp_path):
    folder = shutil.copytree(mixture.run.folder, tmp_path / "run")
    assert plain(open_run(folder).judge()) == plain(mixture.verdicts)


def test_changed_table_changes_the_verdict(mixture, tmp_path):
    run = Run.open(shutil.copytree(mixture.run.folder, tmp_path / "run"))
    table = run.read_table("weak_error_slope").assign(slope=-2.0, low=-2.1, high=-1.9, status="ok")
    run.write_table("weak_error_slope", table)
    decisions = {v.name: v.decision for v in open_run(run.folder).judge()}
    assert decisions["I2"] == "fails"
    kept = {v.name: v.decision for v in mixture.verdicts}
    assert {**decisions, "I2": kept["I2"]} == kept


@pytest.mark.parametrize("name", ["audit", "heads", "sync", "image"])
def test_run_of_an_older_version_keeps_verdicts_that_its_tables_cannot_give(name, tmp_path):
    folder = shutil.copytree(OLD / name, tmp_path / "run")
    before = {v.name: v.decision for v in open_run(folder).verdicts}
    assert {v.name: v.decision for v in open_run(folder).judge()} == before


def test_judging_again_loads_no_torch(mixture, tmp_path):
    folder = shutil.copytree(mixture.run.folder, tmp_path / "run")
    code = (
        "import sys; from flowscope.lab.result import open_run; "
        f"open_run({str(folder)!r}).judge(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
