"""Texts from files and from what Python programs hold: lists, columns of tables, data sets."""

import codecs
import csv
import io
import json
import stat
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
_FORMATS = {
    b"\x1f\x8b": "compressed (gzip)",
    b"PK\x03\x04": "a zip archive or an office document",
    b"%PDF": "a PDF",
    b"PAR1": "a Parquet file",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GGUF": "a model",
}
_LONGEST_FIELD = 2**30
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
    per row in a column of that name, a ``.json`` file a list of strings or of such rows; anything
    else is one running text.

    Raises
    ------
    InvalidInputError
        When the file is not there, is no UTF-8, holds nothing, or a row has no text.
    """
    if not str(source):
        raise InvalidInputError("The name of the text is empty. Give a file, or leave text out.")
    name = "standard input" if str(source) == "-" else str(source)
    content = _content(source, name)
    if not content.strip():
        raise InvalidInputError(f"{name} is empty. Give a file with at least two tokens of text.")
    suffix = Path(name).suffix.lower()
    if suffix in _LINES:
        return Texts(texts=_lines(content, name), running=False)
    if suffix == ".json":
        return Texts(texts=_listed(content, name), running=False)
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
        raw = sys.stdin.buffer.read() if str(source) == "-" else _opened(Path(source))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInputError(
            f"The text {name} could not be read: {reason}. Give a file of text, or - for standard "
            "input."
        ) from error
    _refuse_foreign(raw, name)
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InvalidInputError(
            f"The text {name} is not UTF-8: byte 0x{raw[error.start]:02x} in line {line}. Save it "
            "as UTF-8, for instance by “iconv -f ISO-8859-1 -t UTF-8 FILE > NEW”."
        ) from error


def _opened(path: Path) -> bytes:
    """Content of a file; a device such as /dev/zero has no end."""
    if stat.S_ISCHR(path.stat().st_mode):
        raise ValueError("it is a device, not a file")
    return path.read_bytes()


def _refuse_foreign(raw: bytes, name: str) -> None:
    """Refuse what no change of one byte makes UTF-8, with the way to make text of it."""
    if raw[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        raise InvalidInputError(_other_encoding(name, "UTF-32"))
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InvalidInputError(_other_encoding(name, "UTF-16"))
    start = next((kind for mark, kind in _FORMATS.items() if raw.startswith(mark)), None)
    if start is not None:
        raise InvalidInputError(
            f"{name} is {start}, not text. Unpack or convert it, and give a .txt, .jsonl or .csv."
        )
    head = raw[:4096]
    zeros = head.count(0)
    if zeros > len(head) // 4:
        raise InvalidInputError(
            f"{name} is binary data, or UTF-16 without a mark: {zeros} of its first {len(head)} "
            "bytes are zero. Save it as UTF-8 text."
        )


def _other_encoding(name: str, encoding: str) -> str:
    return (
        f"The text {name} is not UTF-8 but {encoding}. Save it as UTF-8, for instance by “iconv "
        f"-f {encoding} -t UTF-8 FILE > NEW”."
    )


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


def _listed(content: str, name: str) -> list[str]:
    """Texts of a JSON document: a list of strings or rows, or an object with a list of texts."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{name} is not valid JSON: {error}. For one JSON object per line, name it .jsonl."
        ) from error
    if not isinstance(document, (list, Mapping)):
        raise InvalidInputError(
            f"{name} must hold a JSON list of texts; found {type(document).__name__}. For a "
            "running text, name it .txt."
        )
    read = given_texts(document)
    assert isinstance(read, Texts)
    return read.texts


def _rows(content: str, name: str, between: str) -> list[str]:
    """Texts of a table with a header; a .csv may be divided by semicolons."""
    header = content.partition("\n")[0]
    if between == "," and _COLUMN not in header.split(",") and _COLUMN in header.split(";"):
        between = ";"
    limit = csv.field_size_limit(_LONGEST_FIELD)  # a text may be longer than the usual 128 KiB
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
        raise InvalidInputError(
            f"{name} could not be read as a table: {error}. Quote texts that hold commas, "
            "quotes or line ends."
        ) from error
    finally:
        csv.field_size_limit(limit)
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
