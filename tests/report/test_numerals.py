"""Numbers as a reader sees them."""

import math

import pytest

from flowscope.report.numerals import numeral


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "∞"), (-math.inf, "−∞"), (0.0, "0"), (-2.5, "−2.5")]
)
def test_signs_of_finite_and_infinite_numbers(value, text):
    assert numeral(value) == text
