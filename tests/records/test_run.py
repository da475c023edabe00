import errno
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.faults import failure, fault_at
from tests.records.strategies import measurements, portrait, verdicts

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import Manifest, Measurement, Run, ShardKey, files
from flowscope.records.storage.documents import sealed

NAMES_REFUSED = [
    "", ".", "..", "../x", "a/b", "/etc/x", "a\\b", ".hidden", "_own", "-x", "a b", "é",
    "x\n", "x\0", "a" * 101, "x.", "C:x", 3, None,
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", Manifest(seeds={"all": 7}))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return Run.create(tmp_path_factory.mktemp("shared") / "run", Manifest())


def large(value=0.0, cells=2000):
    return Measurement(
        name="m", values=np.full(cells, value), axes=("token",), unit="1", n=1,
        estimator="mean", dtype="float64",
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(measurements(), max_size=3))
def test_measurements_come_back_bit_for_bit(shared, written):
    shared.write_measurements(written)
    assert portrait(Run.open(shared.folder).read_measurements()) == portrait(written)


@settings(deadline=None, max_examples=40)
@given(st.lists(verdicts(), max_size=3))
def test_verdicts_come_back_bit_for_bit(shared, written):
    shared.write_verdicts(written)
    assert portrait(Run.open(shared.folder).read_verdicts()) == portrait(written)


def test_a_nan_keeps_its_payload_and_minus_zero_its_sign(run):
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000], np.uint64)
    odd_ones = replace(large(cells=3), values=odd.view(np.float64))
    run.write_measurements([odd_ones])
    np.testing.assert_array_equal(run.read_measurements()[0].numbers().view(np.uint64), odd)


def test_small_arrays_are_readable_in_the_document_and_large_ones_are_beside_it(run):
    path = run.write_measurements([large(0.5, cells=3)])
    assert json.loads(path.read_text())["measurements"][0]["values"]["values"] == [0.5] * 3
    assert not list(run.folder.glob("arrays/*"))
    run.write_measurements([large(0.5)])
    assert len(list(run.folder.glob("arrays/_measurements-*.safetensors"))) == 1
    run.write_measurements([large(0.25)])
    assert len(list(run.folder.glob("arrays/*"))) == 1
    assert run.arrays() == ()
    assert run.read_measurements()[0].numbers()[0] == 0.25
    run.write_measurements([])
    assert run.read_measurements() == ()
    assert not list(run.folder.glob("arrays/*"))


def test_the_document_of_measurements_is_strict_json(run):
    path = run.write_measurements([large(np.nan, cells=2), large(np.inf, cells=2)])

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(path.read_text(), parse_constant=refuse)


def test_measurements_never_written_are_refused_in_words(run):
    with pytest.raises(RecordError, match="this run has written no measurements"):
        run.read_measurements()
    with pytest.raises(RecordError, match="this run has written no verdicts"):
        run.read_verdicts()
    with pytest.raises(
        InvalidInputError, match="measurements must be Measurement objects, found float"
    ):
        run.write_measurements([3.0])
    with pytest.raises(
        InvalidInputError, match="verdicts must be Verdict objects, found Measurement"
    ):
        run.write_verdicts([large()])


def test_a_whole_document_that_holds_no_measurements_is_refused_in_words(run):
    wrong = {"arrays": {"unavailable": "all arrays are inline"}, "measurements": [{"name": "m"}]}
    (run.folder / "measurements.json").write_text(sealed("measurements", wrong))
    with pytest.raises(RecordError, match=r"measurements.json holds no valid measurements: 'unit'"):
        run.read_measurements()


def test_an_array_lost_or_changed_beside_the_measurements_is_found(run):
    run.write_measurements([large()])
    (beside,) = run.folder.glob("arrays/*")
    content = bytearray(beside.read_bytes())
    content[-1] ^= 1
    beside.write_bytes(content)
    with pytest.raises(RecordError, match=r"_measurements-.* is damaged: its recorded sha256 is"):
        run.read_measurements()
    beside.unlink()
    with pytest.raises(RecordError, match=r"_measurements-.* is not there"):
        run.read_measurements()


def test_arrays_come_back_and_a_missing_set_names_those_there_are(run):
    run.write_arrays("gram", {"b": np.eye(2), "a": np.zeros(0)})
    assert portrait(run.read_arrays("gram")) == portrait({"a": np.zeros(0), "b": np.eye(2)})
    assert run.arrays() == ("gram",)
    with pytest.raises(
        RecordError, match=r"there is no .*x.safetensors: the arrays of this run are gram"
    ):
        run.read_arrays("x")


