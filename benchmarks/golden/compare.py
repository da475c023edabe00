"""What two versions of flowscope wrote for one command, value by value.

Numbers, decisions, statuses, labels and keys must be equal to the last byte. Sentences may be
reworded, but not appear or vanish. What only says where and when a run was made is left out:
paths, times, the commit, seals and fingerprints, shards, the report and its figures. A table,
column, key or setting that only the new version writes is listed as new; one that only the old
version writes is a difference.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "METHODS",
    "UNCOMPARED",
    "WORDS",
    "Comparison",
    "compare_documents",
    "compare_folders",
    "decisions",
]

WORDS = frozenset(
    {
        "abstained",
        "because",
        "claim",
        "estimator",
        "formula",
        "meaning",
        "measured",
        "rule",
        "says",
        "scale",
        "title",
        "unavailable",
        "warning",
        "where",
    }
)
"""Columns and keys (also ``…_because``) whose text may be reworded; their numbers may not."""

METHODS = frozenset({"method", "interval_method"})
"""Columns and keys of which the first word is compared, e.g. ``bca`` or ``none``."""

UNCOMPARED = frozenset(
    {"commit", "created_at", "csv", "parquet", "report", "run", "sha256", "stages", "wall_time"}
)
"""Keys that say where and when, and seals."""

_MANIFEST = (
    "schema",
    "config_given",
    "config_resolved",
    "seeds",
    "device",
    "weight_hashes",
    "data_hashes",
)
_LEDGERS = ("measurements.json", "verdicts.json")


@dataclass(kw_only=True)
class Comparison:
    """How much was compared, what differs, and what only the new version has."""

    tables: int = 0
    values: int = 0
    differences: list[str] = field(default_factory=list)
    additions: list[str] = field(default_factory=list)

    def unequal(self, place: str, old: object, new: object) -> None:
        """Note a difference."""
        self.differences.append(f"{place}: {_short(old)} → {_short(new)}")

    def names(self, place: str, old: Iterable[str], new: Iterable[str]) -> list[str]:
        """Names on both sides; a lost one is a difference, a new one is listed."""
        before, after = list(old), list(new)
        self.differences += [f"{place}: {name} is lost" for name in before if name not in after]
        self.additions += [f"{place}: {name}" for name in after if name not in before]
        return [name for name in before if name in after]


def decisions(document: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each verdict of a JSON document was decided, by its name."""
    verdicts = document.get("verdicts", ())
    return {verdict["name"]: verdict["decision"] != "abstains" for verdict in verdicts}


def compare_folders(old: Path, new: Path, comparison: Comparison) -> None:
    """Compare the tables, arrays, measurements, verdicts and manifests of two run folders."""
    pairs = _files(old / "tables", "csv"), _files(new / "tables", "csv")
    for name in comparison.names("tables", *pairs):
        comparison.tables += 1
        _compare_tables(old / "tables", new / "tables", name, comparison)
    pairs = _files(old / "arrays", "safetensors"), _files(new / "arrays", "safetensors")
    for name in comparison.names("arrays", *pairs):
        file = f"arrays/{name}.safetensors"
        _compare_arrays(file, old / file, new / file, comparison)
    for file in _LEDGERS:
        _compare_files(file, old / file, new / file, comparison)
    before, after = (_manifest(folder) for folder in (old, new))
    if _is_fingerprint(before, old):
        for manifest in (before, after):
            manifest.pop("weight_hashes", None)
    compare_documents("manifest", before, after, comparison)


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = _read(folder / "manifest.json")
    return {name: manifest[name] for name in _MANIFEST if name in manifest}


def _is_fingerprint(manifest: Mapping[str, Any], folder: Path) -> bool:
    """Whether a model without weights has the fingerprint of its run as their hash."""
    fingerprint = folder.name.rpartition("-")[2]
    return bool(fingerprint) and manifest["weight_hashes"].get("model", "").startswith(fingerprint)


