"""Segmentation of the depth, on the calibration profile and on the corners of its definition."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowscope import flows
from flowscope.errors import InvalidInputError

# Medians over tokens of ‖Δz‖²/‖z_new‖² of SmolLM2-135M on WikiText-2: the named layers as measured,
# the ranges (.01–.06 at 3–24, .03–.09 at 26–29) spread evenly and out of order.
MIDDLE = 0.01 + 0.05 * ((np.arange(22) * 0.618034) % 1)
LATE = 0.03 + 0.06 * ((np.arange(4) * 0.618034) % 1)
CALIBRATION = np.array([3.35, 0.135, *MIDDLE, 0.223, *LATE, 0.856])


def layout(steps) -> list[tuple[int, int, str]]:
    return [(s.first, s.last, s.kind) for s in flows.segments_of(steps)]


def with_jumps(layers: int, *jumps: int, size: float = 100.0) -> np.ndarray:
    """Steps that alternate by a factor of two, and jumps at the given layers."""
    steps = np.where(np.arange(layers) % 2, 1.0, 2.0)
    steps[[j - 1 for j in jumps]] = size
    return steps


def jumps_at_its_ends_and_flows_between(steps) -> bool:
    """What must come out: layers 1 and 30 are jumps, and 3–24 lie inside one segment."""
    kind = {k: s.kind for s in flows.segments_of(steps) for k in range(s.first, s.last + 1)}
    inside = any(s.first <= 3 and s.last >= 24 for s in flows.segments_of(steps))
    return kind[1] == kind[30] == "jump" and kind[3] == "segment" and inside


def test_calibration_model_jumps_at_its_ends_and_flows_between():
    assert len(CALIBRATION) == 30
    assert jumps_at_its_ends_and_flows_between(CALIBRATION)


def test_calibration_does_not_hang_on_how_the_ranges_are_filled():
    """Over ranges filled at random; a share of 1/1000 spreads so evenly that .856 is no outlier."""
    rng = np.random.default_rng(0)
    right = 0
    for _ in range(400):
        steps = CALIBRATION.copy()
        steps[2:24] = rng.uniform(0.01, 0.06, 22)
        steps[25:29] = rng.uniform(0.03, 0.09, 4)
        right += jumps_at_its_ends_and_flows_between(steps)
    assert right >= 396


def test_a_smooth_path_is_one_segment():
    assert layout(with_jumps(12)) == [(1, 12, "segment")]


def test_a_jump_splits_the_path():
    assert layout(with_jumps(20, 9)) == [(1, 8, "segment"), (9, 9, "jump"), (10, 20, "segment")]


@pytest.mark.parametrize("deviations", [2.9, 3.1])
def test_three_robust_deviations_make_a_cut(deviations):
    """Eleven log steps −5 … 5 have median 0; adding one at x moves it to ½ and the MAD to 3."""
    logs = np.arange(-5.0, 6.0)
    logs = np.append(logs, 0.5 + deviations * 1.4826 * 3)
    found = layout(np.exp(logs))
    assert (found[-1] == (12, 12, "jump")) == (deviations > 3)


def test_jumps_within_three_layers_are_one_jump():
    assert layout(with_jumps(24, 10, 13)) == [
        (1, 9, "segment"),
        (10, 13, "jump"),
        (14, 24, "segment"),
    ]


def test_jumps_four_layers_apart_are_two_with_a_remnant_between():
    assert layout(with_jumps(24, 9, 13)) == [
        (1, 8, "segment"),
        (9, 9, "jump"),
        (10, 12, "jump"),
        (13, 13, "jump"),
        (14, 24, "segment"),
    ]


@pytest.mark.parametrize(("layers", "allowed"), [(24, 2), (30, 3), (39, 3), (40, 4)])
def test_at_most_so_many_cuts_and_the_largest_are_kept(layers, allowed):
    steps = with_jumps(layers)
    places = [4, 9, 14, 19, 24][: allowed + 1]
    for rank, place in enumerate(places):
        steps[place - 1] = 1000.0 * (rank + 2)
    cuts = [s.first for s in flows.segments_of(steps) if s.first == s.last]
    assert cuts == places[1:]


@pytest.mark.parametrize(
    ("layers", "cut", "kind"),
    [(12, 3, "jump"), (12, 4, "segment"), (30, 5, "jump"), (30, 6, "segment")],
)
def test_short_remnants_abstain(layers, cut, kind):
    """Before a cut at layer c lie c − 1 layers; three are enough of 12, five of 30."""
    assert layout(with_jumps(layers, cut))[0] == (1, cut - 1, kind)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([0.3], [(1, 1, "jump")]),
        ([0.3, 0.4], [(1, 2, "jump")]),
        ([0.1, 9.0], [(1, 2, "jump")]),
        ([0.1, 0.1, 0.1], [(1, 3, "segment")]),
        ([0.0, 0.0, 0.0, 0.0], [(1, 4, "segment")]),
    ],
)
def test_very_short_and_still_paths(steps, found):
    assert layout(steps) == found


def test_equal_steps_with_one_jump_are_cut_though_their_deviation_is_zero():
    assert layout([0.1] * 5 + [0.2] + [0.1] * 4) == [
        (1, 5, "segment"),
        (6, 6, "jump"),
        (7, 10, "segment"),
    ]


@pytest.mark.parametrize("rounding", [0.0, 1e-15])
def test_where_most_steps_are_equal_the_mean_deviation_is_the_scale(rounding):
    """Seven log steps at 0 and three at 0.1: MAD 0, mean deviation .03, threshold .113."""
    steps = np.exp([0, 0, 0.1, 0, 0, 0.1, 0, 0, 0.1, 0])
    steps[[1, 4, 7]] *= 1 + rounding
    assert layout(steps) == [(1, 10, "segment")]


def test_rounding_is_no_jump():
    steps = np.full(12, 0.1)
    steps[[2, 5, 9]] *= 1 + 1e-15
    assert layout(steps) == [(1, 12, "segment")]


def test_layers_that_do_not_move_set_no_scale():
    """Half of the layers skipped: the others are judged among themselves."""
    steps = np.zeros(20)
    steps[::2] = with_jumps(10, 5)
    assert [s for s in layout(steps) if s[0] == s[1]] == [(9, 9, "jump")]


def test_segments_are_counted_with_both_ends():
    assert [len(s) for s in flows.segments_of(with_jumps(20, 9))] == [8, 1, 11]


def test_jump_report_of_the_calibration_model():
    variation = np.full(30, 0.2)
    variation[[0, 29]] = 1.0, 0.61
    first, *_, last = flows.jump_report(CALIBRATION, variation)
    assert (first.layer, first.total_variation, first.relative_step) == (1, 1.0, 3.35)
    assert (last.layer, last.total_variation, last.relative_step) == (30, 0.61, 0.856)
    assert_allclose(first.velocity_change, math.sqrt(3.35 / 0.135))
    assert_allclose(last.velocity_change, math.sqrt(0.856 / LATE[-1]))


def test_velocity_change_compares_with_both_neighbours():
    steps = with_jumps(20, 9)
    steps[[7, 9]] = 1.0, 9.0
    (jump,) = flows.jump_report(steps, np.zeros(20))
    assert_allclose(jump.velocity_change, 10.0 / 2.0)


def test_a_jump_between_layers_that_stand_still_is_infinitely_faster():
    steps = with_jumps(20, 9)
    steps[[7, 9]] = 0.0
    (jump,) = flows.jump_report(steps, np.zeros(20))
    assert jump.velocity_change == math.inf


def test_a_cluster_reports_its_largest_step():
    steps = with_jumps(24, 10, 12)
    steps[11] = 300.0
    (jump,) = flows.jump_report(steps, np.linspace(0, 1, 24))
    assert jump.layer == 12
    assert_allclose(jump.total_variation, 11 / 23)


def test_a_smooth_path_reports_no_jump():
    assert flows.jump_report(with_jumps(12), np.zeros(12)) == ()


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([], "at least one layer"),
        (0.5, "at least one layer"),
        ([[0.1, 0.2]], "at least one layer"),
        ([0.1, math.nan, 0.2], "found nan at layer 2"),
        ([0.1, 0.2, math.inf], "found inf at layer 3"),
        ([-0.1, 0.2], "found -0.1 at layer 1"),
    ],
)
def test_bad_steps_get_a_sentence(steps, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        flows.segments_of(steps)


def test_a_report_needs_one_variation_per_layer():
    with pytest.raises(InvalidInputError, match="one number per layer"):
        flows.jump_report([0.1, 0.2, 0.3], [0.1, 0.2])
