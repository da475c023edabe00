r"""Tables as CSV that anyone can read, with a description beside them.

``NAME.csv`` is plain: a header, text in quotes, numbers bare and exact (the shortest decimal
that gives back the float64; smaller floats are widened first, which is exact). What CSV
cannot say is in ``NAME.json``, a sealed document: the schema, the type of each column, the
word that stands for missing text (a word that does not occur in the column), the sha256 of the
CSV. A column with text that no CSV can hold (NUL, half of a surrogate pair) is written with
escapes, ``\x00``, ``\ud800``, and ``\\`` for a backslash; its description says so. A large table is
also written as ``NAME.parquet`` where pyarrow is installed, for other tools; flowscope reads the
CSV.

Two files cannot be replaced in one step. So the description is written first with both
versions, the new and the one it replaces; then the CSV; then the description with the new one
alone. A reader takes the version whose sha256 the CSV has, so at every moment there is one.
"""

import hashlib
import importlib.util
import io
import re
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.files import is_file, read_file, remove_file, write_file
from flowscope.records.frozen import storable, text
from flowscope.records.storage.documents import SCHEMA, damaged, sealed, unsealed

__all__ = ["LARGE", "read_table", "remove_table", "table_names", "verified_table", "write_table"]

LARGE = 100_000
"""Rows from which a table is also written as Parquet."""

_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|x00|u[0-9a-f]{4})")


def write_table(folder: Path, name: str, frame: pd.DataFrame) -> Path:
    """Write ``folder/name.csv`` and its description; return the path of the CSV.

    Raises
    ------
    InvalidInputError
        The frame holds something that would not come back: an index with meaning, columns
        that are not uniquely named, or a column that is not of booleans, integers, floats or text.
    RecordError
        It cannot be written; the old table, if any, is still there.
    """
    columns = _described(frame, f"table {name!r}")
    csv, parquet = _csv(frame, columns), _parquet(frame, columns)
    version: dict[str, Any] = {
        "rows": len(frame),
        "columns": columns,
        "csv": hashlib.sha256(csv).hexdigest(),
        "parquet": hashlib.sha256(parquet).hexdigest()
        if parquet
        else {"unavailable": f"fewer than {LARGE} rows, or no pyarrow"},
    }
    path, description = folder / f"{name}.csv", folder / f"{name}.json"
    old = _versions(description) if is_file(path) else []
    try:
        _describe(description, [version, *old])
        write_file(path, csv)
    except BaseException:
        if not is_file(path):
            with suppress(RecordError):
                remove_file(description)
        raise
    remove_file(folder / f"{name}.parquet")
    if parquet:
        write_file(folder / f"{name}.parquet", parquet)
    _describe(description, [version])
    return path


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Table as it was written, verified; text comes back in pandas' own string type.

    Raises
    ------
    RecordError
        There is no such table, or it was changed since it was written.
    """
    return _frame(*verified_table(folder, name))


def verified_table(folder: Path, name: str) -> tuple[bytes, list[dict[str, str]]]:
    """Bytes of a table's CSV, compared with their sha256, and the description of its columns.

    Raises
    ------
    RecordError
        There is no such table, or it was changed since it was written.
    """
    path = folder / f"{name}.csv"
    if not is_file(path):
        known = ", ".join(table_names(folder)) or "none"
        raise RecordError(f"there is no table {path}: the tables of this run are {known}.")
    description = folder / f"{name}.json"
    while True:
        document = read_file(description)
        versions = unsealed(document, "table", description)["versions"]
        csv = read_file(path)
        found = hashlib.sha256(csv).hexdigest()
        for version in versions:
            if version["csv"] == found:
                return csv, list(version["columns"])
        if read_file(description) == document:  # else it was written between the two reads
            raise damaged(path, versions[0]["csv"], found)


def remove_table(folder: Path, name: str) -> None:
    """Remove a table and its description, the table first."""
    for ending in ("csv", "parquet", "json"):
        remove_file(folder / f"{name}.{ending}")


def table_names(folder: Path) -> tuple[str, ...]:
    """Names of the tables of a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("[!.]*.csv")))


def _describe(path: Path, versions: list[dict[str, Any]]) -> None:
    write_file(path, sealed("table", {"versions": versions}).encode())


def _versions(description: Path) -> list[dict[str, Any]]:
    try:
        return list(unsealed(read_file(description), "table", description)["versions"])
    except RecordError:  # a damaged table is healed by writing it again
        return []