def compare_documents(place: str, old: Any, new: Any, comparison: Comparison) -> None:
    """Compare two JSON documents below ``place``; the last part of it names the value."""
    name = place.rpartition(".")[2].partition("[")[0]
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in comparison.names(place, old, new):
            if key not in UNCOMPARED:
                compare_documents(f"{place}.{key}", old[key], new[key], comparison)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(place, old, new, comparison)
    else:
        comparison.values += 1
        if type(old) is not type(new) or _compared(name, old) != _compared(name, new):
            comparison.unequal(place, old, new)


def _compare_lists(place: str, old: list[Any], new: list[Any], comparison: Comparison) -> None:
    before, after = _by_name(old), _by_name(new)
    if before and after:
        for name in comparison.names(place, before, after):
            compare_documents(f"{place}[{name}]", before[name], after[name], comparison)
        return
    if len(old) != len(new):
        comparison.unequal(f"{place}, length", len(old), len(new))
        return
    for k, (first, second) in enumerate(zip(old, new, strict=True)):
        compare_documents(f"{place}[{k}]", first, second, comparison)


def _by_name(items: list[Any]) -> dict[str, Any]:
    """Items by their name, when each has one and no two are the same."""
    named = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
    return named if len(named) == len(items) else {}


def _compare_tables(old: Path, new: Path, name: str, comparison: Comparison) -> None:
    place = f"tables/{name}"
    types = [_column_types(folder / f"{name}.json") for folder in (old, new)]
    tables = [_rows(folder / f"{name}.csv") for folder in (old, new)]
    (header, *before), (new_header, *after) = tables
    shared = comparison.names(place, header, new_header)
    if [column for column in new_header if column in shared] != shared:
        comparison.unequal(f"{place}, order of columns", header, new_header)
    if len(before) != len(after):
        comparison.unequal(f"{place}, rows", len(before), len(after))
        return
    for column in shared:
        kinds = [side.get(column) for side in types]
        if kinds[0] != kinds[1]:
            comparison.unequal(f"{place}.{column}, type", *kinds)
        first, second = header.index(column), new_header.index(column)
        for k, (old_row, new_row) in enumerate(zip(before, after, strict=True)):
            comparison.values += 1
            cells = old_row[first], new_row[second]
            if _compared(column, cells[0]) != _compared(column, cells[1]):
                comparison.unequal(f"{place}.{column}, row {k}", *cells)


def _compared(name: str, value: Any) -> str:
    """What is compared of a value of that name."""
    if not isinstance(value, str) or _is_number(value):
        return repr(value)
    if name in WORDS or name.endswith("_because"):
        return "words" if value else "no words"
    if name in METHODS:
        return value.replace(":", " ").partition(" ")[0]
    return value.rpartition("/")[2] if value.startswith("/") and len(value) > 1 else value


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _compare_arrays(place: str, old: Path, new: Path, comparison: Comparison) -> None:
    before, after = _tensors(old), _tensors(new)
    for name in comparison.names(place, before, after):
        comparison.values += 1
        if before[name] != after[name]:
            comparison.unequal(f"{place}.{name}", before[name], after[name])


def _tensors(file: Path) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Type, shape and sha256 of the bytes of every tensor."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    return {
        name: (
            about["dtype"],
            tuple(about["shape"]),
            hashlib.sha256(content[slice(*(start + k for k in about["data_offsets"]))]).hexdigest(),
        )
        for name, about in sorted(header.items())
        if name != "__metadata__"
    }


def _compare_files(place: str, old: Path, new: Path, comparison: Comparison) -> None:
    sides = [[place] if file.is_file() else [] for file in (old, new)]
    if comparison.names("files", *sides):
        compare_documents(place.removesuffix(".json"), _read(old), _read(new), comparison)


def _files(folder: Path, ending: str) -> list[str]:
    return sorted(path.stem for path in folder.glob(f"[!.]*.{ending}"))


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _rows(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))


def _column_types(file: Path) -> dict[str, str]:
    return {column["name"]: column["type"] for column in _read(file)["versions"][0]["columns"]}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
