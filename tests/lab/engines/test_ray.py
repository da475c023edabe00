"""Ray actors on this machine: the tables of one process."""

import pytest
from tests.lab.engines.test_processes import (
    SMALL,
    alone,
    document,
    flowscope,
    made_by_workers,
    tables,
)

from flowscope.lab.engines import ray_actors
from flowscope.lab.engines.choice import EngineChoice

pytest.importorskip("ray", reason="Ray is an extra: pip install flowscope[ray]")
assert alone


def test_two_ray_workers_write_the_tables_of_one_process(alone, tmp_path):
    done = flowscope("audit", *SMALL, "--engine", "ray", "--workers", "2", "--json",
                     "--out", tmp_path)  # fmt: skip
    found = document(done)
    assert tables(found["run"]) == tables(alone["run"])
    assert (found["work"]["engine"], found["work"]["workers"]) == ("ray", 2)
    assert found["work"]["made_twice"] == []


def test_an_actor_makes_all_shards_while_the_driver_does_nothing(alone, monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    choice = EngineChoice(name="ray", workers=2)
    made_by_workers(ray_actors.started, choice, alone, tmp_path)
