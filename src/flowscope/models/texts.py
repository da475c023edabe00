"""Texts from files and from what Python programs hold: lists, columns of tables, data sets."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Texts", "given_texts", "read_texts"]

_COLUMN = "text"
_TABLES = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".ndjson")
_WANTED = (
    "Give a list of strings, a pandas Series, rows or a data set with a column “text”, or a tensor "
    "of images."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Texts, and whether they are one running text that is to be cut into windows."""

    texts: list[str]
    running: bool


def read_texts(source: str | Path) -> Texts:
    """Texts of a file or of standard input (``-``).

    A ``.jsonl`` file holds one prompt per line under ``"text"``, a ``.csv`` or ``.tsv`` file one
    per row in a column of that name; anything else is one running text.

    Raises
    ------
    InvalidInputError
        When the file is not there, is no UTF-8, holds nothing, or a row has no text.
    """
    name = "standard input" if str(source) == "-" else str(source)
    content = _content(source, name)
    if not content.strip():
        raise InvalidInputError(f"{name} is empty. Give a file with at least two tokens of text.")
    suffix = Path(name).suffix.lower()
    if suffix in _LINES:
        return Texts(texts=_lines(content, name), running=False)
    if suffix in _TABLES:
        return Texts(texts=_rows(content, name, _TABLES[suffix]), running=False)
    _refuse_surrogates(content, name)
    return Texts(texts=[content], running=True)


def given_texts(given: Any) -> Texts | Tensor:
    """Texts of what a program gave: one string, strings, rows with a text, a column; or images.

    One string is a running text: it is cut into windows.

    Raises
    ------
    InvalidInputError
        When something else was given, or one of the texts is no string.

    Examples
    --------
    >>> given_texts([{"text": "To be"}, {"text": "or not"}]).texts
    ['To be', 'or not']
    >>> given_texts("To be or not").running
    True
    """
    if isinstance(given, Tensor):
        return given
    if isinstance(given, str):
        if not given.strip():
            raise InvalidInputError("The text is empty. Give at least two tokens of text.")
        _refuse_surrogates(given, "the text")
        return Texts(texts=[given], running=True)
    items = list(_items(given))
    if not items:
        raise InvalidInputError("There is no prompt to measure on. Give at least one text.")
    texts = [_text_of(item, f"text {number}") for number, item in enumerate(items)]
    return Texts(texts=texts, running=False)


def _items(given: Any) -> Iterable[Any]:
    """The rows of a list, of a column, or of the column “text” of something that has columns."""
    names = getattr(given, "column_names", None)  # a data set
    names = getattr(given, "columns", None) if names is None else names  # a data frame
    names = list(given) if isinstance(given, Mapping) else names
    if names is not None:
        if _COLUMN not in list(names):
            listed = ", ".join(map(str, list(names)[:8])) or "none"
            raise InvalidInputError(
                f"The texts have no column “{_COLUMN}”; their columns: {listed}. Rename one, or "
                "give a list of strings."
            )
        column = given[_COLUMN]
        return [column] if isinstance(column, str) else list(column)
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        raise InvalidInputError(f"Expected texts; got {type(given).__name__}. {_WANTED}")
    return given


def _text_of(item: Any, where: str) -> str:
    if isinstance(item, Mapping):
        if _COLUMN not in item:
            listed = ", ".join(map(str, list(item)[:8])) or "none"
            raise InvalidInputError(f"{where} has no “{_COLUMN}”; its fields: {listed}.")
        item = item[_COLUMN]
    if not isinstance(item, str):
        shown = "nothing (null)" if item is None else f"{type(item).__name__} {item!r:.40}"
        raise InvalidInputError(
            f"{where} must be a string; got {shown}. Leave it out, or write the text there."
        )
    _refuse_surrogates(item, where)
    return str(item)


def _content(source: str | Path, name: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if str(source) == "-" else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInputError(f"The text {name} could not be read: {reason}.") from error
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InvalidInputError(
            f"The text {name} is not UTF-8: byte 0x{raw[error.start]:02x} in line {line}. Save it "
            "as UTF-8, for instance by “iconv -f ISO-8859-1 -t UTF-8 FILE > NEW”."
        ) from error


def _lines(content: str, name: str) -> list[str]:
    """Texts of a file with one JSON object per line.

    Lines end at a line feed only: a JSON string may hold U+2028 or U+0085 as they are.
    """
    texts = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {number} of {name}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidInputError(
                f'{where} must be a JSON object with a "text"; found {error}.'
            ) from error
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f'{where} must be a JSON object with a "text"; found {type(row).__name__}.'
            )
        texts.append(_text_of(row, where))
    return texts


def _rows(content: str, name: str, between: str) -> list[str]:
    """Texts of a table with a header."""
    try:
        reader = csv.DictReader(io.StringIO(content, newline=""), delimiter=between, strict=True)
        columns = list(reader.fieldnames or ())
        if _COLUMN not in columns:
            raise InvalidInputError(
                f"{name} has no column “{_COLUMN}”; its first line names: "
                f"{', '.join(columns[:8])}. Rename one, or save the texts as .txt or .jsonl."
            )
        texts = [_text_of(row, f"row {number} of {name}") for number, row in enumerate(reader, 1)]
    except csv.Error as error:
        raise InvalidInputError(f"{name} could not be read as a table: {error}.") from error
    if not texts:
        raise InvalidInputError(f"{name} has a header and no row. Give at least one text.")
    return texts


def _refuse_surrogates(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{where} holds half of a surrogate pair (U+{ord(text[error.start]):04X} at character "
            f"{error.start}), which is no text. Replace it: "
            'text.encode("utf-8", "replace").decode().'
        ) from error
