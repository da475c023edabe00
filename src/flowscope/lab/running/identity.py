"""What decides the content of a run, and the refusal to put another run into its folder.

The manifest is the key of a run: instrument, settings, study, hashes of weights and data, marks of
the subject, kind of device, versions and commit. Left out is what says where things lie (``out``,
paths of the model and of texts, whose content is in the hashes), and ``only``, which chooses tables
and changes no number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flowscope.errors import RecordError
from flowscope.records import Manifest, Unavailable
from flowscope.records.storage.documents import plain

__all__ = ["deciding_values", "differences", "refuse_another", "run_key"]

PLACES = frozenset({"out", "device", "model", "text", "revision", "tokenizer", "trust_remote_code"})
"""Settings that say where something lies; what lies there is in the hashes and the marks."""

_DERIVED = frozenset({"command", "measured", "only", "passes", "study"})
_NAMED = 3
"""Differences that a message names."""

Difference = tuple[str, str, str]


def deciding_values(manifest: Manifest, places: Collection[str] = ()) -> dict[str, Any]:
    """Everything in a manifest that decides the numbers of its run, by name.

    Parameters
    ----------
    manifest
        Of a run, finished or not.
    places
        Settings of its instrument that say where something lies, beside `PLACES`.

    Examples
    --------
    >>> manifest = Manifest(config_resolved={"seed": 7, "out": "runs"}, device="cuda:1")
    >>> values = deciding_values(manifest)
    >>> values["seed"], values["device"], "out" in values
    (7, 'cuda', False)
    """
    settings = _mapping(manifest.config_resolved)
    skipped = PLACES | _DERIVED | set(places)
    device, commit = manifest.device, manifest.commit
    return {
        "instrument": settings.get("command", ""),
        **_flat("weights", manifest.weight_hashes),
        **_flat("data", manifest.data_hashes),
        **{name: plain(value) for name, value in settings.items() if name not in skipped},
        **_flat("study", settings.get("study", {})),
        "device": device if isinstance(device, Unavailable) else device.partition(":")[0],
        **_flat("versions", manifest.versions),
        "commit": commit,
        **_flat("marks", manifest.marks),
    }


def run_key(manifest: Manifest, places: Collection[str] = ()) -> str:
    """Sha256 of everything that decides the numbers of a run."""
    values = {name: str(value) for name, value in deciding_values(manifest, places).items()}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def differences(old: Manifest, new: Manifest, places: Collection[str] = ()) -> list[Difference]:
    """What decides the numbers and differs: its name, the old value, the new value, in words."""
    before, after = deciding_values(old, places), deciding_values(new, places)
    names = [*after, *(name for name in before if name not in after)]
    if isinstance(old.marks, Unavailable):  # an earlier version wrote it
        names = [name for name in names if name.partition(".")[0] != "marks"]
    return [
        (name, _words(name, before.get(name), old), _words(name, after.get(name), new))
        for name in names
        if str(before.get(name)) != str(after.get(name))
    ]


def refuse_another(folder: Path, old: Manifest, new: Manifest, places: Collection[str]) -> None:
    """Refuse to write a run into the folder of a run with other numbers.

    Raises
    ------
    RecordError
        Something that decides the numbers differs; the message names it with both values.
    """
    found = differences(old, new, places)
    if not found:
        return
    named = [f"{name} is {before} there and {after} now" for name, before, after in found[:_NAMED]]
    more = f"; {len(found) - _NAMED} more differ" if len(found) > _NAMED else ""
    raise RecordError(
        f"{folder} holds another run: {'; '.join(named)}{more}. A folder holds one run, and this "
        "one was not changed. Choose another folder, or delete this one first."
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Entries of nested mappings by dotted names; a value that is no mapping under the name."""
    if not isinstance(value, Mapping):
        return {name: value if isinstance(value, Unavailable) else plain(value)}
    entries: dict[str, Any] = {}
    for key, item in value.items():
        entries |= _flat(f"{name}.{key}", item)
    return entries


def _words(name: str, value: Any, manifest: Manifest) -> str:
    if value is None:
        return "none"
    text = value.reason if isinstance(value, Unavailable) else str(value)
    hashed = len(text) == 64 and set(text) <= set("0123456789abcdef")
    text = f"{text[:8]}…" if hashed or (name == "commit" and len(text) == 40) else text
    if name.startswith("weights."):
        return f"{text} ({_mapping(manifest.config_resolved).get('model', 'unnamed')})"
    return text if len(text) <= 60 else f"{text[:57]}…"
