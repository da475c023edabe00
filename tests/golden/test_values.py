"""Small runs give the values that d097631 gave (`python -m benchmarks.golden.store`)."""

import csv
import json
from pathlib import Path

import pytest
from benchmarks.golden.store import SMALL, close, stored_text

import flowscope

VALUES = Path(__file__).parent / "values"
# All rules of verdicts have changed since d097631, so that tables alone are compared. Of the
# mixture, shares of rotation, intervals of step-doubling differences and the chance of U-turns
# (another definition) are no longer stored.


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    runs = {}

    def made(name):
        if name not in runs:
            function, arguments, settings = SMALL[name]
            out = str(tmp_path_factory.mktemp(name))
            runs[name] = getattr(flowscope, function)(*arguments, out=out, **settings).run
        return runs[name]

    return made


def test_the_stored_values_belong_to_these_runs():
    origin = json.loads((VALUES / "origin.json").read_text(encoding="utf-8"))
    assert origin["commit"].startswith("d097631")
    assert origin["runs"].keys() == SMALL.keys()
    for name, (function, arguments, settings) in SMALL.items():
        about = origin["runs"][name]
        assert (about["function"], tuple(about["arguments"])) == (function, arguments)
        assert about["settings"] == json.loads(json.dumps(settings))


@pytest.mark.parametrize("name", SMALL)
def test_tables_have_their_stored_values(name, run_of):
    run, wrong = run_of(name), []
    files = sorted((VALUES / name).glob("*.csv"))
    assert len(files) >= 3
    for file in files:
        frame = run.read_table(file.stem)
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert int(rows[-1]["row"]) == len(frame) - 1
        for row in rows:
            place = int(row.pop("row"))
            for column, stored in row.items():
                value = frame[column].iloc[place]
                if not close(stored, value):
                    wrong.append(f"{file.stem}.{column}, row {place}: {stored} → {value}")
    assert wrong == []


@pytest.mark.parametrize(
    ("stored", "value", "same"),
    [
        (0.5, 0.500004, True),
        (0.5, 0.5001, False),
        (0.0, 9e-6, True),
        (0.0, 2e-5, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (8, 8, True),
        (8, 9, False),
        ("holds", "fails", False),
        ("", None, True),
        (True, False, False),
    ],
)
def test_a_value_is_close_or_the_same(stored, value, same):
    assert close(stored_text(stored), value) is same
