"""Files of the idx format: read as they were written, damaged ones refused."""

import gzip

import numpy as np
import pytest

from flowscope.errors import InvalidInputError
from flowscope.nets.idx import read_idx


def _content(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_array_is_read_as_it_was_written(tmp_path, packed):
    content = gzip.compress(_content(ARRAY)) if packed else _content(ARRAY)
    (tmp_path / "images").write_bytes(content)
    assert (read_idx(tmp_path / "images") == ARRAY).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_content(ARRAY)[:-1], "24 values, as its header says; found 23"),
        (b"\x89PNG\r\n\x1a\n", r"found \[137, 80, 78\]"),
        (b"\x00\x00\x08\x03\x00\x00\x00\x02", "must be an idx file"),
        (b"\x1f\x8bnothing", "could not be read"),
    ],
)
def test_damaged_file_is_refused(tmp_path, content, message):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_idx(tmp_path / "images")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="could not be read"):
        read_idx(tmp_path / "none")
