import numpy as np
import pytest

from flowscope.errors import InvalidInputError
from flowscope.records import Interval, Unavailable

GOOD = {"low": 0.0, "high": 1.0, "level": 0.95, "method": "bootstrap"}


def test_floats_stay_floats_and_arrays_become_read_only_copies():
    assert isinstance(Interval(**{**GOOD, "low": np.float32(0.5)}).low, float)
    low, high = np.zeros(2), np.ones(2)
    interval = Interval(**{**GOOD, "low": low, "high": high})
    low[0] = 9
    assert interval.low.tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        interval.high[0] = 3


def test_an_open_side_is_infinite_and_a_cell_without_interval_is_nan():
    low = np.array([-np.inf, np.nan, 1.0])
    high = np.array([2.0, np.nan, np.inf])
    assert Interval(**{**GOOD, "low": low, "high": high}).shape == (3,)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"low": 2.0}, r"found low 2.0 and high 1.0 \(1 of 1 cells\)"),
        (
            {"low": np.array([0.0, 3.0, 4.0]), "high": np.full(3, 2.0)},
            r"low 3.0 and high 2.0 \(2 of 3",
        ),
        ({"low": np.zeros(2)}, r"must have one shape, found \(2,\) and \(\)"),
        ({"low": float("nan")}, "is NaN: where there is no interval, put Unavailable"),
        ({"low": np.array([np.nan]), "high": np.array([1.0])}, "NaN in the same cells"),
        ({"low": np.array([0.0]), "high": np.array([np.nan])}, "NaN in the same cells"),
        ({"low": False}, "must be a number, found booleans"),
        ({"low": "a"}, "must hold booleans, integers or floats"),
        ({"level": 1.0}, "between 0 and 1, found 1.0: 95 % is written 0.95"),
        ({"level": 0}, "between 0 and 1, found 0"),
        ({"level": np.array([0.9])}, "between 0 and 1"),
        ({"method": ""}, "the method of an interval must not be empty"),
    ],
)
def test_an_interval_that_breaks_an_invariant_is_refused_in_words(parts, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        Interval(**{**GOOD, **parts})


@pytest.mark.parametrize("reason", ["", "  ", None, 3])
def test_an_absence_without_a_reason_is_refused(reason):
    with pytest.raises(InvalidInputError, match="needs a reason in words"):
        Unavailable(reason)


def test_an_absence_is_not_falsy():
    assert Unavailable("not computed")
