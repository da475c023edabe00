"""Runs below a folder, opened and compared from Python."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.toy import TOY, ToyConfig

import flowscope as fs
from flowscope.errors import InvalidInputError, RecordError
from flowscope.lab import engine
from flowscope.lab.display.listing import runs_below
from flowscope.records import Run, Unavailable

OLD = Path(__file__).parents[1] / "golden" / "folders"
NAMES = sorted(path.name for path in OLD.iterdir() if path.is_dir())


@pytest.fixture
def runs(tmp_path):
    """A copy of the runs of an older version, which a test may damage."""
    return Path(shutil.copytree(OLD, tmp_path / "runs"))


def by_folder(folder):
    return {summary.folder.name: summary for summary in runs_below(folder)}


def test_finished_runs_have_instrument_model_date_and_verdicts(runs):
    summaries = runs_below(runs)
    assert sorted(summary.folder.name for summary in summaries) == NAMES
    dates = [summary.created_at for summary in summaries]
    assert dates == sorted(dates, reverse=True)
    for summary in summaries:
        result = fs.open_run(summary.folder)
        assert (summary.state, summary.because) == ("finished", "")
        assert (summary.instrument, summary.model) == (result.instrument.name, result.model)
        expected = [f"{verdict.name} {verdict.decision}" for verdict in result.verdicts]
        assert summary.brief == ", ".join(expected)


def test_unfinished_and_damaged_runs_say_so(runs):
    first, second, third, *_ = NAMES
    Run.open(runs / first).update_manifest(wall_time=Unavailable("the run has not finished"))
    table = next((runs / second / "tables").glob("*.csv"))
    table.write_text(table.read_text() + "1\n")
    (runs / third / "manifest.json").write_text("{")
    summaries = by_folder(runs)
    assert (summaries[first].state, summaries[first].verdicts) == ("unfinished", {})
    assert summaries[second].state == summaries[third].state == "damaged"
    assert table.name in summaries[second].because
    assert "manifest.json" in summaries[third].because
    assert summaries[second].instrument


def test_run_of_an_unknown_instrument_is_listed(tmp_path):
    engine.run(TOY, ToyConfig(), folder=tmp_path / "deep" / "below" / "run")
    (summary,) = runs_below(tmp_path)
    assert (summary.instrument, summary.model, summary.state) == ("toy", "a toy", "finished")
    assert summary.brief == "T1 holds, T2 holds, T3 abstains"


def test_folders_inside_a_run_are_no_runs(runs):
    run = runs / NAMES[0]
    shutil.copytree(runs / NAMES[1], run / "figures" / "copy")
    assert [summary.folder for summary in runs_below(run)] == [run]


def test_folder_without_runs_gives_none_and_a_file_is_refused(tmp_path):
    assert runs_below(tmp_path) == runs_below(tmp_path / "nowhere") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="found a file"):
        runs_below(tmp_path / "file")


@pytest.mark.parametrize("name", NAMES)
def test_open_run_gives_the_result_of_the_instrument(name):
    result = fs.open_run(str(OLD / name))
    assert isinstance(result, fs.Result)
    assert type(result) is getattr(fs, result.instrument.name.capitalize())
    assert result.verdicts


def test_open_run_of_no_run_says_so(tmp_path):
    with pytest.raises(RecordError, match="is no run"):
        fs.open_run(tmp_path)


def test_compare_takes_folders_and_results():
    folder = OLD / "audit"
    for pair in ((folder, str(folder)), (fs.open_run(folder), folder)):
        comparison = fs.compare(*pair)
        assert isinstance(comparison, fs.Comparison)
        assert "paired by prompt" in str(comparison)
        nothing = "No difference is significant (95 % simultaneous over 66 comparisons)."
        assert nothing in str(comparison)
        assert nothing in comparison._repr_html_()
        assert "read more prompts" in comparison.next_step
    with pytest.raises(InvalidInputError, match="only runs of the same instrument"):
        fs.compare(folder, OLD / "heads")


def test_comparison_shows_changes_and_verdicts_that_both_runs_have(runs):
    run = Run.open(runs / "audit")
    arrays = {name: values + 1 for name, values in run.read_arrays("prompts").items()}
    run.write_arrays("prompts", arrays)
    first, *others = run.read_verdicts()
    other = "fails" if first.decision != "fails" else "holds"
    run.write_verdicts([replace(first, decision=other, outcome=other), *others[:-1]])
    comparison = fs.compare(OLD / "audit", run.folder)
    text, html = str(comparison), comparison._repr_html_()
    assert re.search(rf"{first.name}: {first.outcome}( \(.*\))? → {other}", text)
    assert others[-1].name not in text
    assert "entropy  depth 0.5" in text
    assert "difference 1 [" in text
    assert "entropy changed at depths 0.0–1.0 (95 % simultaneous over 66 comparisons)" in text
    assert "<td>entropy</td>" in html
    assert f"<td>{other}</td>" in html
