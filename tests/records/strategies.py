"""Any record, and the portrait by which two records are compared bit for bit."""

import struct
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowscope.records import Interval, Manifest, Measurement, Unavailable, Verdict
from flowscope.records.frozen import Record

CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
WORDS = st.text(CHARACTERS, min_size=1, max_size=8).filter(str.strip)
TEXTS = st.text(CHARACTERS, max_size=8)
ABSENCES = st.builds(Unavailable, WORDS)
DTYPES = st.sampled_from(["?", "i1", "i8", "u1", "u8", "f2", "f4", "f8", ">f8"])


def arrays(shape: Any = None) -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, shapes if shape is None else shape))


def labels(length: int) -> st.SearchStrategy[Any]:
    exactly = {"min_size": length, "max_size": length}
    return st.one_of(
        st.lists(TEXTS, **exactly),
        st.lists(st.integers(-(2**63), 2**63 - 1), **exactly),
        hnp.arrays("f8", length),
        hnp.arrays("f4", length),
    )


@st.composite
def intervals(draw: Any, shape: tuple[int, ...]) -> Interval:
    level = draw(st.floats(0, 1, exclude_min=True, exclude_max=True))
    method = draw(WORDS)
    if draw(st.booleans()):
        low, high = sorted(draw(st.tuples(*[st.floats(allow_nan=False)] * 2)))
        return Interval(low=low, high=high, level=level, method=method)
    bounds = hnp.arrays(draw(st.sampled_from(["f4", "f8"])), shape)
    one, other = draw(bounds), draw(bounds)
    low = np.asarray(np.minimum(one, other))  # of 0-d arrays NumPy makes scalars
    high = np.asarray(np.where(np.isnan(low), low, np.maximum(one, other)))
    return Interval(low=low, high=high, level=level, method=method)


@st.composite
def measurements(draw: Any, shape: Any = None) -> Measurement:
    seed = draw(st.one_of(ABSENCES, st.integers()))
    n = draw(st.integers(0, 10**9))
    if draw(st.integers(0, 4)) == 0:
        make = draw(st.sampled_from([Measurement.abstained, Measurement.failed]))
        return make(draw(WORDS), draw(WORDS), n=n, seed=seed, unit=draw(WORDS | ABSENCES))
    values = draw(arrays(shape))
    names = st.text("abcdé𝛼", min_size=1, max_size=3)
    axes = draw(st.lists(names, min_size=values.ndim, max_size=values.ndim, unique=True))
    lengths = [pair for pair in zip(axes, values.shape, strict=True) if draw(st.booleans())]
    return Measurement(
        name=draw(WORDS),
        values=values,
        axes=tuple(axes),
        coordinates={axis: draw(labels(length)) for axis, length in lengths},
        unit=draw(WORDS),
        interval=draw(st.one_of(ABSENCES, intervals(values.shape))),
        n=n,
        estimator=draw(WORDS),
        dtype=draw(WORDS),
        seed=seed,
        because=draw(TEXTS),
    )


@st.composite
def verdicts(draw: Any) -> Verdict:
    statistic = draw(measurements(shape=()))
    silent = ["uninformative", "abstains"]
    outcome = draw(st.sampled_from(["holds", "fails"] * (statistic.status == "ok") + silent))
    return Verdict(
        name=draw(WORDS),
        claim=draw(WORDS),
        statistic=statistic,
        null=draw(st.one_of(ABSENCES, measurements(shape=()))),
        effect=draw(st.one_of(ABSENCES, st.floats(allow_nan=False))),
        interval=draw(
            st.one_of(
                ABSENCES,
                st.just(Interval(low=-np.inf, high=0.1, level=0.9, method="one-sided")),
            )
        ),
        decision="abstains" if outcome in silent else outcome,
        because=draw(WORDS),
        outcome=outcome,
        strength=draw(st.sampled_from(["", "negligible", "weak", "clear", "strong"])),
        p=draw(st.one_of(ABSENCES, st.floats(0, 1))),
    )


# Hypothesis reads our sources for words to try, and finds the two that a config may not use.
KEYS = TEXTS.filter(lambda key: key not in ("unavailable", "nonfinite"))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, ABSENCES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(KEYS, JSON, max_size=3)


def manifests() -> st.SearchStrategy[Manifest]:
    hashes = st.one_of(ABSENCES, st.dictionaries(KEYS, WORDS, max_size=3))
    return st.builds(
        Manifest,
        config_given=st.one_of(ABSENCES, CONFIGS),
        config_resolved=st.one_of(ABSENCES, CONFIGS),
        seeds=st.one_of(ABSENCES, st.dictionaries(KEYS, st.integers(), max_size=3)),
        versions=st.one_of(ABSENCES, st.dictionaries(KEYS, WORDS | ABSENCES, max_size=3)),
        device=WORDS | ABSENCES,
        weight_hashes=hashes,
        data_hashes=hashes,
        wall_time=st.one_of(ABSENCES, st.floats(0, 1e9)),
        commit=WORDS | ABSENCES,
        created_at=st.one_of(ABSENCES, st.just("2025-03-01T12:00:00+00:00")),
    )


def portrait(value: Any) -> Any:
    """Everything there is to see of a value, to the last bit, in comparable pieces."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Unavailable):
        return ("unavailable", value.reason)
    if isinstance(value, Record):
        parts = {field.name: portrait(getattr(value, field.name)) for field in fields(value)}
        return (type(value).__name__, parts)
    if isinstance(value, Mapping):
        return {key: portrait(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [portrait(item) for item in value]
    if isinstance(value, float):
        return "nan" if np.isnan(value) else struct.pack("<d", value)
    return (type(value).__name__, value)
