"""Arrays in safetensors files that prove themselves, and the hash of a set of arrays.

A safetensors file of a run has one metadata key, ``flowscope``: a JSON note with the schema,
the kind of the file and a sha256 over that note and over every array (name, dtype, shape,
bytes). One key, because safetensors writes several in random order and the same content
should give the same file.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.frozen import frozen_array, text
from flowscope.records.storage.documents import SCHEMA, check_schema, damaged, fingerprint, plain

__all__ = ["array_hash", "arrays_to_bytes", "bytes_to_arrays"]


def array_hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Sha256 over name, dtype, shape and bytes of each array, whatever their order.

    The bytes are those of the C-ordered little-endian array, so the hash does not depend on
    the machine or the memory layout; it does on every bit, the sign of zero included.

    Raises
    ------
    InvalidInputError
        A dtype without bytes of its own (Python objects).

    Examples
    --------
    >>> one, two = np.zeros(2), np.ones(3)
    >>> array_hash({"a": one, "b": two}) == array_hash({"b": two, "a": one})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        for part in _parts(name, np.asarray(arrays[name])):
            # Its length before each part: otherwise ("ab", "c") and ("a", "bc") were the same.
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _parts(name: str, array: NDArray[Any]) -> Iterator[bytes]:
    if array.dtype.kind not in "biufcU":
        raise InvalidInputError(
            f"array {name!r} has dtype {array.dtype}, expected numbers or text: convert it."
        )
    little = array.dtype.newbyteorder("<")
    yield text(name, "the name of an array", empty=True).encode()
    yield little.str.encode()
    yield repr(tuple(int(length) for length in array.shape)).encode()
    yield array.astype(little, copy=False).tobytes("C")


def arrays_to_bytes(
    kind: str, arrays: Mapping[str, Any], note: Mapping[str, Any] | None = None
) -> bytes:
    """Content of a safetensors file that proves itself; ``note`` is any JSON-like mapping.

    Raises
    ------
    InvalidInputError
        A name is not text or is ``__metadata__`` (safetensors' own), or an array is not of
        booleans, integers or floats up to 64 bits.
    """
    kept = {
        text(name, "the name of an array"): frozen_array(value, f"array {name!r}")
        for name, value in arrays.items()
    }
    if "__metadata__" in kept:
        raise InvalidInputError("an array cannot be named '__metadata__': rename it.")
    label = {"schema": SCHEMA, "kind": kind, "note": plain(note or {})}
    label["sha256"] = _seal(label, kept)
    return safetensors.numpy.save(kept, metadata={"flowscope": json.dumps(label, sort_keys=True)})


def bytes_to_arrays(
    content: bytes, kind: str, source: object
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and note of a safetensors file, verified.

    Raises
    ------
    RecordError
        Not a flowscope safetensors file of this kind; of a newer schema; or changed since it
        was written.
    """
    try:
        label = _label(content)
        check_schema(label["schema"], source)
        arrays = safetensors.numpy.load(content)
        seal, found = label.pop("sha256"), _seal(label, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError(
            f"{source} is damaged or no flowscope file: expected a whole safetensors file with "
            f"flowscope's note, found {len(content)} bytes that are not ({error!r}). "
            "Restore it from a copy, or delete it and run again."
        ) from error
    if seal != found:
        raise damaged(source, seal, found)
    if label["kind"] != kind:
        raise RecordError(f"{source} holds {label['kind']!r}, expected {kind!r}: is it misplaced?")
    return {name: arrays[name] for name in sorted(arrays)}, label["note"]


def _label(content: bytes) -> dict[str, Any]:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return dict(json.loads(header["__metadata__"]["flowscope"]))


def _seal(label: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    return fingerprint([json.dumps(label, sort_keys=True), array_hash(arrays)])
