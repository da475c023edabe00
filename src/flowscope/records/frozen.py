"""What a record may hold: text, whole numbers, read-only arrays and labels.

Everything a record keeps is checked and copied once, in its ``__post_init__``, by the
functions of this module, so that nobody can change a record through an array he still owns
and so that every record can be written to a file and read back bit for bit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError

__all__ = ["Record", "choice", "frozen_array", "frozen_labels", "storable", "text", "whole"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Base of the frozen dataclasses: pickling (to another process) goes by the constructor.

    The default pickling would lose the read-only flag of the arrays and fails on read-only
    mappings; through the constructor a copy is checked and frozen like the original.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        state = {field.name: _thawed(getattr(self, field.name)) for field in fields(self)}
        return partial(type(self), **state), ()


def _thawed(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_thawed(item) for item in value)
    return value


def text(value: Any, what: str, *, empty: bool = False) -> str:
    """Text that every file format of a run can hold: UTF-8, without NUL."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be text, found {type(value).__name__} {value!r}.")
    if not empty and not value.strip():
        raise InvalidInputError(f"{what} must not be empty: say it in words.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} must be text that UTF-8 can hold, found {value!r} ({error.reason}): "
            "decode it with the right encoding first."
        ) from error
    if "\0" in value:
        raise InvalidInputError(
            f"{what} must not contain the NUL character, found {value!r}: remove it."
        )
    return str(value)


def whole(value: Any, what: str) -> int:
    """Return a whole number as a Python ``int``; booleans are not numbers here."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InvalidInputError(
            f"{what} must be a whole number, found {type(value).__name__} {value!r}."
        )
    return int(value)


def choice(value: Any, allowed: Iterable[str], what: str) -> None:
    """Refuse a word outside ``allowed``."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise InvalidInputError(f"{what} must be one of {', '.join(allowed)}, found {value!r}.")


def storable(dtype: np.dtype[Any]) -> bool:
    """Whether a file of a run can hold this dtype: booleans, integers, floats up to 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def frozen_array(value: Any, what: str) -> NDArray[Any]:
    """Read-only C-ordered copy in native byte order.

    Raises
    ------
    InvalidInputError
        Not an array of booleans, integers or floats up to 64 bits; or a masked array, whose
        mask would be lost.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInputError(
            f"{what} is a masked array and its mask cannot be kept: fill it, with NaN for example."
        )
    try:
        array = np.array(value, order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{what} must be an array of numbers, found {type(value).__name__} ({error}): "
            "convert it to a NumPy array first."
        ) from error
    if not storable(array.dtype):
        raise InvalidInputError(
            f"{what} must hold booleans, integers or floats up to 64 bits, found dtype "
            f"{array.dtype}: convert it (complex numbers: an axis for real and imaginary part)."
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.setflags(write=False)
    return array


def frozen_labels(value: Any, what: str) -> NDArray[Any]:
    """Read-only 1-D array of labels: all text, or all numbers."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{what} must be a sequence of labels, found {value!r}.")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise InvalidInputError(f"{what} must be 1-D, found shape {value.shape}.")
    kept = value if isinstance(value, np.ndarray) else list(value)
    are_text = {isinstance(label, str) for label in kept}
    if are_text == {True, False}:
        raise InvalidInputError(f"{what} mixes text and numbers: use one kind of label.")
    if are_text == {True} or (isinstance(kept, np.ndarray) and kept.dtype.kind == "U"):
        labels = np.array([text(label, what, empty=True) for label in kept], dtype=np.str_)
        labels.setflags(write=False)
        return labels
    array = frozen_array(kept, what)
    if array.ndim != 1:
        raise InvalidInputError(f"{what} must be 1-D, found shape {array.shape}.")
    return array
