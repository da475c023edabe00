"""Sealed JSON: the schema version, the kind and the sha256 of the content, in the file itself.

A document is one JSON object. Its keys ``schema`` and ``kind`` say how to read it, its key
``sha256`` is the hash of all the rest in canonical form (sorted keys, no spaces, ASCII), so a
document proves itself and needs no second file that could fall out of step with it. The JSON
is strict: an infinite or undefined float is ``{"nonfinite": "nan"}``, what is not there is
``{"unavailable": reason}``.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.absence import Unavailable
from flowscope.records.frozen import text

__all__ = [
    "SCHEMA",
    "check_schema",
    "damaged",
    "fingerprint",
    "frozen_json",
    "plain",
    "revived",
    "sealed",
    "unsealed",
]

SCHEMA = 1
"""Version of the layout of every file of a run; this flowscope reads 1 up to this number."""

_MARKS = ("unavailable", "nonfinite")


def frozen_json(value: Any, what: str) -> Any:
    """Read-only deep copy of something JSON can hold (and ``Unavailable``); lists become tuples.

    Raises
    ------
    InvalidInputError
        JSON cannot hold it, or a mapping would be mistaken for one of the two marks above.
    """
    if isinstance(value, Mapping):
        if len(value) == 1 and next(iter(value)) in _MARKS:
            raise InvalidInputError(
                f"{what} is a mapping with the single key {next(iter(value))!r}, which flowscope "
                "uses itself: rename the key."
            )
        pairs = ((text(key, f"a key of {what}", empty=True), item) for key, item in value.items())
        return MappingProxyType({key: frozen_json(item, f"{what}.{key}") for key, item in pairs})
    if isinstance(value, list | tuple):
        return tuple(frozen_json(item, f"{what}[{k}]") for k, item in enumerate(value))
    if isinstance(value, str):
        return text(value, what, empty=True)
    if isinstance(value, float):
        return float(value)
    if value is None or isinstance(value, bool | int | Unavailable):
        return value
    raise InvalidInputError(
        f"{what} is a {type(value).__name__}, which JSON cannot hold: "
        "convert it to text, a number, a list or a mapping."
    )


def plain(value: Any) -> Any:
    """Return what ``json`` can write strictly, from what :func:`frozen_json` returns."""
    if isinstance(value, Unavailable):
        return {"unavailable": value.reason}
    if isinstance(value, float) and not math.isfinite(value):
        return {"nonfinite": repr(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def revived(value: Any) -> Any:
    """Inverse of :func:`plain`."""
    if isinstance(value, dict):
        if value.keys() == {"unavailable"}:
            return Unavailable(value["unavailable"])
        if value.keys() == {"nonfinite"}:
            return float(value["nonfinite"])
        return {key: revived(item) for key, item in value.items()}
    if isinstance(value, list):
        return [revived(item) for item in value]
    return value


def fingerprint(value: Any) -> str:
    """Sha256 of a JSON-like value in canonical form: the same for any order of the keys.

    Examples
    --------
    >>> fingerprint({"a": 1, "b": [2.0]}) == fingerprint({"b": (2.0,), "a": 1})
    True
    """
    kept = plain(frozen_json(value, "the value to fingerprint"))
    return hashlib.sha256(_canonical(kept)).hexdigest()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(kind: str, content: Mapping[str, Any], schema: int = SCHEMA) -> str:
    """Text of a document; ``content`` is strict JSON already (see :func:`plain`)."""
    document = {"schema": schema, "kind": kind, **content}
    seal = hashlib.sha256(_canonical(document)).hexdigest()
    return json.dumps({"sha256": seal, **document}, indent=1, allow_nan=False) + "\n"


def unsealed(document: str | bytes, kind: str, source: object) -> dict[str, Any]:
    """Content of a document, verified.

    Raises
    ------
    RecordError
        Not a document of this kind; of a newer schema; or changed since it was written.
    """
    try:
        content = json.loads(document)
        seal, found_kind, schema = content.pop("sha256"), content["kind"], content["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(
            f"{source} is damaged or no flowscope file: expected a JSON object with sha256, "
            f"schema and kind, found {len(document)} characters that are not ({error!r}). "
            "Restore it from a copy, or delete it and run again."
        ) from error
    check_schema(schema, source)
    found = hashlib.sha256(_canonical(content)).hexdigest()
    if found != seal:
        raise damaged(source, seal, found)
    if found_kind != kind:
        raise RecordError(f"{source} holds {found_kind!r}, expected {kind!r}: is it misplaced?")
    return dict(content)


def check_schema(schema: Any, source: object) -> None:
    """Refuse a file of a newer schema than this flowscope knows."""
    if not isinstance(schema, int | np.integer) or isinstance(schema, bool) or schema < 1:
        raise RecordError(
            f"{source} has schema {schema!r}, expected a number from 1 to {SCHEMA}: "
            "it is damaged or no flowscope file."
        )
    if schema > SCHEMA:
        raise RecordError(
            f"{source} was made by schema {schema}, this flowscope reads up to {SCHEMA}: "
            "upgrade flowscope."
        )


def damaged(source: object, expected: object, found: str) -> RecordError:
    """Error of a file whose content is not what was written."""
    return RecordError(
        f"{source} is damaged: its recorded sha256 is {expected}, its content gives {found}. "
        "Restore it from a copy, or delete it and run again."
    )
