"""Files of the idx format, in which MNIST and its relatives are distributed: arrays of bytes."""

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError

__all__ = ["read_idx"]

_BYTES = 8  # type code of unsigned bytes


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """Array of an idx file of unsigned bytes, also a gzipped one.

    Raises
    ------
    InvalidInputError
        When the file cannot be read, is no idx file of bytes, or is shorter than its header says.
    """
    try:
        raw = Path(path).read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInputError(f"The file {path} could not be read: {error}.") from error
    if len(raw) < 8 or raw[:3] != bytes([0, 0, _BYTES]) or len(raw) < 4 + 4 * raw[3]:
        raise InvalidInputError(
            f"{path} must be an idx file of unsigned bytes, which begins with 0, 0, 8; found "
            f"{list(raw[:3])}. Give a file such as train-images-idx3-ubyte."
        )
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", raw[3], 4))
    expected, found = int(np.prod(shape)), len(raw) - 4 - 4 * raw[3]
    if found != expected:
        raise InvalidInputError(
            f"{path} must hold {expected} values, as its header says; found {found}. Download it "
            "again."
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)
