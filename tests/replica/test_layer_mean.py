"""The mean gap over layers: its p-value and interval from draws that are known."""

import numpy as np
import pytest

from flowscope.replica import mean_gap

DRAWS = np.linspace(-1, 1, 99)


def found(value):
    """Latents without a gap, and one layer whose gap has a null that is even from −1 to 1."""
    null = np.stack([np.zeros(99), DRAWS])
    return mean_gap(np.array([0.0, value]), null, np.zeros((2, 8)))


@pytest.mark.parametrize("value", [0.9, -0.9, 0.5, 2.0])
def test_the_p_value_counts_both_sides_and_the_gap_itself(value):
    beyond = min((value <= DRAWS + 1e-8).sum(), (value >= DRAWS - 1e-8).sum())
    assert found(value).p_value == pytest.approx(2 * (1 + beyond) / 100)


def test_a_gap_in_the_middle_of_its_null_has_p_one():
    assert found(0.0).p_value == 1.0