def test_any_file_of_a_run_that_is_truncated_is_refused_by_name(run):
    key = ShardKey(name="0", fingerprint="0" * 8)
    written = {
        run.write_table("t", pd.DataFrame({"x": [1.0]})): lambda: run.read_table("t"),
        run.write_arrays("a", {"x": np.zeros(9)}): lambda: run.read_arrays("a"),
        run.write_measurements([large(cells=3)]): run.read_measurements,
        run.write_verdicts([]): run.read_verdicts,
        run.write_shard(key, {"x": np.zeros(9)}, {}): lambda: run.read_shard(key),
        run.folder / "manifest.json": run.read_manifest,
    }
    for path, read in written.items():
        content = path.read_bytes()
        for damaged in (content[:-9], b""):
            path.write_bytes(damaged)
            with pytest.raises(RecordError, match=f"{path.name} is damaged"):
                read()


def test_every_file_says_its_schema(run):
    run.write_table("t", pd.DataFrame({"x": [1.0]}))
    run.write_arrays("a", {"x": np.zeros(2)})
    run.write_measurements([large()])
    run.write_verdicts([])
    run.write_shard(ShardKey(name="0", fingerprint="0" * 8), {}, {})
    for path in run.folder.rglob("*.json"):
        assert json.loads(path.read_text())["schema"] == 1
    files = list(run.folder.rglob("*.safetensors"))
    assert len(files) == 3
    for path in files:
        assert b'\\"schema\\": 1' in path.read_bytes()
    with_description = {path.with_suffix(".json") for path in run.folder.rglob("*.csv")}
    assert all(path.exists() for path in with_description)


def test_the_manifest_is_updated_part_by_part(run):
    run.update_manifest(device="cpu")
    run.update_manifest(wall_time=3.5)
    manifest = Run.open(run.folder).read_manifest()
    assert (manifest.seeds["all"], manifest.device, manifest.wall_time) == (7, "cpu", 3.5)
    with pytest.raises(InvalidInputError, match=r"no such part: .*wall_tim"):
        run.update_manifest(wall_tim=3.5)


def test_a_run_of_a_newer_schema_is_refused_with_what_to_do(run):
    path = run.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 3}))
    with pytest.raises(
        RecordError, match="made by schema 3, this flowscope reads up to 1: upgrade flowscope"
    ):
        Run.open(run.folder)


def test_opening_what_is_no_run_is_refused_in_words(tmp_path):
    with pytest.raises(RecordError, match=r"there is no folder .*nowhere: give a run folder"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(
        RecordError, match=r"no run: expected a manifest.json in it, found nothing\."
    ):
        Run.open(tmp_path)
    for k in range(7):
        (tmp_path / f"f{k}").write_text("x")
    with pytest.raises(RecordError, match="found f0, f1, f2, f3, f4 and 2 more"):
        Run.open(tmp_path)
    with pytest.raises(RecordError, match="should be a run folder, found a file"):
        Run.open(tmp_path / "f0")
    (tmp_path / "manifest.json").write_text('{"hello": 1}')
    with pytest.raises(RecordError, match="damaged or no flowscope file"):
        Run.open(tmp_path)


def test_making_a_run_where_something_is_already_is_refused_in_words(run, tmp_path):
    with pytest.raises(RecordError, match=r"is a run already: open it with Run.open"):
        Run.create(run.folder, Manifest())
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="file should be a folder, found a file"):
        Run.create(tmp_path / "file", Manifest())
    with pytest.raises(RecordError, match="file should be a folder, found a file"):
        Run.create(tmp_path / "file" / "run", Manifest())
    with pytest.raises(RecordError, match="is not empty and no run, it holds file, run"):
        Run.create(tmp_path, Manifest())
    with pytest.raises(InvalidInputError, match="expected a Manifest, found dict"):
        Run.create(tmp_path / "new", {})
    assert not (tmp_path / "new").exists()
    with pytest.raises(RecordError, match="File name too long"):
        Run.create(tmp_path / ("x" * 300), Manifest())


def test_a_run_in_an_empty_folder_or_after_a_killed_creation_is_fine(tmp_path):
    (tmp_path / ".manifest.json.0123.partial").write_text("half")
    assert Run.create(tmp_path, Manifest()).remove_leftovers() == 1


def test_leftovers_are_found_while_others_remove_folders(run, monkeypatch):
    """A driver comes in beside workers, which make and remove the folders of their claims."""
    (run.folder / "gone").mkdir()
    (run.folder / "more").mkdir()
    (run.folder / "more" / ".table.csv.0123.partial").write_text("half")
    scan = os.scandir

    def scandir(path="."):
        if Path(path).name == "gone":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert run.remove_leftovers() == 1


