"""One writer per run folder: who holds the lock, who may take it over, and that nobody else can."""

import errno
import itertools
import json
import multiprocessing
import os
import signal
import time
import warnings
from dataclasses import replace

import pytest
from tests.records.faults import STEPS, fault_at

from flowscope.errors import RecordError, RecordWarning
from flowscope.lab.running import lock as locking
from flowscope.lab.running.lock import SILENCE, FolderLock, writer_of
from flowscope.lab.running.owner import owner_of_document, this_process
from flowscope.records.files import LOCK, new_file

FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def _dead_owner():
    """An owner whose process has ended and is no longer listed."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: sender.send(this_process().to_json()))
    child.start()
    document = receiver.recv()
    child.join()
    return owner_of_document(document.encode())


def _left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_lock_names_host_process_and_time_and_is_gone_afterwards(tmp_path):
    with FolderLock.take(tmp_path):
        content = json.loads((tmp_path / LOCK).read_text())
        assert content["pid"] == os.getpid()
        assert all(content[name] for name in ("host", "machine", "started", "since", "token"))
        assert f"process {os.getpid()} on {content['host']} since" in writer_of(tmp_path)
        assert _left(tmp_path) == [LOCK]
    assert _left(tmp_path) == []
    assert writer_of(tmp_path) == ""


def test_a_second_writer_is_told_who_holds_the_folder_since_when_and_what_to_do(tmp_path):
    with (
        FolderLock.take(tmp_path) as first,
        pytest.raises(
            RecordError,
            match=rf"being written by process {os.getpid()} on .* since {first.owner.since[:10]}"
            r" .*Wait until it has ended, or choose another folder\. If you are sure that it has "
            r"ended, delete .*writer\.lock",
        ),
    ):
        FolderLock.take(tmp_path)
    assert _left(tmp_path) == []
    FolderLock.take(tmp_path).release()


def test_a_lock_that_is_forgotten_or_left_by_an_error_is_released(tmp_path):
    FolderLock.take(tmp_path)
    with pytest.raises(ZeroDivisionError), FolderLock.take(tmp_path):
        raise ZeroDivisionError
    FolderLock.take(tmp_path).release()


def test_a_folder_that_was_made_for_the_lock_alone_goes_with_it(tmp_path):
    FolderLock.take(tmp_path / "a" / "b").release()
    assert _left(tmp_path) == []
    with FolderLock.take(tmp_path / "a"):
        (tmp_path / "a" / "file").write_text("x")
    assert _left(tmp_path / "a") == ["file"]


def test_the_lock_of_a_killed_process_is_taken_over_and_that_is_said(tmp_path):
    def hold():
        lock = FolderLock.take(tmp_path)
        time.sleep(60)
        lock.release()

    child = FORK.Process(target=hold)
    child.start()
    while not writer_of(tmp_path):
        time.sleep(0.01)
    with pytest.raises(RecordError, match=f"written by process {child.pid}"):
        FolderLock.take(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    while True:  # dead, but still listed: nobody has asked for its end yet
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                lock = FolderLock.take(tmp_path)
            except RecordError:
                continue
        break
    assert f"taken over from process {child.pid}" in str(said[0].message)
    assert "which has ended" in str(said[0].message)
    lock.check()
    child.join()
    with pytest.raises(RecordError, match=f"written by process {os.getpid()}"):
        FolderLock.take(tmp_path)
    lock.release()
    assert _left(tmp_path) == []


def test_a_process_that_has_the_number_of_a_dead_one_does_not_keep_its_lock(tmp_path):
    reused = replace(this_process(), started="1")
    (tmp_path / LOCK).write_text(reused.to_json())
    with pytest.warns(RecordWarning, match="taken over"):
        FolderLock.take(tmp_path).release()


@pytest.mark.parametrize("content", ["elsewhere", "damaged", "empty"])
def test_a_lock_that_cannot_be_looked_up_is_kept_until_it_was_silent_for_long(tmp_path, content):
    owner = replace(this_process(), host="elsewhere", machine="another")
    text = {"elsewhere": owner.to_json(), "damaged": "{", "empty": ""}[content]
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(RecordError, match=r"taken over 10 minutes after its last sign of life"):
        FolderLock.take(tmp_path)
    assert _left(tmp_path) == [LOCK]
    long_ago = time.time() - SILENCE - 5
    os.utime(tmp_path / LOCK, (long_ago, long_ago))
    with pytest.warns(RecordWarning, match=r"gave no sign of life for 60\d seconds"):
        lock = FolderLock.take(tmp_path)
    lock.check()
    lock.release()
    assert _left(tmp_path) == []


def test_the_age_is_measured_by_the_clock_of_the_file_system(tmp_path, monkeypatch):
    owner = replace(this_process(), host="elsewhere", machine="another")
    (tmp_path / LOCK).write_text(owner.to_json())
    monkeypatch.setattr(time, "time", lambda: 1e12)  # the clock of this computer is wrong
    with pytest.raises(RecordError, match="is being written by"):
        FolderLock.take(tmp_path)


def test_the_owner_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "PULSE", 0.01)
    with FolderLock.take(tmp_path):
        os.utime(tmp_path / LOCK, (0, 0))
        deadline = time.monotonic() + 10
        while os.stat(tmp_path / LOCK).st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.stat(tmp_path / LOCK).st_mtime > 0


def test_an_owner_whose_lock_was_taken_over_or_removed_stops(tmp_path):
    lock = FolderLock.take(tmp_path)
    lock.check()
    claim = tmp_path / f".{LOCK}.{lock.owner.token}"
    claim.write_text(this_process().to_json())
    with pytest.raises(RecordError, match=r"was taken over by process .* it stops here"):
        lock.check()
    lock.release()
    assert _left(tmp_path) == [claim.name, LOCK]  # they are the other one's now
    claim.unlink()
    (tmp_path / LOCK).unlink()
    with pytest.raises(RecordError, match="was removed while this process wrote"):
        lock.check()


def test_without_links_the_lock_is_created_exclusively(tmp_path, monkeypatch):
    def absent(*_, **__):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", absent)
    with FolderLock.take(tmp_path) as lock:
        lock.check()
        with pytest.raises(RecordError, match="being written by"):
            FolderLock.take(tmp_path)
    (tmp_path / LOCK).write_text(_dead_owner().to_json())
    with pytest.warns(RecordWarning), FolderLock.take(tmp_path) as lock:
        lock.check()
    assert _left(tmp_path) == []


def test_a_link_whose_answer_was_lost_counts(tmp_path, monkeypatch):
    true = os.link

    def lost(source, target):
        true(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", lost)
    with FolderLock.take(tmp_path) as lock:
        lock.check()
        assert f"process {os.getpid()}" in writer_of(tmp_path)
    assert _left(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    def forbidden():
        raise OSError(errno.EROFS, "Read-only file system")

    with (
        pytest.raises(RecordError, match="may write to, found: Read-only file system"),
        fault_at(1, forbidden, only=("open",)),
    ):
        FolderLock.take(tmp_path)


def test_a_process_killed_at_any_step_leaves_a_folder_that_the_next_can_lock(tmp_path):
    """Also while it takes over a dead lock, and while it releases."""
    calls = (*STEPS, "link", "utime")
    for dead, step in itertools.product((False, True), range(1, 60)):
        folder = tmp_path / f"{dead} {step}"
        folder.mkdir()
        if dead:
            (folder / LOCK).write_text(_dead_owner().to_json())
        child = os.fork()
        if child == 0:
            warnings.simplefilter("ignore")
            with fault_at(step, lambda: os.kill(os.getpid(), signal.SIGKILL), only=calls):
                FolderLock.take(folder).release()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with FolderLock.take(folder) as lock:
                lock.check()
                with pytest.raises(RecordError, match="is being written by"):
                    FolderLock.take(folder)
        assert [name for name in _left(folder) if not name.endswith(".partial")] == []
        if not os.WIFSIGNALED(status):
            assert step > 5
            break


def _race(folder, begin, results):
    """Try to hold the lock 20 times; while it is held nobody else may hold it."""
    warnings.simplefilter("ignore")
    begin.wait()
    held = clashes = 0
    for _ in range(20):
        try:
            lock = FolderLock.take(folder)
        except RecordError:
            continue
        held += 1
        try:
            new_file(folder.parent / "inside", b"")
            time.sleep(0.001)
            os.unlink(folder.parent / "inside")
        except OSError:
            clashes += 1
        if held % 3:
            lock.release()
        else:
            os._exit(clashes)  # dies with the lock
    results.put(held)
    os._exit(clashes)


@pytest.mark.parametrize("start", ["free", "dead"])
def test_of_many_processes_at_once_one_at_a_time_holds_the_lock(tmp_path, start):
    folder = tmp_path / "run"
    folder.mkdir()
    for _ in range(4):
        if start == "dead":
            (folder / LOCK).write_text(_dead_owner().to_json())
        begin, results = FORK.Event(), FORK.Queue()
        children = [FORK.Process(target=_race, args=(folder, begin, results)) for _ in range(6)]
        for child in children:
            child.start()
        begin.set()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 6
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FolderLock.take(folder).release()
        assert _left(folder) == []


def test_a_lock_that_appears_in_the_last_moment_is_respected(tmp_path, monkeypatch):
    true, locks = os.link, []

    def beaten(source, target):
        if not locks:
            monkeypatch.setattr(os, "link", true)
            locks.append(FolderLock.take(tmp_path))
        true(source, target)

    monkeypatch.setattr(os, "link", beaten)
    with pytest.raises(RecordError, match="is being written by"):
        FolderLock.take(tmp_path)
    locks[0].check()
    locks[0].release()
    assert _left(tmp_path) == []


def test_a_forked_child_does_not_release_the_lock_of_its_parent(tmp_path):
    with FolderLock.take(tmp_path) as lock:
        child = FORK.Process(target=lock.release)
        child.start()
        child.join()
        lock.check()
        assert (tmp_path / LOCK).is_file()
    assert not (tmp_path / LOCK).exists()
