"""A folder holds one run: one writer, one set of settings, and the manifest of its tables."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.lab import toy
from tests.lab.toy import MADE, TOY, ToyConfig
from tests.records.faults import STEPS, fault_at

from flowscope.errors import RecordError, RecordWarning
from flowscope.lab import engine
from flowscope.lab.display.listing import runs_below
from flowscope.lab.result import open_run
from flowscope.lab.running import writing
from flowscope.lab.running.identity import differences
from flowscope.lab.running.lock import FolderLock
from flowscope.records import Manifest, Run, Unavailable
from flowscope.records.files import LOCK

FORK = multiprocessing.get_context("fork")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.fixture(autouse=True)
def _nothing_made():
    MADE.clear()


def run(folder, instrument=TOY, given=None, **settings):
    return engine.run(instrument, ToyConfig.resolved(settings), given=given, folder=folder)


def contents(folder):
    """Bytes of everything in a run folder but what says when it was made."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if path.name != "manifest.json"
    }


def states(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def slow_fall(bench):
    (bench.records.folder.parent / f"began {os.getpid()}").touch()
    while not (bench.records.folder.parent / "go on").exists():
        time.sleep(0.005)
    toy.fall(bench)
    (bench.records.folder.parent / "go on").unlink(missing_ok=True)


SLOW = replace(
    TOY,
    stages=(replace(toy.FALL, home=__name__, measure="slow_fall", judge="judge"), *TOY.stages[1:]),
)


def judge(records):
    return toy.judge_fall(records)


# ---- other settings


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"seed": 7}, "seed is 0 there and 7 now"),
        ({"resamples": 99}, "resamples is 10 there and 99 now"),
        ({"last": 0.2, "steps": 9}, "steps is 8 there and 9 now; last is 0.1 there and 0.2 now"),
        ({"given": {"start": 2.0}}, r"marks\.start is 1\.0 there and 2\.0 now"),
    ],
)
def test_other_settings_are_refused_by_name_and_change_nothing(tmp_path, changed, sentence):
    run(tmp_path / "run")
    before = states(tmp_path / "run")
    with pytest.raises(RecordError, match=rf"run holds another run: {sentence}.*Choose another"):
        run(tmp_path / "run", **changed)
    assert states(tmp_path / "run") == before


def _subject(**changed):
    true = toy.prepare

    def prepare(config, given):
        config, subject = true(config, given)
        return config, replace(subject, **changed)

    return prepare


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"weight_hash": "1" * 64}, r"weights\.model is 00000000… \(a toy\) there and 11111111…"),
        ({"hashes": {"tokens": "2" * 64}}, r"data\.tokens is none there and 22222222… now"),
        ({"device": "cuda:0"}, "device is cpu there and cuda now"),
    ],
)
def test_another_subject_is_refused_by_name(tmp_path, monkeypatch, changed, sentence):
    run(tmp_path / "run")
    monkeypatch.setattr(toy, "prepare", _subject(**changed))
    with pytest.raises(RecordError, match=sentence):
        run(tmp_path / "run")


def test_another_version_or_commit_is_refused_by_name(tmp_path, monkeypatch):
    run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(writing, "library_versions", lambda: {"torch": "99"})
        with pytest.raises(RecordError, match=r"versions\.torch is .* there and 99 now"):
            run(tmp_path / "run")
    monkeypatch.setattr(writing, "commit", lambda: "c" * 40)
    with pytest.raises(RecordError, match=r"commit is .* there and cccccccc… now"):
        run(tmp_path / "run")


def test_where_things_lie_is_no_other_run(tmp_path, monkeypatch):
    run(tmp_path / "run", out="here")
    run(tmp_path / "run", out="there")
    monkeypatch.setattr(toy, "prepare", _subject(source="/another/way/to/a toy"))
    assert run(tmp_path / "run").model == "/another/way/to/a toy"
    first = Manifest(device="cuda:0")
    assert differences(first, replace(first, device="cuda:1")) == []


