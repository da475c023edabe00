"""Shards of one piece of work: made once, read afterwards, made again when damaged."""

import numpy as np
import pytest

from flowscope.errors import RecordError
from flowscope.records import Manifest, Run, Shards


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", Manifest(seeds={"all": 0}))


def shards_in(run, **changed):
    return Shards(**{"run": run, "fingerprint": "0" * 16, **changed})


class Maker:
    """Returns the same arrays at every call and counts the calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"b": np.arange(3.0), "a": np.ones((2, 2), np.float32)}


def test_shard_is_made_once_and_equal_when_read(run):
    make = Maker()
    first, second = (shards_in(run).arrays("x", make, {"g": 1}) for _ in range(2))
    assert make.calls == 1
    assert first.keys() == second.keys() == {"a", "b"}
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
        assert values.dtype == second[name].dtype
    assert shards_in(run).find("x").meta == shards_in(run).read("x").meta == {"g": 1}


def test_damaged_shard_is_made_again(run):
    make = Maker()
    shards_in(run).arrays("x", make)
    (path,) = (run.folder / "shards").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert shards_in(run).find("x") is None
    with pytest.raises(RecordError):
        shards_in(run).read("x")
    shards_in(run).arrays("x", make)
    assert make.calls == 2
    assert path.read_bytes() == whole


def test_shards_of_another_fingerprint_are_others(run):
    make = Maker()
    shards_in(run).arrays("x", make)
    shards_in(run, fingerprint="1" * 16).arrays("x", make)
    assert make.calls == 2
    assert len(run.shards()) == 2


def test_nothing_is_written_when_making_fails(run):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards_in(run).arrays("x", fail)
    assert run.shards() == ()
