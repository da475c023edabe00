"""Measurements and verdicts as documents, bit for bit.

A small array is written inline, as readable numbers, if that text gives back the very same
bits; otherwise (large, or NaNs with a payload) it goes to a safetensors file beside the
document, under a number. Labels in words are always inline.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.records.absence import Unavailable
from flowscope.records.interval import Interval
from flowscope.records.measurement import Measurement
from flowscope.records.storage.documents import plain, revived
from flowscope.records.verdict import Verdict

__all__ = [
    "document_to_measurement",
    "document_to_verdict",
    "measurement_to_document",
    "verdict_to_document",
]

Arrays = dict[str, NDArray[Any]]

_INLINE = 1024
"""Cells of the largest array written inline."""

_PLAIN_PARTS = ("name", "unit", "n", "estimator", "dtype", "seed", "status", "because")

_WORDS = ("name", "claim", "decision", "because", "outcome", "strength", "p")

_LATER = ("outcome", "strength", "p")
"""Parts of a verdict that runs of 0.1 lack."""


def measurement_to_document(measurement: Measurement, beside: Arrays) -> dict[str, Any]:
    """Strict JSON of a measurement; arrays that are not inline are added to ``beside``."""
    document = {part: plain(getattr(measurement, part)) for part in _PLAIN_PARTS}
    document["axes"] = list(measurement.axes)
    document["coordinates"] = {
        axis: _array_to_document(labels, beside) for axis, labels in measurement.coordinates.items()
    }
    values, interval = measurement.values, measurement.interval
    document["values"] = (
        plain(values) if isinstance(values, Unavailable) else _array_to_document(values, beside)
    )
    document["interval"] = _interval_to_document(interval, beside)
    return document


def document_to_measurement(
    document: Mapping[str, Any], beside: Mapping[str, NDArray[Any]]
) -> Measurement:
    """Inverse of :func:`measurement_to_document`."""
    parts = {part: revived(document[part]) for part in _PLAIN_PARTS}
    values = revived(document["values"])
    return Measurement(
        **parts,
        axes=tuple(document["axes"]),
        coordinates={
            axis: _document_to_array(labels, beside)
            for axis, labels in document["coordinates"].items()
        },
        values=values if isinstance(values, Unavailable) else _document_to_array(values, beside),
        interval=_document_to_interval(document["interval"], beside),
    )


def verdict_to_document(verdict: Verdict, beside: Arrays) -> dict[str, Any]:
    """Strict JSON of a verdict; arrays that are not inline are added to ``beside``."""
    document = {part: plain(getattr(verdict, part)) for part in _WORDS}
    document["statistic"] = measurement_to_document(verdict.statistic, beside)
    null = verdict.null
    document["null"] = (
        plain(null) if isinstance(null, Unavailable) else measurement_to_document(null, beside)
    )
    document["effect"] = plain(verdict.effect)
    document["interval"] = _interval_to_document(verdict.interval, beside)
    return document


def document_to_verdict(document: Mapping[str, Any], beside: Mapping[str, NDArray[Any]]) -> Verdict:
    """Inverse of :func:`verdict_to_document`; a run of 0.1 has fewer parts."""
    later = {part: revived(document[part]) for part in _LATER if part in document}
    null = revived(document["null"])
    return Verdict(
        name=document["name"],
        claim=document["claim"],
        decision=document["decision"],
        because=document["because"],
        statistic=document_to_measurement(document["statistic"], beside),
        null=null
        if isinstance(null, Unavailable)
        else document_to_measurement(document["null"], beside),
        effect=revived(document["effect"]),
        interval=_document_to_interval(document["interval"], beside),
        **later,
    )


def _interval_to_document(interval: Interval | Unavailable, beside: Arrays) -> dict[str, Any]:
    if isinstance(interval, Unavailable):
        return dict(plain(interval))
    document: dict[str, Any] = {"level": interval.level, "method": interval.method}
    for side in ("low", "high"):
        bound = getattr(interval, side)
        document[side] = (
            plain(bound) if isinstance(bound, float) else _array_to_document(bound, beside)
        )
    return document


def _document_to_interval(
    document: Mapping[str, Any], beside: Mapping[str, NDArray[Any]]
) -> Interval | Unavailable:
    kept = revived(document)
    if isinstance(kept, Unavailable):
        return kept
    low, high = (
        kept[side] if isinstance(kept[side], float) else _document_to_array(kept[side], beside)
        for side in ("low", "high")
    )
    return Interval(low=low, high=high, level=kept["level"], method=kept["method"])


def _array_to_document(array: NDArray[Any], beside: Arrays) -> dict[str, Any]:
    document: dict[str, Any] = {
        "dtype": "text" if array.dtype.kind == "U" else array.dtype.name,
        "shape": list(array.shape),
    }
    if array.dtype.kind == "U" or array.size <= _INLINE:
        inline = {**document, "values": [_cell(cell) for cell in array.ravel().tolist()]}
        if _document_to_array(inline, {}).tobytes() == array.tobytes():
            return inline
    document["array"] = str(len(beside))
    beside[document["array"]] = array
    return document


def _cell(cell: Any) -> Any:
    return repr(cell) if isinstance(cell, float) and not np.isfinite(cell) else cell


def _document_to_array(
    document: Mapping[str, Any], beside: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    if "array" in document:
        return beside[document["array"]]
    dtype = np.dtype(np.str_ if document["dtype"] == "text" else document["dtype"])
    cells = document["values"]
    if dtype.kind == "f":
        cells = [float(cell) for cell in cells]
    return np.array(cells, dtype=dtype).reshape(document["shape"])
