"""Shards: what a killed run has finished, so that it resumes where it was.

A shard is one safetensors file, ``NAME--FINGERPRINT.safetensors``, written atomically: complete
or not there. The fingerprint (of whatever decides the shard's content: configuration, weights,
data) is part of the key, so that a shard made under another configuration is simply not this
shard; asking for it says so. Different shards are different files: writers in different
processes do not disturb each other, and two writers of one shard leave the last one whole.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from flowscope.errors import InvalidInputError, RecordError, RecordWarning
from flowscope.records.files import checked_name, is_file, read_file, write_file
from flowscope.records.frozen import Record, frozen_array
from flowscope.records.storage.arrays import arrays_to_bytes, bytes_to_arrays
from flowscope.records.storage.documents import frozen_json, revived

__all__ = ["Shard", "ShardKey", "find_shard", "read_shard", "shard_keys", "write_shard"]

_FINGERPRINT = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardKey(Record):
    """Which piece of a run, made under which configuration.

    Parameters
    ----------
    name
        A plain file name, e.g. ``"0003"``.
    fingerprint
        8 to 64 hexadecimal digits, as :func:`flowscope.records.fingerprint` gives them.

    Raises
    ------
    InvalidInputError
        One of the two is not so.

    Examples
    --------
    >>> ShardKey(name="0003", fingerprint="9f86d081").file
    '0003--9f86d081.safetensors'
    """

    name: str
    fingerprint: str

    def __post_init__(self) -> None:
        checked_name(self.name, "the name of a shard")
        if not isinstance(self.fingerprint, str) or not _FINGERPRINT.fullmatch(self.fingerprint):
            raise InvalidInputError(
                "the fingerprint of a shard must be 8 to 64 hexadecimal digits, found "
                f"{self.fingerprint!r}: use flowscope.records.fingerprint(config)."
            )

    @property
    def file(self) -> str:
        """Name of the shard's file."""
        return f"{self.name}--{self.fingerprint}.safetensors"


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(Record):
    """Arrays and notes of one finished piece of a run; both read-only."""

    key: ShardKey
    arrays: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any]

    def __post_init__(self) -> None:
        arrays = {k: frozen_array(a, f"array {k!r} of a shard") for k, a in self.arrays.items()}
        object.__setattr__(self, "arrays", MappingProxyType(arrays))
        object.__setattr__(self, "meta", frozen_json(self.meta, "the meta of a shard"))


def write_shard(folder: Path, shard: Shard) -> Path:
    """Write a shard atomically; return the path of its file."""
    note = {"name": shard.key.name, "fingerprint": shard.key.fingerprint, "meta": shard.meta}
    path = folder / shard.key.file
    write_file(path, arrays_to_bytes("shard", shard.arrays, note))
    return path


def read_shard(folder: Path, key: ShardKey) -> Shard:
    """Shard of this key, verified.

    Raises
    ------
    RecordError
        There is none (the message says whether there is one of another fingerprint), or the
        file was changed since it was written.
    """
    path = folder / key.file
    if not is_file(path):
        raise _absent(folder, key)
    return _verified(read_file(path), key, path)


def find_shard(folder: Path, key: ShardKey) -> Shard | None:
    """Shard of this key, verified, or None where there is no whole one.

    A damaged or renamed file counts as absent: the shard is made again and replaces it. The
    file is read once.

    Raises
    ------
    RecordError
        There is a file and it cannot be read.
    """
    path = folder / key.file
    if not is_file(path):
        return None
    content = read_file(path)
    try:
        return _verified(content, key, path)
    except RecordError as error:
        reason = str(error).removeprefix(f"{path} ").partition(":")[0]
        warnings.warn(
            f"The shard {path} {reason}. It is measured again.", RecordWarning, stacklevel=4
        )
        return None


def _verified(content: bytes, key: ShardKey, path: Path) -> Shard:
    arrays, note = bytes_to_arrays(content, "shard", path)
    if (note["name"], note["fingerprint"]) != (key.name, key.fingerprint):
        raise RecordError(
            f"{path} holds shard {note['name']} of fingerprint {note['fingerprint']}: it was "
            "renamed. Delete it and run again."
        )
    return Shard(key=key, arrays=arrays, meta=revived(note["meta"]))


def shard_keys(folder: Path) -> tuple[ShardKey, ...]:
    """Keys of all shards of a folder, of every fingerprint, sorted by name."""
    found = []
    for path in sorted(folder.glob("[!.]*--*.safetensors")):
        name, _, fingerprint = path.stem.rpartition("--")
        if _FINGERPRINT.fullmatch(fingerprint):
            found.append(ShardKey(name=name, fingerprint=fingerprint))
    return tuple(found)


def _absent(folder: Path, key: ShardKey) -> RecordError:
    others = [known.fingerprint for known in shard_keys(folder) if known.name == key.name]
    what = f"there is no shard {key.name} of fingerprint {key.fingerprint} in {folder}"
    if others:
        return RecordError(
            f"{what}; there is one of fingerprint {', '.join(others)}, made under another "
            "configuration and not reused. Run the shard again."
        )
    return RecordError(f"{what}: run the shard first.")