def test_a_run_of_an_earlier_version_is_compared_by_what_it_says(tmp_path):
    old = Manifest(config_resolved={"seed": 0})
    new = Manifest(config_resolved={"seed": 7}, marks={"config": {"layers": 2}})
    assert differences(old, new) == [("seed", "0", "7")]


def test_a_study_and_its_settings_decide_the_run():
    instrument = TOY
    config, subject = toy.prepare(ToyConfig(), {})

    class Added(toy.Config):
        draws: int = 3
        reading: ToyConfig = ToyConfig()

    plain = writing.manifest_of(instrument, config, subject)
    study = writing.manifest_of(instrument, config, subject, study=Added())
    more = writing.manifest_of(instrument, config, subject, study=Added(draws=4))
    assert study.config_resolved["study"] == {"draws": 3}
    assert differences(study, more) == [("study.draws", "3", "4")]
    assert ("study.draws", "none", "3") in differences(plain, study)


def test_the_manifest_of_a_resumed_run_is_that_of_the_run_that_wrote_the_tables(tmp_path):
    first = run(tmp_path / "run").run.read_manifest()
    Run.open(tmp_path / "run").update_manifest(wall_time=1.0)
    second = run(tmp_path / "run").run.read_manifest()
    assert second.created_at > first.created_at
    assert second.seeds == {"bootstrap": 0, "random_weights": 0}
    assert second.files == Run.open(tmp_path / "run").file_hashes()
    assert second.marks == {"start": 1.0}


def test_a_repository_around_the_environment_is_not_the_commit_of_flowscope(tmp_path, monkeypatch):
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        settings = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *settings, *command], check=True)
    installed = tmp_path / "site-packages" / "writing.py"
    installed.parent.mkdir()
    installed.touch()
    monkeypatch.setattr(writing, "__file__", str(installed))
    commit = writing.commit.__wrapped__()
    assert isinstance(commit, Unavailable)
    assert commit.reason == "flowscope is installed, not checked out"


# ---- mixed and unfinished folders


def test_a_file_of_another_run_is_seen(tmp_path):
    one, two = run(tmp_path / "one"), run(tmp_path / "two", last=0.15)
    assert one.run.strange_files() == ()
    for ending in ("csv", "json"):
        name = f"tables/fall.{ending}"
        shutil.copy(two.run.folder / name, one.run.folder / name)
    one.run.write_table("more", pd.DataFrame({"x": [1]}))
    (one.run.folder / "verdicts.json").unlink()
    expected = ("tables/fall.csv", "tables/more.csv", "verdicts.json")
    assert one.run.strange_files() == expected
    shutil.copy(two.run.folder / "verdicts.json", one.run.folder)
    (summary,) = (s for s in runs_below(tmp_path) if s.folder.name == "one")
    assert (summary.state, "is mixed: tables/fall.csv" in summary.because) == ("damaged", True)


def test_a_run_that_failed_is_unfinished_and_its_folder_is_free(tmp_path):
    broken = replace(TOY, stages=(*TOY.stages[:1], replace(toy.FOLLOW, measure="absent")))
    with pytest.raises(ImportError):
        run(tmp_path / "run", broken)
    (summary,) = runs_below(tmp_path)
    assert (summary.state, summary.because) == ("unfinished", "")
    assert not (tmp_path / "run" / LOCK).exists()
    assert contents(run(tmp_path / "run").run.folder) == contents(run(tmp_path / "b").run.folder)


def test_verdicts_made_again_belong_to_the_run_and_hide_no_strange_table(tmp_path, monkeypatch):
    result = run(tmp_path / "run")
    monkeypatch.setattr(type(result), "instrument", TOY)
    result.run.write_table("more", pd.DataFrame({"x": [1]}))
    monkeypatch.setattr(toy, "judge_fall", lambda records: [toy.verdict(toy.SMALL, 0.9)])
    before = (tmp_path / "run" / "verdicts.json").read_bytes()
    engine.rejudge(result)
    assert (tmp_path / "run" / "verdicts.json").read_bytes() != before
    assert result.run.strange_files() == ("tables/more.csv",)


