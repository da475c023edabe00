"""Every study on one page: what is run, what is kept, what the page says."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.errors import InvalidInputError, LoadError
from flowscope.lab import registry
from flowscope.lab.config import Config
from flowscope.lab.display import reproductions
from flowscope.lab.display.reproductions import reproduce_all, write_page
from flowscope.records import Manifest, Run

NAMES = tuple(registry.studies())
ROWS = pd.DataFrame(
    {
        "item": ["a < b"], "where": ["page 1"], "says": ["<script>alert(1)</script>"],
        "measured": ["1 & 2"], "agrees": ["no"], "by_chance": [0.05],
    }
)  # fmt: skip


@pytest.fixture
def runs(monkeypatch):
    """Studies that are run without a model: which, with which settings."""
    calls = []

    def reproduce(name, *, out, overrides, **more):
        calls.append((name, tuple(overrides)))
        if name == NAMES[1] and len(calls) < 3:
            raise LoadError("no such model")
        folder = f"{out}/run"
        run = Run.create(folder, Manifest()) if not calls.count("x") else Run.open(folder)
        run.write_table(name, ROWS)
        run.update_manifest(files=run.file_hashes())
        page = run.folder / "report.html"
        return SimpleNamespace(
            run=run, study=name, claims=ROWS, report=lambda: page.write_text("page")
        )

    monkeypatch.setattr(reproductions, "reproduce", reproduce)
    return calls


def test_every_study_of_the_registry_is_run_once_and_a_failed_one_again(runs, tmp_path):
    found = reproduce_all(tmp_path, small=True)
    assert [name for name, _ in runs] == list(NAMES)
    assert [entry.name for entry in found.entries] == list(NAMES)
    assert [entry.missing for entry in found.failed] == ["no such model"]
    runs.clear()
    runs += [("", ()), ("", ())]
    again = reproduce_all(tmp_path, small=True)
    assert [name for name, _ in runs[2:]] == [NAMES[1]]
    assert not again.failed


def test_other_settings_are_another_run(runs, tmp_path):
    reproduce_all(tmp_path, only=NAMES[:1], small=True)
    (small,) = (overrides for _, overrides in runs)
    assert small
    runs.clear()
    runs += [("", ())] * 2
    reproduce_all(tmp_path, only=NAMES[:1])  # it is asked for again
    assert runs[-1] == (NAMES[0], ())


def test_the_page_holds_text_and_links_to_what_is_there(runs, tmp_path):
    found = reproduce_all(tmp_path, only=NAMES[:1])
    page = found.page.read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &lt; b" in page
    assert f'href="{NAMES[0]}/run/report.html"' in page
    (tmp_path / NAMES[0] / "run" / "report.html").unlink()
    write_page(tmp_path)
    assert "report.html" not in found.page.read_text("utf-8")
    assert f'href="{NAMES[0]}.csv"' in found.page.read_text("utf-8")


def test_studies_that_need_a_gpu_are_left_out_when_asked(runs, monkeypatch, tmp_path):
    study = registry.study(NAMES[0])
    object.__setattr__(study, "gpu", True)
    try:
        found = reproduce_all(tmp_path, only=NAMES[:1], skip_gpu=True)
    finally:
        object.__setattr__(study, "gpu", False)
    assert not runs
    assert not found.failed
    assert "hours without a GPU" in found.page.read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_small_settings_are_settings_of_the_study(name):
    study = registry.study(name)
    small = reproductions._assignments(study.small)
    assert small
    assert isinstance(study.resolved({}, small), Config)


def test_bad_input_is_a_sentence(tmp_path):
    with pytest.raises(InvalidInputError, match="No study is named 'track_x'"):
        reproduce_all(tmp_path, only=["track_x"])
    (tmp_path / "index.json").write_text("[", encoding="utf-8")
    with pytest.raises(Exception, match="what flowscope reproduce all writes"):
        write_page(tmp_path)

    def run(*arguments):
        done = CliRunner().invoke(app, ["reproduce", *arguments, "--json"])
        assert done.exit_code == 1
        return json.loads(done.stdout)["error"]

    assert "takes the models and settings of the studies" in run("all", "gpt2")
    assert "belong to reproduce all" in run(NAMES[0], "--small")
