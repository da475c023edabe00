import copy
import pickle
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from tests.records.strategies import measurements, portrait

from flowscope.errors import InvalidInputError, RecordError
from flowscope.records import Interval, Measurement, Unavailable

GOOD = {"name": "drift", "unit": "nat", "n": 8, "estimator": "mean", "dtype": "float64"}


def measured(**parts):
    return Measurement(**{**GOOD, "values": np.zeros((2, 3)), "axes": ("layer", "head"), **parts})


def test_values_are_a_read_only_copy():
    given_values = np.zeros((2, 3))
    measurement = measured(values=given_values, coordinates={"layer": ["in", "out"]})
    given_values[0, 0] = 7
    assert measurement.numbers()[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        measurement.numbers()[0, 0] = 7
    for axis in ("layer", "head"):
        with pytest.raises(ValueError, match="read-only"):
            measurement.coordinates[axis][0] = 7
    with pytest.raises(TypeError, match="assignment"):
        measurement.coordinates["layer"] = np.arange(2)
    with pytest.raises(FrozenInstanceError):
        measurement.n = 9


def test_records_are_compared_by_identity_only():
    assert measured() != measured()


def test_an_axis_without_labels_is_labelled_by_position():
    measurement = measured(coordinates={"layer": ["in", "out"]})
    assert measurement.coordinates["layer"].tolist() == ["in", "out"]
    assert measurement.coordinates["head"].tolist() == [0, 1, 2]


@settings(deadline=None, max_examples=60)
@given(measurements())
def test_pickling_and_copying_keep_every_bit_and_stay_read_only(measurement):
    for twin in (pickle.loads(pickle.dumps(measurement)), copy.deepcopy(measurement)):
        assert portrait(twin) == portrait(measurement)
        if twin.status == "ok":
            assert not twin.numbers().flags.writeable


@settings(deadline=None, max_examples=60)
@given(measurements())
def test_the_table_has_one_row_per_cell(measurement):
    table = measurement.to_pandas()
    if measurement.status != "ok":
        assert len(table) == 1
        assert np.isnan(table["value"][0])
        assert table["because"][0] == measurement.because
        return
    assert len(table) == np.prod(measurement.numbers().shape, dtype=int)
    assert list(table.columns[1 : 1 + len(measurement.axes)]) == list(measurement.axes)
    np.testing.assert_array_equal(table["value"].to_numpy(), measurement.numbers().ravel())


def test_every_row_carries_the_coordinates_of_its_cell():
    values = np.arange(6.0).reshape(2, 3)
    interval = Interval(low=values - 1, high=values + 2, level=0.9, method="bootstrap")
    table = measured(
        values=values, coordinates={"layer": ["a", "b"], "head": [10, 20, 30]}, interval=interval
    ).to_pandas()
    row = table[(table["layer"] == "b") & (table["head"] == 20)].iloc[0]
    assert (row["value"], row["low"], row["high"], row["level"]) == (4, 3, 6, 0.9)
    assert (row["name"], row["n"], row["unit"], row["estimator"]) == ("drift", 8, "nat", "mean")
    assert (row["status"], row["because"]) == ("ok", "")


def test_an_interval_of_a_smaller_shape_is_broadcast_in_the_table():
    interval = Interval(
        low=np.array([[1.0], [2.0]]), high=np.full((2, 1), 3.0), level=0.9, method="b"
    )
    assert measured(interval=interval).to_pandas()["low"].tolist() == [1, 1, 1, 2, 2, 2]
    flat = Interval(low=-1, high=1, level=0.9, method="b")
    assert measured(interval=flat).to_pandas()["high"].tolist() == [1.0] * 6


def test_tables_of_several_measurements_concatenate_to_numbers():
    flags = measured(values=np.array([True, False]), axes=("layer",))
    gone = Measurement.abstained("gone", "no tail")
    whole = pd.concat([m.to_pandas() for m in (measured(), flags, gone)], ignore_index=True)
    assert whole["value"].dtype == np.float64
    assert flags.to_pandas()["value"].dtype == np.int64  # pandas 2 makes objects of both kinds
    assert len(whole) == 6 + 2 + 1


def test_the_labelled_array_keeps_values_coordinates_bounds_and_origin():
    values = np.arange(6.0).reshape(2, 3)
    interval = Interval(low=0.0, high=1.0, level=0.9, method="bootstrap")
    array = measured(
        values=values, coordinates={"head": ["a", "b", "c"]}, interval=interval
    ).to_xarray()
    assert array.dims == ("layer", "head")
    assert array.sel(layer=1, head="b").item() == 4
    assert array.sel(layer=1, head="b")["high"].item() == 1
    assert array.attrs["unit"] == "nat"
    assert array.attrs["level"] == 0.9
    assert array.attrs["seed"] == "unavailable: no seed was given"


def test_the_labelled_array_of_an_abstained_measurement_is_nan_and_says_why():
    array = Measurement.abstained("drift", "the model has no tail").to_xarray()
    assert np.isnan(array.item())
    assert array.attrs["status"] == "abstained"
    assert array.attrs["because"] == "the model has no tail"


def test_to_xarray_without_xarray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(RecordError, match=r"pip install 'flowscope\[xarray\]'"):
        measured().to_xarray()


@pytest.mark.parametrize("make", [Measurement.abstained, Measurement.failed])
def test_a_measurement_that_is_not_ok_has_no_number_to_misuse(make):
    measurement = make("drift", "the model has no tail", n=3, unit="nat")
    assert isinstance(measurement.values, Unavailable)
    assert measurement.values.reason == "the model has no tail"
    assert measurement.status == make.__name__
    with pytest.raises(RecordError, match=f"status is {make.__name__}: the model has no tail"):
        measurement.numbers()
    with pytest.raises(InvalidInputError, match="must not be used is not kept"):
        replace(measurement, values=np.zeros(2), axes=("layer",))


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"name": " "}, "name of a measurement must not be empty"),
        ({"name": 3}, "must be text, found int 3"),
        ({"name": "a\0b"}, "must not contain the NUL character"),
        ({"name": "\ud800"}, "text that UTF-8 can hold"),
        ({"unit": ""}, "the unit of measurement 'drift' must not be empty"),
        ({"unit": Unavailable("?")}, "the unit of measurement 'drift' must be text"),
        ({"estimator": ""}, "the estimator of"),
        ({"dtype": ""}, "the dtype of"),
        ({"n": -1}, "counts units, so 0 or more, found -1"),
        ({"n": True}, "must be a whole number, found bool"),
        ({"n": 1.0}, "must be a whole number, found float 1.0"),
        ({"seed": "7"}, "the seed of measurement 'drift' must be a whole number"),
        ({"status": "fine"}, "one of ok, abstained, failed, found 'fine'"),
        ({"status": "abstained"}, "reason .because. of measurement 'drift' must not be empty"),
        ({"status": "failed", "because": "x"}, "must not be used is not kept"),
        ({"values": Unavailable("x")}, "yet its status is ok: use Measurement.abstained"),
        ({"values": np.zeros(2, complex)}, "found dtype complex128: convert it"),
        ({"values": np.zeros(2, np.longdouble)}, "floats up to 64 bits, found dtype"),
        ({"values": np.array(["a"])}, "found dtype <U1"),
        ({"values": [[1, 2], [3]]}, "must be an array of numbers, found list"),
        ({"values": np.ma.masked_array([1.0], [True])}, "its mask cannot be kept"),
        ({"axes": ("layer",)}, r"have 2 dimensions, found 1 axes \('layer',\)"),
        ({"axes": "ab"}, "must be a tuple of names, found 'ab'"),
        ({"axes": ("layer", "layer")}, "names of their own, found layer twice"),
        ({"axes": ("layer", "value")}, "among the columns of every table"),
        ({"coordinates": {"token": [1]}}, r"name \['token'\], its axes are"),
        ({"coordinates": [1, 2]}, "must map axes to labels"),
        (
            {"coordinates": {"head": [1, 2]}},
            "axis 'head' of measurement 'drift' has length 3, found 2",
        ),
        ({"coordinates": {"layer": ["a", 1]}}, "mixes text and numbers"),
        ({"coordinates": {"layer": "ab"}}, "must be a sequence of labels, found 'ab'"),
        ({"coordinates": {"layer": np.zeros((2, 1))}}, r"must be 1-D, found shape \(2, 1\)"),
        ({"coordinates": {"layer": [[1], [2]]}}, r"must be 1-D, found shape \(2, 1\)"),
        ({"coordinates": {"layer": ["a\0", "b"]}}, "must not contain the NUL"),
        ({"interval": (0, 1)}, "must be Interval or Unavailable"),
        (
            {"interval": Interval(low=np.zeros(2), high=np.ones(2), level=0.9, method="b")},
            r"has shape \(2,\), which does not broadcast to \(2, 3\)",
        ),
        (
            {
                "interval": Interval(
                    low=np.zeros((4, 2, 3)), high=np.ones((4, 2, 3)), level=0.9, method="b"
                )
            },
            r"does not broadcast to \(2, 3\)",
        ),
    ],
)
def test_a_measurement_that_breaks_an_invariant_is_refused_in_words(parts, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        measured(**parts)
