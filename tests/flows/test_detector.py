"""The online detector, and the three failures of the published one (source 000 Algorithm 1)."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowscope import flows
from flowscope.errors import InvalidInputError


def run(detector: flows.JumpDetector, values) -> list[flows.Detection]:
    return [detector.update(v) for v in values]


# The published failures


def test_a_quiet_window_divides_by_nothing():
    """Published: std/mean of a window of zeros is 0/0, and the threshold is NaN from then on."""
    found = run(flows.JumpDetector(window=4, minimum=3), [0.0] * 12)
    assert [d.severity for d in found[7:]] == [0.0] * 5
    assert not any(d.event for d in found)


def test_motion_after_stillness_is_an_event():
    *_, last = run(flows.JumpDetector(window=4, minimum=3), [0.0] * 12 + [1e-9])
    assert last.event
    assert last.severity == math.inf


def test_a_floor_lets_small_motion_after_stillness_pass():
    *_, last = run(flows.JumpDetector(window=4, minimum=3, floor=1e-6), [0.0] * 12 + [1e-9])
    assert last.level == "quiet"


def test_a_spike_does_not_raise_its_own_threshold():
    """Published: window 10, background 0.1, a spike of window mean 1.2 × base goes unflagged."""
    spike = 12 - 9 * 0.01
    found = run(flows.JumpDetector(window=10, minimum=5), [0.01] * 20 + [spike])
    assert found[-1].threshold == found[-2].threshold
    assert_allclose(found[-1].mean, 1.2)
    assert_allclose(found[-1].severity, 1.2 / 0.03)
    assert found[-1].event


def test_spikes_do_not_raise_the_threshold_of_later_spikes():
    values = ([0.01] * 9 + [5.0]) * 8
    found = run(flows.JumpDetector(window=3, minimum=5), values)
    assert [d.index for d in found if d.event] == list(range(9, 80, 10))
    assert {d.threshold for d in found if d.threshold is not None} == {0.03}


def test_the_window_sum_does_not_drift():
    """Published: after a step of 1e9 has left the window its running sum is 0 and not 4e-6."""
    values = [1e-6] * 4 + [1e18] + [1e-6] * 8
    detector = flows.JumpDetector(window=4, minimum=1, floor=1e30)  # so that nothing is an event
    found = run(detector, values)
    assert_allclose(found[-1].mean, 1e-6, rtol=1e-15)
    assert_allclose(found[4].mean, 0.25e18)


# The definition


def test_severity_is_the_window_mean_over_the_multiplied_quiet_median():
    rng = np.random.default_rng(0)
    values = rng.uniform(0.5, 1.5, 40)
    found = run(flows.JumpDetector(window=3, multiplier=4.0, minimum=5), values)
    for k in range(8, 40):
        threshold = 4 * np.median(values[: k - 2])
        assert_allclose(found[k].threshold, threshold)
        assert_allclose(found[k].severity, values[k - 2 : k + 1].mean() / threshold)


def test_nothing_is_judged_before_the_minimum_history():
    found = run(flows.JumpDetector(window=3, minimum=5), [1.0] * 7 + [100.0])
    assert [d.level for d in found] == ["learning"] * 7 + ["event"]
    assert found[0].threshold is None
    assert found[0].severity is None


@pytest.mark.parametrize(
    ("value", "level"), [(2.9, "quiet"), (3.1, "raised"), (5.9, "raised"), (6.1, "event")]
)
def test_raised_above_the_threshold_and_event_above_twice_it(value, level):
    *_, last = run(flows.JumpDetector(window=1, multiplier=3.0, minimum=5), [1.0] * 6 + [value])
    assert last.level == level


def test_an_event_closes_the_window():
    """A spike is reported once, not again while it is still within the window."""
    found = run(flows.JumpDetector(window=4, minimum=5), [1.0] * 12 + [99.0] + [1.0] * 6)
    assert [d.index for d in found if d.event] == [12]
    assert_allclose([d.mean for d in found[13:]], 1.0)


def test_raised_values_do_not_enter_the_history():
    found = run(flows.JumpDetector(window=1, minimum=5), [1.0] * 6 + [4.0] * 50)
    assert {d.level for d in found[6:]} == {"raised"}
    assert found[-1].threshold == 3.0


def test_a_long_history_forgets():
    found = run(flows.JumpDetector(window=1, minimum=2, memory=4), [1.0] * 6 + [2.0] * 8)
    assert found[6].threshold == 3.0
    assert found[-1].threshold == 6.0


def test_calibration_profile_is_flagged_at_its_end():
    """Medians of relative steps of SmolLM2-135M: layer 30 jumps, 25 does not."""
    middle = ([0.03, 0.05, 0.02, 0.04] * 6)[:22]
    steps = [3.35, 0.135, *middle, 0.223, 0.05, 0.03, 0.09, 0.06, 0.856]
    found = run(flows.JumpDetector(), steps)
    assert [d.index + 1 for d in found if d.event] == [30]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": 0}, "window"),
        ({"minimum": 0}, "minimum"),
        ({"multiplier": 0.0}, "multiplier"),
        ({"floor": -1.0}, "floor"),
        ({"floor": math.nan}, "floor"),
        ({"memory": 3}, "memory"),
    ],
)
def test_bad_settings_get_a_sentence(options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        flows.JumpDetector(**options)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_bad_values_get_a_sentence_and_are_not_kept(value):
    detector = flows.JumpDetector(window=2, minimum=2)
    run(detector, [1.0] * 5)
    with pytest.raises(InvalidInputError, match="finite and not negative"):
        detector.update(value)
    assert detector.update(1.0).severity == detector.update(1.0).severity == 1 / 3
