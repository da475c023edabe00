"""The manifest: everything one needs to know to repeat a run.

It has no clock and asks no library for anything by itself: the caller passes the time, the
wall time, the device and the hashes in. What the caller does not know is ``Unavailable`` with
the reason, never a blank.
"""

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.absence import Unavailable
from flowscope.records.frozen import Record, text, whole
from flowscope.records.storage.documents import (
    SCHEMA,
    frozen_json,
    plain,
    revived,
    sealed,
    unsealed,
)

__all__ = ["ALONE", "JUDGING", "UNFINISHED", "Manifest", "library_versions"]

UNFINISHED = Unavailable("the run has not finished")
"""Wall time and files of a run that is being measured, or was interrupted."""

JUDGING = Unavailable("the run is being judged again")
"""Files of a run whose verdicts are being made again, or whose judging was interrupted."""

ALONE = Unavailable("one process made the shards")
"""Work of a run without an engine."""

_NOT_GIVEN = Unavailable("not given")
_LATER = ("marks", "files", "stages", "work")
"""Parts that earlier versions did not write."""

_LIBRARIES = ("flowscope", "torch", "numpy", "transformers", "diffusers")


def library_versions() -> Mapping[str, str | Unavailable]:
    """Versions of Python and of the libraries a result depends on, without importing them.

    Examples
    --------
    >>> sorted(library_versions())
    ['diffusers', 'flowscope', 'numpy', 'python', 'torch', 'transformers']
    """
    found: dict[str, str | Unavailable] = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = Unavailable(f"{library} is not installed")
    return MappingProxyType(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Manifest(Record):
    """Where a run comes from.

    Parameters
    ----------
    config_given, config_resolved
        The configuration as the user wrote it, and with every default filled in.
    seeds
        Whole numbers by name.
    versions
        As :func:`library_versions` gives them.
    device
        E.g. ``"NVIDIA H200"`` or ``"cpu"``.
    weight_hashes, data_hashes
        Sha256 by file or array name (``file_hash``, ``array_hash``).
    wall_time
        Seconds, at the end of the run.
    commit
        Of the repository the run was made from.
    created_at
        ISO 8601 with its offset from UTC, e.g. ``"2025-03-01T12:00:00+00:00"``.
    marks
        What decides the numbers besides the settings and the hashes: configuration of the model,
        schedule, encoder.
    files
        Sha256 of the tables, arrays, measurements and verdicts of a finished run, by path: a file
        that is not among them was not written by this run.
    stages
        Seconds, device and share of the run's time of each stage, by name, in order; a part that is
        timed apart, e.g. the pass over all prompts, is not in its stage. They decide nothing.
    work
        Which processes made the shards where several did: engine, workers, how often each shard was
        made, the share of the work that one process did alone. It decides nothing.
    schema
        Of the run folder.

    Raises
    ------
    InvalidInputError
        A part is of another type, or JSON cannot hold it.

    Examples
    --------
    >>> manifest = Manifest(seeds={"bootstrap": 7}, created_at="2025-03-01T12:00:00+00:00")
    >>> Manifest.from_json(manifest.to_json()).seeds["bootstrap"]
    7
    >>> print(manifest.commit)
    unavailable: not given
    """

    config_given: Mapping[str, Any] | Unavailable = _NOT_GIVEN
    config_resolved: Mapping[str, Any] | Unavailable = _NOT_GIVEN
    seeds: Mapping[str, int] | Unavailable = _NOT_GIVEN
    versions: Mapping[str, str | Unavailable] | Unavailable = _NOT_GIVEN
    device: str | Unavailable = _NOT_GIVEN
    weight_hashes: Mapping[str, str] | Unavailable = _NOT_GIVEN
    data_hashes: Mapping[str, str] | Unavailable = _NOT_GIVEN
    wall_time: float | Unavailable = _NOT_GIVEN
    commit: str | Unavailable = _NOT_GIVEN
    created_at: str | Unavailable = _NOT_GIVEN
    marks: Mapping[str, Any] | Unavailable = _NOT_GIVEN
    files: Mapping[str, str] | Unavailable = _NOT_GIVEN
    stages: Mapping[str, Any] | Unavailable = _NOT_GIVEN
    work: Mapping[str, Any] | Unavailable = _NOT_GIVEN
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        for part, check in _CHECKS.items():
            value = getattr(self, part)
            if not isinstance(value, Unavailable):
                object.__setattr__(self, part, check(value, f"{part} of the manifest"))
        if whole(self.schema, "the schema of the manifest") not in range(1, SCHEMA + 1):
            raise InvalidInputError(
                f"the schema of a manifest must be 1 to {SCHEMA}, found {self.schema}."
            )

    def to_json(self) -> str:
        """Text of ``manifest.json``: strict JSON, with its own sha256."""
        parts = {part: plain(getattr(self, part)) for part in _CHECKS}
        return sealed("manifest", parts, self.schema)

    @classmethod
    def from_json(cls, document: str | bytes, source: object = "the manifest") -> "Manifest":
        """Manifest from its text; ``source`` names the file in the messages.

        Raises
        ------
        RecordError
            The text is no manifest, is of a newer schema, or was changed.
        """
        content = unsealed(document, "manifest", source)
        for part in _LATER:
            content.setdefault(part, plain(_NOT_GIVEN))
        missing = [f.name for f in fields(cls) if f.name not in content]
        if missing:
            raise RecordError(
                f"{source} lacks {', '.join(missing)}: restore it from a copy, or "
                "delete it and run the same command again."
            )
        try:
            return cls(
                schema=content["schema"], **{part: revived(content[part]) for part in _CHECKS}
            )
        except InvalidInputError as error:
            raise RecordError(f"{source} is no valid manifest: {error}") from error


def _config(value: Any, what: str) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} must be a mapping, found {type(value).__name__}.")
    return frozen_json(value, what)


def _seeds(value: Any, what: str) -> Any:
    frozen = _config(value, what)
    return MappingProxyType({key: whole(seed, f"{what}.{key}") for key, seed in frozen.items()})


def _texts(value: Any, what: str) -> Any:
    frozen = _config(value, what)
    for key, item in frozen.items():
        if not isinstance(item, Unavailable):
            text(item, f"{what}.{key}")
    return frozen


def _seconds(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{what} must be seconds, found {value!r}.")
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{what} must be seconds, finite and not negative, found {value}.")
    return float(value)


def _moment(value: Any, what: str) -> str:
    moment = text(value, what)
    try:
        known = datetime.fromisoformat(moment).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise InvalidInputError(
            f"{what} must be an ISO 8601 time with its offset from UTC, like "
            f"2025-03-01T12:00:00+00:00, found {moment!r}."
        )
    return moment


def _stages(value: Any, what: str) -> Any:
    frozen = _config(value, what)
    for name, part in frozen.items():
        if not isinstance(part, Mapping) or set(part) != {"seconds", "device", "share"}:
            raise InvalidInputError(
                f"{what}.{name} must hold seconds, device and share, found {part!r}."
            )
        _seconds(part["seconds"], f"{what}.{name}.seconds")
        _seconds(part["share"], f"{what}.{name}.share")
        text(part["device"], f"{what}.{name}.device")
    return frozen


_CHECKS = {
    "config_given": _config,
    "config_resolved": _config,
    "seeds": _seeds,
    "versions": _texts,
    "device": text,
    "weight_hashes": _texts,
    "data_hashes": _texts,
    "wall_time": _seconds,
    "commit": text,
    "created_at": _moment,
    "marks": _config,
    "files": _texts,
    "stages": _stages,
    "work": _config,
}
