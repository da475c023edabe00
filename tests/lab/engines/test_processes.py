"""Processes of this machine on one audit: the same tables, whatever ends in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from flowscope.lab.engines import processes
from flowscope.lab.engines.choice import EngineChoice
from flowscope.lab.engines.journal import Journal
from flowscope.records import Run

SMALL = [
    "--prompts", "6", "--tokens", "12", "--set", "batch=1", "--set", "resamples=10",
    "--set", "control_prompts=1", "--set", "controls=false", "--set", "flow_positions=2",
    "--set", "flow_close=1", "--set", "evi_positions=0", "--only", "P2",
]  # fmt: skip


def command(*arguments, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **more}
    return [sys.executable, "-m", "flowscope", *map(str, arguments)], environment


def flowscope(*arguments, **more):
    line, environment = command(*arguments, **more)
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


def tables(run):
    found = {path.name: path.read_bytes() for path in (Path(run) / "tables").iterdir()}
    assert found
    return found


def document(done):
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The audit by one process."""
    return document(flowscope("audit", *SMALL, "--json", "--out", tmp_path_factory.mktemp("a")))


def test_two_processes_write_the_tables_of_one_and_say_what_is_serial(alone, tmp_path):
    done = flowscope("audit", *SMALL, "--engine", "processes", "--workers", "2", "--json",
                     "--out", tmp_path)  # fmt: skip
    found = document(done)
    assert tables(found["run"]) == tables(alone["run"])
    assert (found["work"]["workers"], found["work"]["made_twice"]) == (2, [])
    assert found["work"]["shards"] == 6
    assert "of the work is done by one process alone" in found["work"]["sentence"]


def made_by_workers(started, choice, alone, folder):
    """Let the workers of an engine make every shard, because the driver does nothing; finish."""
    planned = flowscope("audit", *SMALL, "--plan", "--out", folder, "--json")
    run = Path(json.loads(planned.stdout)["run"])
    deadline = time.monotonic() + 300
    with started(choice, run, "cpu") as helpers:
        assert helpers.count == choice.workers - 1
        while len({made.task for made in Journal(run).makings()}) < 6:
            helpers.look()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    found = document(flowscope("audit", "--out", run, "--json"))
    assert tables(run) == tables(alone["run"])
    assert (found["work"]["shards"], found["work"]["made_twice"]) == (6, [])


def test_a_worker_makes_all_shards_while_the_driver_does_nothing(alone, monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    choice = EngineChoice(name="processes", workers=2)
    made_by_workers(processes.started, choice, alone, tmp_path)


def test_a_planned_run_is_worked_on_by_shares_and_finished(alone, tmp_path):
    """The driver of the first half is killed in a shard, a worker in another; shares overlap."""
    planned = flowscope("audit", *SMALL, "--plan", "--out", tmp_path, "--json")
    run = Path(json.loads(planned.stdout)["run"])
    first = _killed_after(1, run, "work", run, "--share", "2/3")
    assert 1 <= first < 6
    second = _killed_after(first + 1, run, "audit", "--out", run)
    done = flowscope("work", run, "--share", "3/3")
    assert (done.returncode, "nothing is left" in " ".join(done.stdout.split())) == (0, True)
    assert second < 6
    found = document(flowscope("audit", "--out", run, "--json"))
    assert Path(found["run"]) == run
    assert tables(run) == tables(alone["run"])
    assert Run.open(run).read_manifest().work["made_twice"] == ()


def _killed_after(shards, run, *arguments):
    """Kill a process as soon as there are so many shards; returns how many there are then."""
    line, environment = command(*arguments)
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while len(list((run / "shards").glob("[!.]*"))) < shards and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return len(list((run / "shards").glob("[!.]*")))


def test_a_worker_that_cannot_start_is_named_and_the_driver_goes_on(measure, monkeypatch, tmp_path):
    """Its Python finds another flowscope: none."""
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    with pytest.warns(UserWarning, match=r"Worker 2 has ended: it said nothing\."):
        run = measure(tmp_path / "run", EngineChoice(name="processes", workers=2), pieces=4)
    assert run.read_manifest().work["made_twice"] == ()
    assert len(Journal(run.folder).makings()) == 5


@pytest.mark.filterwarnings("ignore:Worker 2 has ended")
def test_the_driver_has_a_part_of_the_threads_only_while_shards_are_made(
    measure, events, monkeypatch, tmp_path
):
    """What follows is done as by one process, so that its sums are the same, and faster."""
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(64)  # more than a worker's part of the cores of any machine of a test
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    try:
        measure(tmp_path / "run", EngineChoice(name="processes", workers=2))
        assert events.threads == {"draws": 3, "alone": 64}
        assert torch.get_num_threads() == 64
    finally:
        torch.set_num_threads(before)


def test_a_worker_whose_driver_has_ended_ends_and_leaves_no_temporary_files(tmp_path):
    planned = flowscope("audit", *SMALL, "--plan", "--out", tmp_path / "runs", "--json")
    run, temporary = json.loads(planned.stdout)["run"], tmp_path / "temporary"
    temporary.mkdir()
    worker = subprocess.Popen(
        [sys.executable, "-m", "flowscope.lab.engines.working", run, "1/1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)},
    )
    deadline = time.monotonic() + 120
    while not list(temporary.glob("flowscope-worker-*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    worker.stdin.close()  # as it is closed when the driver ends in any way
    assert worker.wait(60) == 4
    assert not list(temporary.glob("flowscope-worker-*"))
