import os

from tests.records.faults import failure, fault_at

from flowscope.records.files import write_file


def test_content_is_flushed_before_it_takes_the_name_and_the_folder_after(tmp_path):
    write_file(tmp_path / "x", b"old")
    with fault_at(0, failure()) as calls:
        write_file(tmp_path / "x", b"new")
    assert calls == ["open", "write", "fsync", "replace", "unlink", "open", "fsync"]
    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_write_that_takes_only_part_of_the_bytes_is_continued(tmp_path, monkeypatch):
    true = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: true(handle, content[:3]))
    write_file(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"
