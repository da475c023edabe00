"""Whatever is written, a kill or a full disk at any step leaves the old or the new, whole."""

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.records.faults import dead_at, failure, fault_at, killed_at
from tests.records.strategies import portrait

from flowscope.errors import RecordError
from flowscope.records import Manifest, Measurement, Run, ShardKey, Unavailable, Verdict

KEY = ShardKey(name="0", fingerprint="0" * 8)


def measurement(version: int, cells: int) -> Measurement:
    return Measurement(
        name=f"version {version}",
        values=np.full(cells, version),
        axes=("layer",),
        unit="1",
        n=1,
        estimator="mean",
        dtype="int64",
    )


def verdict(version: int) -> Verdict:
    none = Unavailable("not asked for")
    statistic = Measurement.abstained("gap", f"version {version}")
    return Verdict(
        name="n", claim="c", statistic=statistic, null=none, effect=none, interval=none,
        decision="abstains", because=f"version {version}",
    )  # fmt: skip


def frame(version: int) -> pd.DataFrame:
    # The types differ between versions: the old CSV under the new description would be wrong.
    return pd.DataFrame({"version": [version if version % 2 else str(version)]})


WRITES = {
    "table": (
        lambda run, k: run.write_table("t", frame(k)),
        lambda run: run.read_table("t")["version"].tolist(),
    ),
    "arrays": (
        lambda run, k: run.write_arrays("a", {"x": np.full(9, k)}),
        lambda run: portrait(run.read_arrays("a")),
    ),
    "small measurements": (
        lambda run, k: run.write_measurements([measurement(k, 3)]),
        lambda run: portrait(run.read_measurements()),
    ),
    "large measurements": (
        lambda run, k: run.write_measurements([measurement(k, 2000)]),
        lambda run: portrait(run.read_measurements()),
    ),
    "verdicts": (
        lambda run, k: run.write_verdicts([verdict(k)]),
        lambda run: portrait(run.read_verdicts()),
    ),
    "shard": (
        lambda run, k: run.write_shard(KEY, {"x": np.full(9, k)}, {"k": k}),
        lambda run: portrait(run.read_shard(KEY)),
    ),
    "manifest": (
        lambda run, k: run.update_manifest(seeds={"all": k}),
        lambda run: run.read_manifest().seeds["all"],
    ),
}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=WRITES)
def writing(request, tmp_path, monkeypatch):
    """What is written, its reader, a run that holds version 1, and both versions as read."""
    # A Parquet file is written too, so that its steps are among those that fail; not by pyarrow,
    # whose threads a forked process does not have.
    monkeypatch.setattr(
        "flowscope.records.tables._parquet", lambda frame, columns: repr(frame).encode()
    )
    write, read = WRITES[request.param]
    seen = []
    for version in (1, 2):
        run = Run.create(tmp_path / f"{version}", Manifest())
        write(run, version)
        seen.append(read(run))
    run = Run.create(tmp_path / "run", Manifest())
    write(run, 1)
    return write, read, run, *seen


def test_a_write_killed_at_any_step_leaves_the_old_or_the_new_whole(writing):
    write, read, run, old, new = writing
    found = []
    for step in itertools.count(1):
        killed = dead_at(step, lambda: write(run, 2))
        found.append(read(Run.open(run.folder)))
        assert found[-1] in (old, new)
        if not killed:
            break
        write(run, 1)  # the next write heals whatever the killed one left
        assert read(run) == old
        assert run.tables() in ((), ("t",))
        assert run.arrays() in ((), ("a",))
        assert len(run.shards()) <= 1
    assert old in found
    assert found[-1] == new
    assert run.remove_leftovers() > 0
    assert not [path for path in files(run.folder) if ".partial" in path.name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("writing", ["large measurements"], indirect=True)
def test_a_process_killed_by_a_signal_leaves_the_old_or_the_new_whole(writing):
    write, read, run, old, new = writing
    found = []
    for step in itertools.count(1):
        killed = killed_at(step, lambda: write(run, 2))
        found.append(read(Run.open(run.folder)))
        if not killed:
            break
        write(run, 1)
    assert [seen in (old, new) for seen in found] == [True] * len(found)
    assert (found[0], found[-1]) == (old, new)


def test_a_write_that_fails_at_any_step_says_so_and_leaves_nothing_half_written(writing):
    write, read, run, old, new = writing
    names = files(run.folder)
    for step in itertools.count(1):
        sentence = "could not be written"
        with fault_at(step, failure()) as calls:
            try:
                write(run, 2)
            except RecordError as error:
                sentence = str(error)
        assert "could not be" in sentence
        assert read(run) in (old, new)
        assert not [path for path in files(run.folder) if ".partial" in path.name]
        if len(calls) < step:
            break
        write(run, 1)
        assert len(files(run.folder)) == len(names)
    assert read(run) == new


def test_a_first_write_that_fails_leaves_no_file(writing, tmp_path):
    write, read, _, _, new = writing
    for step in itertools.count(1):
        run = Run.create(tmp_path / f"first {step}", Manifest())
        with fault_at(step, failure(), only=("open", "write", "replace", "mkdir")) as calls:
            try:
                write(run, 2)
                finished = True
            except RecordError:
                finished = False
        if len(calls) < step:
            break
        left = [path.name for path in files(run.folder)]
        assert finished or left == ["manifest.json"] or read(run) == new
    assert read(run) == new


def test_making_a_run_that_fails_at_any_step_leaves_nothing(tmp_path):
    for step in itertools.count(1):
        folder = tmp_path / f"{step}" / "deep" / "run"
        steps = ("open", "write", "fsync", "replace", "mkdir")
        with fault_at(step, failure(), only=steps) as calls:
            try:
                Run.create(folder, Manifest())
            except RecordError:
                # A folder that could not be flushed after the last step is a run already.
                assert not (tmp_path / f"{step}").exists() or Run.open(folder)
        if len(calls) < step:
            break
    assert Run.open(folder)


def test_making_a_run_that_was_killed_at_any_step_can_be_done_again(tmp_path):
    for step in itertools.count(1):
        folder = tmp_path / f"{step}" / "run"
        killed = dead_at(step, lambda folder=folder: Run.create(folder, Manifest(seeds={"all": 7})))
        if not (folder / "manifest.json").exists():
            Run.create(folder, Manifest(seeds={"all": 7}))
        assert Run.open(folder).read_manifest().seeds["all"] == 7
        if not killed:
            break


def test_an_interrupt_is_not_swallowed_and_removes_the_temporary_file(tmp_path):
    run = Run.create(tmp_path / "run", Manifest())

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fault_at(2, interrupt, only=("open", "write")):
        run.update_manifest(seeds={"all": 1})
    assert [path.name for path in files(run.folder)] == ["manifest.json"]
    assert replace(run.read_manifest(), device="cpu").device == "cpu"
