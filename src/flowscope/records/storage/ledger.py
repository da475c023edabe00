"""The measurements and the verdicts of a run: one document each, large arrays beside it.

The file beside is named after its content (``arrays/_measurements-HASH.safetensors``), so a
new one never overwrites the one that the current document names: the new arrays are written
first, then the document is replaced in one step, then the old arrays are removed. Whoever is
killed in between leaves the old document with its arrays, or the new one with its own.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.absence import Unavailable
from flowscope.records.files import is_file, read_file, remove_file, write_file
from flowscope.records.measurement import Measurement
from flowscope.records.storage.archive import (
    document_to_measurement,
    document_to_verdict,
    measurement_to_document,
    verdict_to_document,
)
from flowscope.records.storage.arrays import array_hash, arrays_to_bytes, bytes_to_arrays
from flowscope.records.storage.documents import plain, revived, sealed, unsealed
from flowscope.records.verdict import Verdict

__all__ = ["read_ledger", "write_ledger"]

_INLINE = Unavailable("all arrays are inline")
_KINDS: dict[str, tuple[type, Callable[..., Any], Callable[..., Any]]] = {
    "measurements": (Measurement, measurement_to_document, document_to_measurement),
    "verdicts": (Verdict, verdict_to_document, document_to_verdict),
}


def write_ledger(folder: Path, kind: str, records: Iterable[Any]) -> Path:
    """Replace ``folder/kind.json`` by these records; return its path.

    Raises
    ------
    InvalidInputError
        One of them is of another type.
    RecordError
        They cannot be written; the old document, if any, is still there.
    """
    beside: dict[str, NDArray[Any]] = {}
    documents = _documents(kind, records, beside)
    name = f"_{kind}-{array_hash(beside)[:16]}.safetensors" if beside else _INLINE
    path = folder / f"{kind}.json"
    try:
        if not isinstance(name, Unavailable):
            write_file(folder / "arrays" / name, arrays_to_bytes(kind, beside))
        write_file(path, sealed(kind, {"arrays": plain(name), kind: documents}).encode())
    finally:
        _remove_unnamed_arrays(folder, kind)
    return path


def read_ledger(folder: Path, kind: str) -> tuple[Any, ...]:
    """Records of ``folder/kind.json``, verified.

    Raises
    ------
    RecordError
        None were written, or a file was changed since it was written.
    """
    path = folder / f"{kind}.json"
    if not is_file(path):
        raise RecordError(f"{path} is not there: this run has written no {kind}.")
    while True:
        document = read_file(path)
        content = unsealed(document, kind, path)
        try:
            beside = _arrays_beside(folder, kind, revived(content["arrays"]))
        except RecordError:
            if read_file(path) == document:  # else it was replaced between the two reads
                raise
            continue
        try:
            return tuple(_KINDS[kind][2](record, beside) for record in content[kind])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path} holds no valid {kind}: {error}. Run again.") from error


def _arrays_beside(folder: Path, kind: str, name: str | Unavailable) -> dict[str, NDArray[Any]]:
    if isinstance(name, Unavailable):
        return {}
    path = folder / "arrays" / name
    return bytes_to_arrays(read_file(path), kind, path)[0]


def _documents(
    kind: str, records: Iterable[Any], beside: dict[str, NDArray[Any]]
) -> list[dict[str, Any]]:
    member, to_document, _ = _KINDS[kind]
    documents = []
    for record in records:
        if not isinstance(record, member):
            raise InvalidInputError(
                f"{kind} must be {member.__name__} objects, found {type(record).__name__}."
            )
        documents.append(to_document(record, beside))
    return documents


def _remove_unnamed_arrays(folder: Path, kind: str) -> None:
    # What is on disk decides, not how far the write came: a write may fail after the replacement.
    path = folder / f"{kind}.json"
    with suppress(RecordError):  # a damaged document may name any of them: keep all
        named = unsealed(read_file(path), kind, path)["arrays"] if is_file(path) else None
        for arrays in (folder / "arrays").glob(f"_{kind}-*.safetensors"):
            if arrays.name != named:
                remove_file(arrays)
