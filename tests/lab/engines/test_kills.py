"""SIGKILL at random moments of drivers and workers of one run: no shard twice, same tables."""

import os
import random
import signal
import time
import traceback

import pytest
from tests.lab.engines import crowd
from tests.lab.engines.crowd import CROWD, CrowdConfig

from flowscope.lab import engine
from flowscope.lab.engines.choice import Share
from flowscope.lab.engines.journal import Journal
from flowscope.lab.engines.working import work
from flowscope.records import Run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
PIECES = 12


def child(job):
    """Process that does a job and ends."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _slowly(name, seed, number):
    time.sleep(0.004)
    return true_draws(name, seed, number)


true_draws = crowd.drawn


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("seed", range(6))
def test_killed_drivers_and_workers_leave_a_run_that_finishes(seed, monkeypatch, tables, tmp_path):
    monkeypatch.setattr(crowd, "drawn", _slowly)
    draw, config = random.Random(seed), CrowdConfig.resolved({"pieces": PIECES})
    whole = engine.run(CROWD, config, folder=tmp_path / "whole").run
    run = engine.planned(CROWD, config, folder=tmp_path / "run")

    def drive():
        engine.run(CROWD, config, folder=run)

    jobs = [drive, lambda: work(run, Share(1, 2)), lambda: work(run, Share(2, 2))]
    victims = draw.sample(range(3), draw.choice([1, 2, 3]))
    pids = [child(job) for job in jobs]
    for victim in victims:
        time.sleep(draw.uniform(0.0, 0.08))
        os.kill(pids[victim], signal.SIGKILL)
    for place, pid in enumerate(pids):
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0 or place in victims
    finished = engine.run(CROWD, config, folder=run).run
    assert tables(run) == tables(whole.folder)
    assert finished.read_manifest().work["made_twice"] == ()
    assert not (run / "workers" / "claims").exists()
    names = {making.task for making in Journal(run).makings()}
    assert len(names) >= PIECES + 1 - len(victims)  # one that is killed may not have noted its last
    Run.open(run).verify()
