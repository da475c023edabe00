"""The axes of a measurement: a name per dimension, and the labels along it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.records.frozen import frozen_labels, text
from flowscope.records.views import COLUMNS

__all__ = ["checked_axes", "checked_coordinates"]


def checked_axes(axes: Any, ndim: int, what: str) -> tuple[str, ...]:
    """Names of ``ndim`` axes: different ones, none of which is a column of every table."""
    if isinstance(axes, str):
        raise InvalidInputError(f"the axes {what} must be a tuple of names, found {axes!r}.")
    names = tuple(text(axis, f"an axis {what}") for axis in axes)
    if len(names) != ndim:
        raise InvalidInputError(
            f"the values {what} have {ndim} dimensions, found {len(names)} axes {names}: "
            "give one name per dimension."
        )
    taken = sorted({axis for axis in names if axis in COLUMNS or names.count(axis) > 1})
    if taken:
        raise InvalidInputError(
            f"the axes {what} must have names of their own, found {', '.join(taken)} twice or "
            f"among the columns of every table ({', '.join(COLUMNS)}): rename."
        )
    return names


def checked_coordinates(
    coordinates: Any, axes: tuple[str, ...], shape: tuple[int, ...], what: str
) -> dict[str, NDArray[Any]]:
    """Labels of every axis, read-only, as long as the axis; by position where none are given."""
    if not isinstance(coordinates, Mapping):
        raise InvalidInputError(f"the coordinates {what} must map axes to labels.")
    unknown = [axis for axis in coordinates if axis not in axes]
    if unknown:
        raise InvalidInputError(f"the coordinates {what} name {unknown}, its axes are {axes}.")
    labels = {}
    for axis, length in zip(axes, shape, strict=True):
        given = coordinates.get(axis, np.arange(length))
        labels[axis] = frozen_labels(given, f"the labels of axis {axis!r} {what}")
        if len(labels[axis]) != length:
            raise InvalidInputError(
                f"axis {axis!r} {what} has length {length}, found {len(labels[axis])} labels."
            )
    return labels