def test_judging_again_while_another_process_writes_is_refused(tmp_path, monkeypatch):
    result = run(tmp_path / "run")
    monkeypatch.setattr(type(result), "instrument", TOY)
    before = states(tmp_path / "run")
    with FolderLock.take(tmp_path / "run"), pytest.raises(RecordError, match="is being written by"):
        engine.rejudge(result)
    assert states(tmp_path / "run") == before


# ---- several processes


def _try(folder, seed, results):
    warnings.simplefilter("ignore")
    try:
        run(folder, SLOW, seed=seed)
        results.put((seed, ""))
    except RecordError as error:
        results.put((seed, str(error)))


@forks
@pytest.mark.parametrize("writers", [2, 4])
def test_of_writers_started_at_once_one_writes_and_the_others_are_told(tmp_path, writers):
    folder, results = tmp_path / "run", FORK.Queue()
    children = [FORK.Process(target=_try, args=(folder, k, results)) for k in range(writers)]
    for child in children:
        child.start()
    refused = [results.get(timeout=60) for _ in range(writers - 1)]
    (tmp_path / "go on").touch()
    (winner, problem) = results.get(timeout=60)
    for child in children:
        child.join()
    assert problem == ""
    began = [path.name for path in tmp_path.glob("began *")]
    assert len(began) == 1
    holder = began[0].removeprefix("began ")
    assert all(f"is being written by process {holder} on" in problem for _, problem in refused)
    finished = open_manifest(folder)
    assert finished.seeds["bootstrap"] == finished.config_resolved["seed"] == winner
    assert Run.open(folder).strange_files() == ()
    assert contents(folder) == contents(run(tmp_path / "alone", seed=winner).run.folder)


def open_manifest(folder):
    return Run.open(folder).read_manifest()


@forks
def test_readers_are_not_blocked_and_disturb_no_writer(tmp_path):
    folder, results = tmp_path / "run", FORK.Queue()
    whole = contents(run(folder).run.folder)
    child = FORK.Process(target=_try, args=(folder, 0, results))
    child.start()
    while not list(tmp_path.glob("began *")):
        time.sleep(0.005)
    half = folder / "tables" / ".fall.csv.0123.partial"
    half.write_text("a file that the writer is writing")
    (summary,) = runs_below(tmp_path)
    assert summary.state == "unfinished"
    assert f"being written by process {child.pid} on" in summary.because
    opened = Run.open(folder)
    assert opened.tables() == ("fall", "follow")
    assert len(opened.read_table("fall")) == 8
    assert half.exists()
    half.unlink()
    (tmp_path / "go on").touch()
    assert results.get(timeout=60) == (0, "")
    child.join()
    assert contents(folder) == whole


@forks
def test_a_killed_run_is_taken_over_and_ends_byte_for_byte_as_if_it_had_not_been(tmp_path):
    child = FORK.Process(target=_try, args=(tmp_path / "run", 0, FORK.Queue()))
    child.start()
    while not list(tmp_path.glob("began *")):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert (tmp_path / "run" / LOCK).exists()
    (summary,) = runs_below(tmp_path)
    assert (summary.state, summary.because) == ("unfinished", "")
    with pytest.warns(RecordWarning, match=f"taken over from process {child.pid} on"):
        again = run(tmp_path / "run")
    assert contents(again.run.folder) == contents(run(tmp_path / "alone").run.folder)


def test_a_writer_whose_lock_is_gone_writes_nothing_more(tmp_path):
    config, subject = toy.prepare(ToyConfig(), {})
    manifest = writing.manifest_of(TOY, config, subject)
    writer = writing.RunWriter(tmp_path / "run", manifest)
    (tmp_path / "run" / LOCK).unlink()
    before = states(tmp_path / "run")
    frame = pd.DataFrame({"x": [1]})
    for attempt in (
        lambda: writer.put("t", frame),
        lambda: writer.put_arrays("a", {}),
        lambda: writer.finish([]),
    ):
        with pytest.raises(RecordError, match="was removed while this process wrote"):
            attempt()
    assert states(tmp_path / "run") == before


