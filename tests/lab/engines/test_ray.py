"""Ray actors on this machine: the tables of one process."""

import pytest
from tests.lab.engines.test_processes import SMALL, alone, document, flowscope, tables

pytest.importorskip("ray", reason="Ray is an extra: pip install flowscope[ray]")
assert alone


def test_two_ray_workers_write_the_tables_of_one_process(alone, tmp_path):
    done = flowscope("audit", *SMALL, "--engine", "ray", "--workers", "2", "--json",
                     "--out", tmp_path)  # fmt: skip
    found = document(done)
    assert tables(found["run"]) == tables(alone["run"])
    assert (found["work"]["engine"], found["work"]["workers"]) == ("ray", 2)
    assert found["work"]["made_twice"] == []
