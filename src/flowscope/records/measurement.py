"""A measurement: numbers with their names, their unit, their doubt and their origin.

``status`` says whether there are numbers at all. ``"ok"``: there are. ``"abstained"``: the
probe refused to give any (an assumption does not hold). ``"failed"``: it tried and broke. In
the last two cases ``values`` is an :class:`~flowscope.records.Unavailable`, so that nobody can
read a number that must not be used. A single undefined cell of a good measurement is NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records.absence import Unavailable
from flowscope.records.axes import checked_axes, checked_coordinates
from flowscope.records.frozen import Record, choice, frozen_array, text, whole
from flowscope.records.interval import Interval
from flowscope.records.views import measurement_array, measurement_table

if TYPE_CHECKING:
    import xarray

__all__ = ["Measurement", "Status"]

Status = Literal["ok", "abstained", "failed"]


class Known(TypedDict, total=False):
    """What is known of a measurement that gave no number."""

    n: int
    unit: str | Unavailable
    estimator: str | Unavailable
    dtype: str | Unavailable
    seed: int | Unavailable


_NO_INTERVAL = Unavailable("no interval was given")
_NO_SEED = Unavailable("no seed was given")
_UNKNOWN = Unavailable("the measurement gave no number")


@dataclass(frozen=True, eq=False, kw_only=True)
class Measurement(Record):
    """What a probe measured, or why it did not.

    Parameters
    ----------
    name
        What was measured.
    values
        Booleans, integers or floats (up to 64 bits), kept as a read-only copy; ``Unavailable``
        exactly when ``status`` is not ``"ok"``.
    axes, coordinates
        A name per dimension, and the labels along it (text or numbers, 1-D). An axis without
        labels is labelled by position, 0, 1, 2, …
    unit
        ``"nat"``, ``"second"``; ``"1"`` for a pure number.
    interval
        An interval that broadcasts to ``values``, or why there is none.
    n
        How many independent units (prompts, images) stand behind the numbers.
    estimator, dtype, seed
        How they were made, in what precision, and with which seed.
    status, because
        ``ok`` (``because`` is empty, or a note), ``abstained`` or ``failed`` (``because`` is
        the reason, in words).

    Raises
    ------
    InvalidInputError
        One of the above does not hold.

    Examples
    --------
    >>> drift = Measurement(name="drift", values=np.array([0.25, 0.5]), axes=("layer",),
    ...                     unit="nat", n=8, estimator="mean over prompts", dtype="float64")
    >>> drift.to_pandas()[["layer", "value", "n", "status"]]
       layer  value  n status
    0      0   0.25  8     ok
    1      1   0.50  8     ok
    """

    name: str
    values: NDArray[Any] | Unavailable
    axes: tuple[str, ...] = ()
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unit: str | Unavailable
    interval: Interval | Unavailable = _NO_INTERVAL
    n: int
    estimator: str | Unavailable
    dtype: str | Unavailable
    seed: int | Unavailable = _NO_SEED
    status: Status = "ok"
    because: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", text(self.name, "the name of a measurement"))
        what = f"of measurement {self.name!r}"
        choice(self.status, ("ok", "abstained", "failed"), f"the status {what}")
        self._keep_origin(what)
        if self.status == "ok":
            self._keep_values(what)
        else:
            self._keep_absence(what)

    def _keep_origin(self, what: str) -> None:
        ok = self.status == "ok"
        kept: dict[str, Any] = {"n": whole(self.n, f"n {what}")}
        if kept["n"] < 0:
            raise InvalidInputError(f"n {what} counts units, so 0 or more, found {kept['n']}.")
        if not isinstance(self.seed, Unavailable):
            kept["seed"] = whole(self.seed, f"the seed {what}")
        kept["because"] = text(self.because, f"the reason (because) {what}", empty=ok)
        for part in ("unit", "estimator", "dtype"):
            value = getattr(self, part)
            if ok or not isinstance(value, Unavailable):
                kept[part] = text(value, f"the {part} {what}")
        for part, value in kept.items():
            object.__setattr__(self, part, value)

    def _keep_values(self, what: str) -> None:
        if isinstance(self.values, Unavailable):
            raise InvalidInputError(
                f"the values {what} are {self.values}, yet its status is ok: use "
                "Measurement.abstained or Measurement.failed."
            )
        values = frozen_array(self.values, f"the values {what}")
        axes = checked_axes(self.axes, values.ndim, what)
        labels = checked_coordinates(self.coordinates, axes, values.shape, what)
        _check_interval(self.interval, values.shape, what)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "coordinates", MappingProxyType(labels))

    def _keep_absence(self, what: str) -> None:
        absent = isinstance(self.values, Unavailable) and isinstance(self.interval, Unavailable)
        if not absent or self.axes or self.coordinates:
            raise InvalidInputError(
                f"values and interval {what} must be Unavailable, without axes, because its "
                f"status is {self.status}: a number that must not be used is not kept."
            )
        object.__setattr__(self, "axes", ())
        object.__setattr__(self, "coordinates", MappingProxyType({}))

    @classmethod
    def abstained(cls, name: str, because: str, **known: Unpack[Known]) -> "Measurement":
        """Return a measurement that refuses to give a number, and says why.

        ``known`` may tell ``n`` (0 if not told), ``unit``, ``estimator``, ``dtype``, ``seed``.

        Examples
        --------
        >>> Measurement.abstained("drift", "the model has no tail").status
        'abstained'
        """
        return _absent(name, because, "abstained", known)

    @classmethod
    def failed(cls, name: str, because: str, **known: Unpack[Known]) -> "Measurement":
        """Return a measurement that broke on the way; ``known`` as in :meth:`abstained`."""
        return _absent(name, because, "failed", known)

    def numbers(self) -> NDArray[Any]:
        """Return ``values`` to a caller that needs numbers.

        Raises
        ------
        RecordError
            The status is not ``ok``; the message gives the reason.
        """
        if isinstance(self.values, Unavailable):
            raise RecordError(
                f"measurement {self.name!r} has no numbers, its status is {self.status}: "
                f"{self.because}. Look at the status before using the values."
            )
        return self.values

    def to_pandas(self) -> pd.DataFrame:
        """Tidy long table: one row per cell; one row, its value NaN, when there are no values.

        The columns are ``name``, one per axis, then ``value, low, high, level, n, unit,
        estimator, status, because``. Booleans become 0 and 1, so that the tables of several
        measurements concatenate.
        """
        return measurement_table(self)

    def to_xarray(self) -> "xarray.DataArray":
        """Labelled array: bounds as coordinates ``low`` and ``high``, the rest as attributes.

        Raises
        ------
        RecordError
            xarray is not installed (the ``flowscope[xarray]`` extra).
        """
        return measurement_array(self)


def _absent(name: str, because: str, status: Status, known: Known) -> Measurement:
    reason = Unavailable(text(because, f"the reason (because) of measurement {name!r}"))
    unknown = {"n": 0, "unit": _UNKNOWN, "estimator": _UNKNOWN, "dtype": _UNKNOWN}
    parts: dict[str, Any] = {**unknown, **known}
    return Measurement(name=name, values=reason, status=status, because=because, **parts)


def _check_interval(interval: Any, shape: tuple[int, ...], what: str) -> None:
    if isinstance(interval, Unavailable):
        return
    if not isinstance(interval, Interval):
        raise InvalidInputError(f"the interval {what} must be Interval or Unavailable.")
    try:
        fits = np.broadcast_shapes(interval.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise InvalidInputError(
            f"the interval {what} has shape {interval.shape}, which does not broadcast to "
            f"{shape}, the shape of its values."
        )
