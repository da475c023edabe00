"""Time of the stages of a run: adds up, survives errors, decides nothing."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.lab import toy
from tests.lab.toy import TOY, ToyConfig

from flowscope.lab import engine
from flowscope.lab.running.clock import StageClock
from flowscope.lab.running.identity import run_key
from flowscope.records import Manifest


def clock(*ticks):
    times = iter(ticks)
    return StageClock(lambda: next(times))


def test_inner_part_stops_the_outer_one():
    timer = clock(0.0, 1.0, 4.0, 5.0)
    with timer.part("outer", "cpu"), timer.part("inner", "cuda"):
        pass
    parts = timer.parts()
    assert {name: part["seconds"] for name, part in parts.items()} == {"outer": 2.0, "inner": 3.0}
    assert parts["inner"]["device"] == "cuda"
    assert sum(part["share"] for part in parts.values()) == pytest.approx(1.0)


def test_time_between_parts_counts_for_none():
    timer = clock(0.0, 1.0, 10.0, 12.0)
    for name in ("first", "second"):
        with timer.part(name, "cpu"):
            pass
    assert [part["seconds"] for part in timer.parts().values()] == [1.0, 2.0]


def test_part_that_raises_is_timed_and_closed():
    timer = clock(0.0, 1.0, 3.0, 7.0)
    with (
        timer.part("outer", "cpu"),
        pytest.raises(ValueError, match="broken"),
        timer.part("inner", "cpu"),
    ):
        raise ValueError("broken")
    assert [part["seconds"] for part in timer.parts().values()] == [5.0, 2.0]


def test_manifest_holds_the_time_of_every_stage(tmp_path):
    result = engine.run(TOY, ToyConfig.resolved({}), folder=tmp_path / "run")
    names = ["loading", *(stage.name for stage in TOY.stages)]
    assert list(result.stages) == names
    assert sum(part["share"] for part in result.stages.values()) == pytest.approx(1.0)
    manifest = result.run.read_manifest()
    assert Manifest.from_json(manifest.to_json()).stages == manifest.stages


def test_times_do_not_enter_the_key_of_a_run():
    part = {"seconds": 1.0, "device": "cpu", "share": 1.0}
    assert run_key(Manifest(stages={"a": part})) == run_key(Manifest())


def test_stage_that_measures_is_on_the_device_of_the_subject(tmp_path, monkeypatch):
    prepare = toy.prepare

    def on_gpu(config, given):
        config, subject = prepare(config, given)
        return config, replace(subject, device="cuda:0")

    monkeypatch.setattr(toy, "prepare", on_gpu)
    result = engine.run(TOY, ToyConfig.resolved({}), folder=tmp_path / "run")
    devices = {name: part["device"] for name, part in result.stages.items()}
    assert devices == {"loading": "cpu"} | {stage.name: "cuda:0" for stage in TOY.stages}


class _Cuda:
    """A GPU that is 2 seconds behind the program until the program waits for it."""

    def __init__(self, initialised=True):
        self.time, self.waited, self._initialised = 0.0, [], initialised

    def is_available(self):
        return True

    def is_initialized(self):
        return self._initialised

    def device_count(self):
        return 2

    def memory_reserved(self, index):
        return [1024, 0][index]

    def synchronize(self, index):
        self.waited.append(index)
        self.time += 2.0


def test_part_ends_when_the_devices_in_use_have_finished(monkeypatch):
    cuda = _Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    timer = StageClock(lambda: cuda.time)
    with timer.part("pass", "cuda"):
        pass
    assert timer.parts()["pass"]["seconds"] == 2.0
    assert cuda.waited == [0, 0]


def test_clock_starts_no_gpu(monkeypatch):
    cuda = _Cuda(initialised=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with StageClock().part("pass", "cpu"):
        pass
    assert cuda.waited == []