def test_of_two_creations_at_once_one_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    true = Path.mkdir

    def beaten(path, *args, **kwargs):
        if path == folder:
            true(path)
        true(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", beaten)
    with pytest.raises(
        RecordError, match="should be a new folder, another process has just made it"
    ):
        Run.create(folder, Manifest())
    assert folder.is_dir()


@pytest.mark.parametrize("name", NAMES_REFUSED)
def test_a_name_that_is_no_plain_file_name_is_refused(run, name):
    for attempt in (
        lambda: run.write_table(name, pd.DataFrame({"x": [1]})),
        lambda: run.read_table(name),
        lambda: run.write_arrays(name, {}),
        lambda: run.read_arrays(name),
        lambda: ShardKey(name=name, fingerprint="0" * 8),
    ):
        with pytest.raises(InvalidInputError, match="must be 1 to 100 of the characters A-Z"):
            attempt()
    assert [path.name for path in run.folder.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "0", "x" * 100])
def test_a_plain_name_is_fine(run, name):
    run.write_arrays(name, {"x": np.zeros(1)})
    assert run.arrays() == (name,)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, r"needs \d+ bytes and the disk is full \(\d+ bytes free\). Free some space"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "expected a folder this user may write to, found: Permission denied"),
        (errno.EROFS, "expected a folder this user may write to, found: Read-only file system"),
        (errno.EIO, "manifest.json could not be written: Input/output error. Check the disk"),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_write_that_fails_says_why_and_keeps_the_old_file(run, call, number, sentence):
    with pytest.raises(RecordError, match=sentence), fault_at(1, failure(number), only=(call,)):
        run.update_manifest(device="cpu")
    assert [path.name for path in run.folder.iterdir()] == ["manifest.json"]
    assert run.read_manifest().seeds["all"] == 7


def test_a_folder_that_cannot_be_flushed_is_said_unless_the_system_has_no_such_thing(run):
    with (
        pytest.raises(RecordError, match=r"could not be flushed to the disk .* may be lost if"),
        fault_at(2, failure(errno.EIO), only=("fsync",)),
    ):
        run.update_manifest(device="cpu")
    assert run.read_manifest().device == "cpu"
    with fault_at(2, failure(errno.EINVAL), only=("fsync",)):
        run.update_manifest(device="cuda")
    assert run.read_manifest().device == "cuda"


