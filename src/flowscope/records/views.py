"""Records at the edge: the tidy table and the labelled array they are shown as."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flowscope.errors import RecordError
from flowscope.records.absence import Unavailable

if TYPE_CHECKING:
    import xarray

    from flowscope.records.interval import Interval
    from flowscope.records.measurement import Measurement
    from flowscope.records.verdict import Verdict

__all__ = ["COLUMNS", "measurement_array", "measurement_table", "verdict_table"]

COLUMNS = (
    "name",
    "value",
    "low",
    "high",
    "level",
    "n",
    "unit",
    "estimator",
    "status",
    "because",
)
"""Columns of every measurement's table; an axis cannot have one of these names."""


def measurement_table(measurement: "Measurement") -> pd.DataFrame:
    """Tidy long table of a measurement, one row per cell."""
    absent = isinstance(measurement.values, Unavailable)
    values = np.array(np.nan) if absent else measurement.numbers()
    columns: dict[str, Any] = {"name": measurement.name}
    for k, axis in enumerate(measurement.axes):
        along = [-1 if j == k else 1 for j in range(values.ndim)]
        labels = measurement.coordinates[axis].reshape(along)
        columns[axis] = np.broadcast_to(labels, values.shape).ravel()
    columns["value"] = (values.astype(np.int64) if values.dtype == bool else values).ravel()
    columns |= _bounds(measurement.interval, values.shape)
    columns |= {"n": measurement.n}
    columns |= {"unit": _cell(measurement.unit), "estimator": _cell(measurement.estimator)}
    columns |= {"status": measurement.status, "because": measurement.because}
    return pd.DataFrame(columns, index=pd.RangeIndex(values.size))


def verdict_table(verdict: "Verdict") -> pd.DataFrame:
    """Table of one row for a verdict."""
    columns: dict[str, Any] = {
        "name": verdict.name,
        "claim": verdict.claim,
        "decision": verdict.decision,
        "outcome": verdict.outcome,
        "strength": verdict.strength,
    }
    columns |= _named(verdict.statistic, "statistic") | _named(verdict.null, "null")
    columns |= {"effect": _number(verdict.effect)} | _bounds(verdict.interval, ())
    columns |= {"p": _number(verdict.p), "n": verdict.statistic.n}
    columns |= {"unit": _cell(verdict.statistic.unit), "because": verdict.because}
    return pd.DataFrame(columns, index=pd.RangeIndex(1))


def measurement_array(measurement: "Measurement") -> "xarray.DataArray":
    """Labelled array of a measurement; a 0-d NaN when it has no values."""
    try:
        import xarray
    except ImportError as error:
        raise RecordError(
            "to_xarray needs xarray, which is not installed: "
            "pip install 'flowscope[xarray]', or use to_pandas()."
        ) from error
    absent = isinstance(measurement.values, Unavailable)
    values = np.array(np.nan) if absent else np.array(measurement.numbers())
    coordinates: dict[str, Any] = {
        axis: (axis, labels) for axis, labels in measurement.coordinates.items()
    }
    interval = measurement.interval
    if not isinstance(interval, Unavailable):
        for side in ("low", "high"):
            bound = np.array(np.broadcast_to(getattr(interval, side), values.shape))
            coordinates[side] = (measurement.axes, bound)
    return xarray.DataArray(
        values,
        dims=measurement.axes,
        coords=coordinates,
        name=measurement.name,
        attrs=_attributes(measurement),
    )


def _attributes(measurement: "Measurement") -> dict[str, Any]:
    interval = measurement.interval
    parts: dict[str, Any] = {
        part: getattr(measurement, part)
        for part in ("unit", "n", "estimator", "dtype", "seed", "status", "because")
    }
    parts["level"] = interval if isinstance(interval, Unavailable) else interval.level
    parts["method"] = interval if isinstance(interval, Unavailable) else interval.method
    # Text and numbers only: netCDF and Zarr hold nothing else.
    return {
        key: str(part) if isinstance(part, Unavailable) else part for key, part in parts.items()
    }


def _bounds(interval: "Interval | Unavailable", shape: tuple[int, ...]) -> dict[str, Any]:
    if isinstance(interval, Unavailable):
        return {"low": np.nan, "high": np.nan, "level": np.nan}
    low, high = (np.broadcast_to(side, shape).ravel() for side in (interval.low, interval.high))
    return {"low": low, "high": high, "level": interval.level}


def _named(measurement: "Measurement | Unavailable", what: str) -> dict[str, Any]:
    column = "value" if what == "statistic" else f"{what}_value"
    if isinstance(measurement, Unavailable):
        return {what: None, column: np.nan}
    return {what: measurement.name, column: _number(measurement.values)}


def _number(value: Any) -> float:
    return np.nan if isinstance(value, Unavailable) else float(value)


def _cell(value: str | Unavailable) -> str | None:
    return None if isinstance(value, Unavailable) else value