# ---- damage


@pytest.mark.parametrize("damage", ["cut", "deleted", "empty"])
def test_the_advice_on_a_damaged_manifest_works(tmp_path, damage):
    whole = contents(run(tmp_path / "run").run.folder)
    manifest = tmp_path / "run" / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(RecordError, match="delete it and run again"):
        run(tmp_path / "run")
    with pytest.raises(RecordError, match="delete it and run again"):
        open_run(tmp_path / "run")
    manifest.unlink()
    if damage == "deleted":  # also after a kill while the remains were cleared
        shutil.rmtree(tmp_path / "run" / "shards")
        for path in (tmp_path / "run").glob("*.json"):
            path.unlink()
    with pytest.warns(RecordWarning, match=r"had no manifest\.json.*are measured again"):
        again = run(tmp_path / "run")
    assert contents(again.run.folder) == whole
    assert ["change"] * (2 if damage == "deleted" else 1) == MADE


def test_a_lost_manifest_does_not_let_other_settings_keep_old_tables(tmp_path):
    run(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.warns(RecordWarning, match="nothing said how its tables were made"):
        other = run(tmp_path / "run", last=0.5)
    assert "follow" not in other.tables
    assert other.run.strange_files() == ()


@pytest.mark.parametrize("foreign", ["notes.txt", "tables/mine.csv", "data/x"])
def test_a_folder_of_somebody_else_is_refused_and_not_touched(tmp_path, foreign):
    file = tmp_path / "mine" / foreign
    file.parent.mkdir(parents=True)
    file.write_text("x")
    with pytest.raises(RecordError, match="is not empty and no run"):
        run(tmp_path / "mine")
    assert states(tmp_path) == {file.name: b"x"}


def test_a_partial_file_of_a_kill_in_the_first_manifest_is_cleaned(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".manifest.json.0123.partial").write_text("half")
    run(tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))


@forks
def test_a_run_killed_at_any_step_leaves_nothing_behind_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", os.fstat)  # the disk would take most of the time
    for step in range(1, 200, 2):
        folder = tmp_path / str(step) / "run"
        child = os.fork()
        if child == 0:
            warnings.simplefilter("ignore")
            act = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
            with fault_at(step, act, only=(*STEPS, "link")):
                run(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(folder)
        assert not [path.name for path in folder.rglob(".*")]
        if not os.WIFSIGNALED(status):
            break
    assert 40 < step < 199
    assert contents(folder) == contents(tmp_path / "1" / "run")


# ---- the command


@pytest.fixture(scope="module")
def cli(flowscope_with_toy):
    return lambda *arguments: flowscope_with_toy("-m", "flowscope.cli", *arguments)


def test_the_command_says_who_writes_and_what_was_put_right(cli, tmp_path):
    document = json.loads(cli("toy", "--rounds", 1, "--out", tmp_path, "--json").stdout)
    folder = Path(document["run"])
    with FolderLock.take(folder):
        refused = cli("toy", "--rounds", 1, "--out", tmp_path)
        assert refused.returncode == 1
        words = " ".join(refused.stderr.split())
        assert f"is being written by process {os.getpid()} on" in words
        assert json.loads(cli("runs", tmp_path, "--json").stdout)["runs"][0]["state"] == "finished"
        assert cli("report", folder).returncode == 0
    shard = next((folder / "shards").iterdir())
    shard.write_bytes(b"damaged")
    healed = cli("toy", "--rounds", 1, "--out", tmp_path)
    assert healed.returncode in (0, 3)
    words = " ".join(healed.stderr.split())
    assert "note: The shard" in words
    assert "Warning" not in words
    other = json.loads(cli("toy", "--rounds", 1, "--seed", 7, "--out", tmp_path, "--json").stdout)
    assert other["run"] != document["run"]
