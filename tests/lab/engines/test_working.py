"""Workers on one run folder: any order and number of them, any end, the same tables."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.engines.crowd import CROWD, CrowdConfig

from flowscope.errors import RecordError, WorkerError
from flowscope.lab import engine
from flowscope.lab.engines import working
from flowscope.lab.engines.choice import Share
from flowscope.lab.engines.journal import Journal
from flowscope.lab.engines.working import work
from flowscope.lab.running import writing
from flowscope.lab.running.lock import FolderLock
from flowscope.records import Run

PIECES = 5


def test_a_worker_makes_every_shard_and_no_table(plan, events, tmp_path):
    run = plan(tmp_path / "run", pieces=PIECES)
    assert work(run).made == PIECES + 1
    assert sorted(events.made) == [*(f"draw-{k}" for k in range(PIECES)), "total"]
    assert events.walked == ["draws", "again"]  # the last stage gives no shards
    assert not (run / "tables").exists()
    assert work(run).made == 0  # nothing is left, and that is no error


def test_the_driver_finds_what_workers_made_and_counts_it(plan, measure, events, tables, tmp_path):
    whole = measure(tmp_path / "whole", pieces=PIECES)
    run = plan(tmp_path / "run", pieces=PIECES)
    work(run)
    events.made.clear()
    finished = measure(run, pieces=PIECES)
    assert not events.made
    assert tables(run) == tables(whole.folder)
    found = finished.read_manifest().work
    assert (found["shards"], found["made_twice"], found["failures"]) == (PIECES + 1, (), {})
    assert 0 < found["serial_share"] <= 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), max_size=5),
    st.sets(st.integers(0, PIECES - 1)),
)
def test_any_shares_in_any_order_give_the_same_tables(shares, lost):
    """Shares overlap, are missing, are more than the shards; some shards are lost in between."""
    from tests.lab.engines import crowd

    crowd.EVENTS = crowd.Events()
    with tempfile.TemporaryDirectory() as folder:
        config = CrowdConfig.resolved({"pieces": PIECES})
        run = engine.planned(CROWD, config, folder=Path(folder) / "run")
        for place, (part, parts) in enumerate(shares):
            work(run, Share(min(part, parts), parts))
            if place == 0:
                for number in lost:
                    for file in (run / "shards").glob(f"draw-{number}--*"):
                        file.unlink()
        engine.run(CROWD, config, folder=run)
        alone = engine.run(CROWD, config, folder=Path(folder) / "alone").run
        assert _bytes(run) == _bytes(alone.folder)
        made = Counter(making.task.partition("--")[0] for making in Journal(run).makings())
        again = {f"draw-{number}" for number in lost} if shares else set()
        assert {name for name, count in made.items() if count > 1} == again


def _bytes(run):
    return {path.name: path.read_bytes() for path in (run / "tables").iterdir()}


@pytest.mark.parametrize("share", ["0/4", "5/4", "x", "3", "1/0", "-1/2", ""])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"--share takes a part and the number of parts, e\.g\."):
        Share.of(share)


@settings(max_examples=50)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 40))
def test_a_share_orders_every_piece_once(part, parts, count):
    assert sorted(Share(min(part, parts), parts).order(count)) == list(range(count))


def test_shares_begin_apart():
    assert [Share(k, 4).order(8)[0] for k in (1, 2, 3, 4)] == [0, 2, 4, 6]


# ---- who may work


def test_a_worker_of_other_versions_is_refused_before_it_writes(plan, monkeypatch, tmp_path):
    run = plan(tmp_path / "run")
    before = sorted(path.name for path in run.rglob("*"))
    monkeypatch.setattr(writing, "library_versions", lambda: {"torch": "99"})
    with pytest.raises(RecordError, match=r"versions\.torch is .* in the run and 99 here"):
        work(run)
    assert sorted(path.name for path in run.rglob("*")) == before


def test_a_worker_with_another_model_is_refused_before_it_writes(plan, events, tmp_path):
    run = plan(tmp_path / "run")
    before = sorted(path.name for path in run.rglob("*"))
    events.start = 2.0
    with pytest.raises(
        RecordError, match=r"marks\.start is 1\.0 in the run and 2\.0 here.*Nothing"
    ):
        work(run)
    assert sorted(path.name for path in run.rglob("*")) == before
    assert not events.made


def test_a_run_that_was_not_planned_is_refused_with_the_way_out(measure, tmp_path):
    measure(tmp_path / "run")
    with pytest.raises(RecordError, match=r"no plan.* with --plan"):
        work(tmp_path / "run")


def test_a_damaged_plan_is_refused(plan, tmp_path):
    run = plan(tmp_path / "run")
    (run / "workers" / "plan.json").write_text("{", encoding="utf-8")
    with pytest.raises(RecordError, match=r"plan\.json should be the plan of a run"):
        work(run)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_made(
    plan, events, monkeypatch, tmp_path
):
    run = plan(tmp_path / "run")

    def refuse(path):
        raise RecordError(f"{path} cannot be written: read-only")

    from flowscope.lab.engines import journal

    monkeypatch.setattr(journal, "make_folder", refuse)
    with pytest.raises(RecordError, match="read-only"):
        work(run)
    assert not events.made


def test_workers_come_in_beside_one_driver(plan, tmp_path):
    run = plan(tmp_path / "run")
    with FolderLock.take(run):
        assert work(run).made == PIECES + 1


# ---- what goes wrong


def test_a_worker_ends_with_its_failure_and_another_takes_the_shard(
    plan, measure, events, tables, tmp_path
):
    run = plan(tmp_path / "run")
    events.wrong["draw-2"] = [RecordError("No space left on device")]  # a full disk on one worker
    with pytest.raises(RecordError, match="No space left"):
        work(run)
    assert "draw-2" not in events.made
    assert work(run).made == 4
    finished = measure(run)
    assert finished.read_manifest().work["failures"] == {}  # it starts anew and none failed
    assert tables(run) == tables(measure(tmp_path / "alone").folder)


def test_the_third_failure_of_a_shard_ends_the_run_and_keeps_the_others(
    plan, measure, events, tables, tmp_path
):
    run = plan(tmp_path / "run")
    events.wrong["draw-3"] = [RuntimeError("the device is gone") for _ in range(3)]
    with pytest.raises(WorkerError, match=r"draw-3.* failed 3 times.* the device is gone"):
        measure(run)
    assert [name for name in events.made if name != "draw-3"] == [f"draw-{k}" for k in (0, 1, 2, 4)]
    measure(run)  # the same command goes on
    assert sorted(events.made) == [*(f"draw-{k}" for k in range(PIECES)), "total"]
    assert tables(run) == tables(measure(tmp_path / "alone").folder)


def test_what_is_refused_on_purpose_is_not_tried_again(plan, measure, events, tmp_path):
    from flowscope.errors import InvalidInputError

    run = plan(tmp_path / "run")
    events.wrong["draw-1"] = [InvalidInputError("no"), InvalidInputError("no")]
    with pytest.raises(InvalidInputError, match="no"):
        measure(run)
    assert not events.wrong["draw-1"]
    assert not Journal(run).failed_tasks()


def test_a_shard_whose_writer_died_half_way_is_not_there(plan, events, tables, measure, tmp_path):
    run = plan(tmp_path / "run")
    work(run)
    (shard,) = (run / "shards").glob("draw-1--*")
    (shard.parent / f".{shard.name}.00.partial").write_bytes(shard.read_bytes()[:40])
    shard.unlink()
    events.made.clear()
    measure(run)
    assert events.made == ["draw-1"]
    assert not list((run / "shards").glob(".*"))
    assert tables(run) == tables(measure(tmp_path / "alone").folder)


def test_a_damaged_shard_is_made_again(plan, events, measure, tmp_path):
    run = plan(tmp_path / "run")
    work(run)
    (shard,) = (run / "shards").glob("draw-1--*")
    shard.write_bytes(shard.read_bytes()[:-3])
    events.made.clear()
    with pytest.warns(UserWarning, match="draw-1"):
        measure(run)
    assert events.made == ["draw-1"]
    assert measure(run).read_manifest().work["made_twice"][0].startswith("draw-1--")


def test_a_lost_manifest_is_made_again_beside_the_folder_of_workers(plan, measure, tmp_path):
    run = plan(tmp_path / "run")
    work(run)
    (run / "manifest.json").unlink()
    with pytest.warns(UserWarning, match=r"had no manifest\.json"):
        measure(run)
    Run.open(run).verify()


def test_a_relative_text_is_found_from_where_the_run_was_planned(plan, monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = plan(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    seen = []
    prepared = working.engine.prepared
    monkeypatch.setattr(
        working.engine, "prepared", lambda *a: seen.append(Path.cwd()) or prepared(*a)
    )
    work(run)
    assert seen == [tmp_path / "here"]
    assert Path.cwd() == tmp_path
    shutil.rmtree(tmp_path / "here")
    assert work(run).made == 0
