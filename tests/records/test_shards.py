import multiprocessing
import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.faults import killed_at
from tests.records.strategies import CONFIGS, WORDS, arrays, portrait

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import Manifest, Run, ShardKey, fingerprint
from flowscope.records.files import read_file
from flowscope.records.storage import shards

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
HERE = fingerprint({"temperature": 1.0})
ELSEWHERE = fingerprint({"temperature": 2.0})


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", Manifest())


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return Run.create(tmp_path_factory.mktemp("shared") / "run", Manifest())


def key(name, mark=HERE):
    return ShardKey(name=str(name), fingerprint=mark)


def write(run, k):
    run.write_shard(key(k), {"x": np.full(1000, k)}, {"k": k})


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(WORDS, arrays(), max_size=3), CONFIGS)
def test_a_shard_comes_back_bit_for_bit(shared, given_arrays, meta):
    shared.write_shard(key("0"), given_arrays, meta)
    shard = shared.read_shard(key("0"))
    native = {
        name: array.astype(array.dtype.newbyteorder("=")) for name, array in given_arrays.items()
    }
    assert portrait(shard.arrays) == portrait(native)
    assert portrait(shard.meta) == portrait(meta)


@needs_fork
def test_a_killed_run_resumes_with_only_the_missing_shards_absent(run):
    child = os.fork()
    if child == 0:
        for k in range(5):
            write(run, k)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert killed_at(3, lambda: write(run, 5))
    again = Run.open(run.folder)
    finished = [True] * 5 + [False] * 3
    assert [again.shard_done(key(k)) for k in range(8)] == finished
    assert [again.find_shard(key(k)) is not None for k in range(8)] == finished
    for k in range(5, 8):
        write(again, k)
    assert [shard.name for shard in again.shards()] == [str(k) for k in range(8)]
    assert [int(again.read_shard(key(k)).arrays["x"][0]) for k in range(8)] == list(range(8))


def test_a_shard_of_another_configuration_is_absent_and_said(run):
    run.write_shard(key("0", ELSEWHERE), {"x": np.zeros(1)}, {})
    assert not run.shard_done(key("0"))
    assert run.find_shard(key("0")) is None
    with pytest.raises(
        RecordError, match=f"there is one of fingerprint {ELSEWHERE}, made under another"
    ):
        run.read_shard(key("0"))
    with pytest.raises(RecordError, match=r"there is no shard 1 .*: run the shard first"):
        run.read_shard(key("1"))
    run.write_shard(key("0"), {"x": np.ones(1)}, {})
    assert run.read_shard(key("0")).arrays["x"] == 1
    assert run.read_shard(key("0", ELSEWHERE)).arrays["x"] == 0
    assert {shard.fingerprint for shard in run.shards()} == {HERE, ELSEWHERE}


def test_a_resume_reads_a_finished_shard_once(run, monkeypatch):
    write(run, 0)
    reads = count_reads(monkeypatch)
    assert run.shard_done(key(0))
    assert reads == []
    assert run.read_shard(key(0)).arrays["x"][0] == 0
    assert len(reads) == 1
    assert not run.shard_done(key(1))
    assert len(reads) == 1


def test_finding_a_shard_reads_it_once(run, monkeypatch):
    write(run, 0)
    reads = count_reads(monkeypatch)
    assert portrait(run.find_shard(key(0))) == portrait(run.read_shard(key(0)))
    assert len(reads) == 2
    assert run.find_shard(key(1)) is None
    assert len(reads) == 2


def count_reads(monkeypatch):
    reads = []
    monkeypatch.setattr(shards, "read_file", lambda path: reads.append(path) or read_file(path))
    return reads


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def put_another_shard_there(path):
    other = key("other").file
    path.with_name(other).rename(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (flip_a_bit, r"0--.* is damaged: its recorded sha256 is"),
        (cut_in_half, r"0--.* is damaged or no flowscope file"),
        (put_another_shard_there, r"holds shard other of fingerprint .*: it was renamed"),
    ],
)
def test_a_damaged_or_renamed_shard_is_remade_never_trusted(run, spoil, message):
    path = run.write_shard(key(0), {"x": np.zeros(9)}, {})
    run.write_shard(key("other"), {"x": np.ones(9)}, {})
    spoil(path)
    with pytest.raises(RecordError, match=message):
        run.read_shard(key(0))
    assert run.find_shard(key(0)) is None
    write(run, 0)
    assert run.find_shard(key(0)).meta["k"] == 0


def test_a_shard_that_cannot_be_read_is_not_taken_for_absent(run, monkeypatch):
    write(run, 0)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(RecordError, match="should be a readable file, found: Permission denied"):
        run.find_shard(key(0))


def test_other_files_in_the_folder_are_no_shards(run):
    write(run, 0)
    for name in (
        ".0--00000000.safetensors.12.partial",
        "x.safetensors",
        "a--zz.safetensors",
        "note",
    ):
        (run.folder / "shards" / name).write_text("x")
    assert [shard.name for shard in run.shards()] == ["0"]


@pytest.mark.parametrize("name", ["a--b", "a-", "a--", "0.5"])
def test_the_key_is_recovered_from_any_plain_name(run, name):
    run.write_shard(key(name), {}, {})
    assert [(shard.name, shard.fingerprint) for shard in run.shards()] == [(name, HERE)]


@pytest.mark.parametrize("mark", ["", "abc", "Z" * 8, "A" * 8, "0" * 65, None, "../../../x"])
def test_a_fingerprint_that_is_none_is_refused(mark):
    with pytest.raises(InvalidInputError, match="8 to 64 hexadecimal digits, found"):
        ShardKey(name="0", fingerprint=mark)


def test_meta_that_json_cannot_hold_is_refused(run):
    with pytest.raises(InvalidInputError, match=r"the meta of a shard.a is a ndarray, which JSON"):
        run.write_shard(key("0"), {}, {"a": np.zeros(2)})
    assert run.shards() == ()


@needs_fork
def test_writers_of_different_shards_do_not_lose_each_other(run):
    def work(worker):
        for k in range(10):
            write(run, 10 * worker + k)

    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert all(run.read_shard(key(k)).arrays["x"][0] == k for k in range(40))
    assert len(run.shards()) == 40


@needs_fork
def test_writers_of_one_shard_leave_one_of_them_whole(run):
    def work(k):
        for _ in range(10):
            run.write_shard(key("0"), {"x": np.full(1000, k)}, {"k": k})

    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        if (shard := run.find_shard(key("0"))) is not None:
            assert set(shard.arrays["x"]) == {shard.meta["k"]}
    assert [worker.exitcode for worker in workers] == [0] * 4
