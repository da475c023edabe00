"""``flowscope runs``, ``--only`` and ``--open``."""

import json
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.lab import engine
from flowscope.lab.registry import instrument, instrument_names, studies
from flowscope.lab.result import Result, open_run

OLD = Path(__file__).parents[1] / "golden" / "folders"
NAMES = instrument_names()


def _run(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"}, **options)


def _words(text):
    return " ".join(text.split())


@pytest.fixture
def runs(tmp_path):
    return Path(shutil.copytree(OLD, tmp_path / "runs"))


@pytest.fixture
def pages(monkeypatch):
    """Pages that were opened in a browser, which is there."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    return opened


def test_runs_are_listed_in_eighty_columns_and_without_torch(runs):
    code = (
        "import sys; from flowscope.cli import app; "
        f"app(['runs', {str(runs)!r}], standalone_mode=False); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "80", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert max(cell_len(line) for line in done.stdout.splitlines()) <= 80
    for name in NAMES:
        assert name in done.stdout
    assert done.stdout.count("finished") == len(NAMES)


def test_runs_as_json(runs):
    (runs / "heads" / "manifest.json").write_text("{")
    document = json.loads(_run("runs", str(runs), "--json").stdout)
    states = {Path(run["folder"]).name: run["state"] for run in document["runs"]}
    assert states == {**dict.fromkeys(NAMES, "finished"), "heads": "damaged"}
    by_name = {Path(run["folder"]).name: run for run in document["runs"]}
    assert "manifest.json" in by_name["heads"]["because"]
    expected = {v.name: v.decision for v in open_run(runs / "audit").verdicts}
    assert by_name["audit"]["verdicts"] == expected
    listed = _words(_run("runs", str(runs)).stdout)
    assert "damaged:" in listed


def test_folder_without_runs_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing, empty = _run("runs"), _run("runs", str(tmp_path))
    assert (missing.exit_code, empty.exit_code) == (0, 0)
    assert "There is no folder out." in missing.stdout
    assert f"There is no run in {tmp_path}." in empty.stdout.replace("\n", "")
    assert json.loads(_run("runs", "--json").stdout) == {"runs": []}
    (tmp_path / "file").write_text("")
    wrong = _run("runs", "file")
    assert wrong.exit_code == 1
    assert "found a file" in _words(wrong.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_only_reaches_the_engine(name, monkeypatch):
    calls = []

    def run(declared, settings, *, folder, progress, only, choice):
        calls.append((declared.name, only))
        return open_run(OLD / name)

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(Result, "report", lambda result: None)
    named = tuple(stage.name for stage in instrument(name).stages[:2])
    assert _run(name, "--only", ", ".join(named)).exit_code in (0, 3)
    assert _run(name).exit_code in (0, 3)
    assert calls == [(name, named), (name, ())]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_name_of_only_is_refused_before_torch_is_loaded(name, monkeypatch):
    monkeypatch.setattr(engine, "run", lambda *arguments, **more: pytest.fail("it ran"))
    stage = instrument(name).stages[0].name
    wrong = _run(name, "--only", f"{stage}x")
    assert wrong.exit_code == 1
    assert f"No claim or stage is named '{stage}x'. Did you mean '{stage}'?" in _words(wrong.stderr)


def test_open_shows_the_page_of_a_run(runs, pages, monkeypatch):
    page = (runs / "heads" / "report.html").as_uri()
    assert _run("report", str(runs / "heads")).exit_code == 0
    assert pages == []
    assert _run("report", str(runs / "heads"), "--open").exit_code == 0
    assert pages == [page]
    monkeypatch.setattr(engine, "run", lambda *arguments, **more: open_run(runs / "heads"))
    result = _run("heads", "--open", "--json")
    assert result.exit_code in (0, 3)
    assert json.loads(result.stdout)["run"] == str(runs / "heads")
    assert pages == [page, page]


def test_open_shows_the_page_of_a_study(runs, pages, monkeypatch):
    name, study = next(iter(studies().items()))
    folder = runs / study.instrument.name
    claims = {"item": ["1"], "where": [""], "says": [""], "measured": [""], "agrees": ["yes"]}

    def run(*arguments, **more):
        import pandas as pd

        result = open_run(folder)
        result.run.write_table(name, pd.DataFrame({**claims, "rule": [""]}))
        return result

    monkeypatch.setattr(engine, "run", run)
    done = _run("reproduce", name, "--open")
    assert done.exit_code == 0, done.stderr
    assert pages == [(folder / "report.html").as_uri()]


@pytest.mark.parametrize("raised", [False, True])
def test_open_without_a_browser_says_where_the_page_is(raised, runs, monkeypatch):
    def absent(url):
        if raised:
            raise webbrowser.Error("could not locate runnable browser")
        return False

    monkeypatch.setattr(webbrowser, "open", absent)
    result = _run("report", str(runs / "heads"), "--open")
    assert result.exit_code == 0
    assert "No browser could be started; open" in result.stderr
    assert "report.html by hand." in result.stderr