def _described(frame: Any, what: str) -> list[dict[str, str]]:
    if not isinstance(frame, pd.DataFrame):
        raise InvalidInputError(f"{what} must be a pandas DataFrame, found {type(frame).__name__}.")
    if not frame.index.equals(pd.RangeIndex(len(frame))) or frame.index.name is not None:
        raise InvalidInputError(
            f"{what} has an index that a CSV would lose: call reset_index() to make it a column, "
            "or reset_index(drop=True) to drop it."
        )
    names = [text(name, f"a column name of {what}") for name in frame.columns]
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"{what} must have columns of different names, found {names}.")
    return [_described_column(frame[name], f"column {name!r} of {what}") for name in names]


def _described_column(column: "pd.Series[Any]", what: str) -> dict[str, str]:
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and storable(dtype):
        return {"name": str(column.name), "type": dtype.name}
    if not isinstance(dtype, pd.StringDtype) and dtype != np.dtype(object):
        raise InvalidInputError(
            f"{what} has dtype {dtype}, expected booleans, integers, floats or text: convert it "
            "(astype(str), astype(float), …)."
        )
    present = set(column[column.notna()].unique())
    kinds = sorted({type(value).__name__ for value in present if not isinstance(value, str)})
    if kinds:
        raise InvalidInputError(
            f"{what} holds Python objects ({', '.join(kinds)}), expected text alone: convert it "
            "(astype(str), astype(float), …)."
        )
    words = chain([""], (f"NA{'_' * k}" for k in count()))
    missing = next(word for word in words if word not in present)
    described = {"name": str(column.name), "type": "text", "missing": missing}
    if any(_UNWRITABLE.search(value) for value in present):
        described["escapes"] = "backslash"
    return described


def _csv(frame: pd.DataFrame, columns: list[dict[str, str]]) -> bytes:
    cells = [_cells(frame[column["name"]], column) for column in columns]
    header = ",".join(_quoted(column["name"]) for column in columns)
    rows = (",".join(row) for row in zip(*cells, strict=True))
    return ("\n".join(chain([header], rows)) + "\n").encode()


def _cells(column: "pd.Series[Any]", description: dict[str, str]) -> list[str]:
    if description["type"] == "text":
        filled = column.astype(object).where(column.notna(), description["missing"])
        return [_quoted(_escaped(cell) if "escapes" in description else cell) for cell in filled]
    return [repr(cell) for cell in column.to_numpy().tolist()]


def _quoted(cell: str) -> str:
    escaped = cell.replace('"', '""')
    return f'"{escaped}"'


def _escaped(cell: str) -> str:
    return _UNWRITABLE.sub(_code, cell.replace("\\", r"\\"))


def _code(match: re.Match[str]) -> str:
    return r"\x00" if match[0] == "\0" else f"\\u{ord(match[0]):04x}"


def _unescaped(cell: str) -> str:
    return _ESCAPED.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1][1:], 16)), cell)


def _frame(csv: bytes, columns: list[dict[str, str]]) -> pd.DataFrame:
    # Every cell as text first: the exact conversion below does not depend on pandas' parser.
    raw = pd.read_csv(io.BytesIO(csv), dtype=str, na_filter=False)
    found = {}
    for column, (_, cells) in zip(columns, raw.items(), strict=True):
        if column["type"] == "text":
            absent = cells == column["missing"]
            if "escapes" in column:  # as objects: pandas' own strings hold no surrogate
                exact = [_unescaped(cell) for cell in cells]
                cells = pd.Series(exact, dtype=object)
            found[column["name"]] = cells.mask(absent)
        elif column["type"] == "bool":
            found[column["name"]] = cells == "True"
        else:
            found[column["name"]] = pd.Series(cells.to_numpy(dtype=object).astype(column["type"]))
    return pd.DataFrame(found)


def _parquet(frame: pd.DataFrame, columns: list[dict[str, str]]) -> bytes:
    if len(frame) < LARGE or importlib.util.find_spec("pyarrow") is None:
        return b""
    labelled, content = frame.copy(deep=False), io.BytesIO()
    for column in columns:
        if "escapes" in column:
            labelled[column["name"]] = frame[column["name"]].map(_escaped, na_action="ignore")
    labelled.attrs = {"flowscope_schema": SCHEMA}
    labelled.to_parquet(content, engine="pyarrow", index=False)
    return content.getvalue()