def test_what_cannot_be_read_is_said(run, monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("read_bytes", "exists", "is_dir"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, forbidden)
            with pytest.raises(RecordError, match=r"found: Permission denied. Check the path"):
                Run.open(run.folder)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", forbidden)
        (run.folder / "manifest.json").unlink()
        with pytest.raises(RecordError, match="cannot be listed: Permission denied"):
            Run.create(run.folder, Manifest())


def test_files_are_shared_like_any_other_file(run):
    mask = os.umask(0)
    os.umask(mask)
    assert (run.folder / "manifest.json").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_run_survives_a_change_of_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [Run.create("here", Manifest()), Run.open("here")]
    monkeypatch.chdir("/")
    assert [run.read_manifest().schema for run in runs] == [1, 1]


def interrupted_by(write, monkeypatch, module, ending):
    """Let ``write`` happen in the middle of a read, before the file of that ending is read."""
    true, todo = files.read_file, [write]

    def read_file(path):
        if path.name.endswith(ending) and todo:
            todo.pop()()
        return true(path)

    monkeypatch.setattr(f"flowscope.records.{module}.read_file", read_file)
    return todo


def test_a_table_replaced_in_the_middle_of_a_read_is_read_whole(run, monkeypatch):
    run.write_table("t", pd.DataFrame({"x": [1]}))
    new = pd.DataFrame({"x": ["2"]})
    todo = interrupted_by(lambda: run.write_table("t", new), monkeypatch, "tables", ".csv")
    assert run.read_table("t")["x"].tolist() == ["2"]
    assert not todo


def test_measurements_replaced_in_the_middle_of_a_read_are_read_whole(run, monkeypatch):
    run.write_measurements([large(1.0)])
    replacement = lambda: run.write_measurements([large(2.0)])  # noqa: E731
    todo = interrupted_by(replacement, monkeypatch, "storage.ledger", ".safetensors")
    assert run.read_measurements()[0].numbers()[0] == 2
    assert not todo


@pytest.fixture
def tiny(tmp_path):
    """A real file system of 256 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_is_said_and_nothing_half_written_stays(tiny):
    run = Run.create(tiny / "run", Manifest(seeds={"all": 7}))
    run.write_arrays("a", {"x": np.zeros(1000)})
    before = sorted(path for path in tiny.rglob("*") if path.is_file())
    big = np.random.default_rng(0).random(100_000)
    for attempt in (
        lambda: run.write_arrays("a", {"x": big}),
        lambda: run.write_arrays("b", {"x": big}),
        lambda: run.write_table("t", pd.DataFrame({"x": big})),
        lambda: run.write_measurements([large(cells=100_000)]),
        lambda: run.write_shard(ShardKey(name="0", fingerprint="0" * 8), {"x": big}, {}),
    ):
        with pytest.raises(RecordError, match="the disk is full"):
            attempt()
    assert sorted(path for path in tiny.rglob("*") if path.is_file()) == before
    assert run.read_arrays("a")["x"].tolist() == [0.0] * 1000


def test_a_file_system_that_is_really_read_only_is_said_and_still_read(tiny):
    run = Run.create(tiny / "run", Manifest(seeds={"all": 7}))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    for attempt in (
        lambda: run.update_manifest(device="cpu"),
        lambda: run.write_table("t", pd.DataFrame({"x": [1]})),
        lambda: Run.create(tiny / "deep" / "run", Manifest()),
    ):
        with pytest.raises(RecordError, match="may write to, found: Read-only file system"):
            attempt()
    assert Run.open(run.folder).read_manifest().seeds["all"] == 7


def test_a_file_that_a_reader_takes_for_a_leftover_is_written_again(run, monkeypatch):
    """A process that cleans up removes the temporary file of a living write."""
    true, removed = os.replace, []

    def replace_file(source, target):
        if not removed:
            removed.append(source)
            os.unlink(source)
        true(source, target)

    monkeypatch.setattr(os, "replace", replace_file)
    run.write_table("t", pd.DataFrame({"x": [1.5]}))
    assert removed
    assert run.read_table("t")["x"].tolist() == [1.5]
    assert not list(run.folder.rglob(".*.partial"))


def test_a_temporary_file_that_vanishes_every_time_is_an_error(run):
    def vanish(*_):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", vanish)
        with pytest.raises(RecordError, match="could not be written: No such file"):
            run.update_manifest(device="cpu")
    assert run.read_manifest().seeds["all"] == 7


def test_a_manifest_of_an_earlier_version_has_neither_marks_nor_files(run):
    path = run.folder / "manifest.json"
    document = json.loads(path.read_text())
    parts = {name: document[name] for name in document if name not in ("marks", "files", "sha256")}
    path.write_text(sealed(parts.pop("kind"), parts, parts.pop("schema")))
    manifest = Run.open(run.folder).read_manifest()
    assert manifest.seeds["all"] == 7
    assert (manifest.marks.reason, manifest.files.reason) == ("not given", "not given")
    assert run.strange_files() == ()


def test_the_files_of_a_run_are_those_that_hold_its_numbers(run):
    run.write_table("t", pd.DataFrame({"x": [1.0]}))
    run.write_arrays("a", {"x": np.zeros(2)})
    run.write_measurements([large()])
    run.write_verdicts([])
    run.write_shard(ShardKey(name="0", fingerprint="0" * 8), {}, {})
    (run.folder / "report.html").write_text("page")
    found = run.file_hashes()
    beside = next((run.folder / "arrays").glob("_measurements-*")).name
    expected = {"measurements.json", "verdicts.json", "tables/t.csv", "arrays/a.safetensors"}
    assert found.keys() == expected | {f"arrays/{beside}"}
    assert found["tables/t.csv"] == files.file_hash(run.folder / "tables" / "t.csv")


def test_a_run_is_made_again_from_remains_and_from_nothing_else(run, tmp_path):
    key = ShardKey(name="0", fingerprint="0" * 8)
    run.write_shard(key, {"x": np.zeros(1)}, {})
    run.write_table("t", pd.DataFrame({"x": [1]}))
    run.write_arrays("a", {"x": np.zeros(1)})
    with pytest.raises(RecordError, match="holds no remains of a run"):
        Run.recreate(run.folder, Manifest())
    (run.folder / "manifest.json").unlink()
    again = Run.recreate(run.folder, Manifest(seeds={"all": 8}))
    assert (again.tables(), again.arrays(), again.shard_done(key)) == ((), (), True)
    assert again.read_manifest().seeds["all"] == 8
    (run.folder / "manifest.json").unlink()
    (run.folder / "thesis.txt").write_text("x")
    with pytest.raises(RecordError, match=r"holds no remains of a run, but .*thesis\.txt"):
        Run.recreate(run.folder, Manifest())
