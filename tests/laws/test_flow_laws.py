"""Laws of depth paths: gauge, names, bounds between statistics, partitions, scale."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch.testing import assert_close

from flowscope import flows, simplex

EVERY = slice(None)
seeds = st.integers(0, 2**31)
sizes = st.sampled_from([1e-3, 0.1, 1.0, 8.0])
profiles = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60)


def pair(seed: int, size: float, V: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z, step = torch.randn(2, 3, V, generator=generator, dtype=torch.float64)
    return 3 * z, 3 * z + size * step


def same(found, expected, **tolerance):
    for name, value in vars(expected).items():
        assert_close(vars(found)[name], value, **tolerance, msg=lambda m, n=name: f"{n}: {m}")


# States and steps


@given(seeds, sizes, st.floats(-50, 50), st.floats(-50, 50))
def test_a_shift_of_the_logits_changes_no_statistic(seed, size, a, b):
    z, y = pair(seed, size)
    tolerance = {"rtol": 1e-7, "atol": 1e-11}
    same(flows.state_statistics(z + a), flows.state_statistics(z), **tolerance)
    same(flows.step_statistics(z + a, y + b), flows.step_statistics(z, y), **tolerance)


@given(seeds, sizes, st.permutations(range(12)))
def test_names_of_outcomes_do_not_matter(seed, size, order):
    z, y = pair(seed, size)
    found, expected = flows.state_statistics(z[:, order]), flows.state_statistics(z)
    assert_close(torch.tensor(order)[found.argmax], expected.argmax)
    found = flows.step_statistics(z[:, order], y[:, order])
    same(found, flows.step_statistics(z, y), rtol=1e-9, atol=1e-15)


@given(seeds, sizes)
def test_a_step_back_is_as_long(seed, size):
    z, y = pair(seed, size)
    there, back = flows.step_statistics(z, y), flows.step_statistics(y, z)
    for name in ("step_sq", "oscillation", "total_variation"):
        assert_close(getattr(back, name), getattr(there, name), rtol=1e-9, atol=1e-15)


@given(seeds, sizes)
def test_bounds_between_the_statistics_of_a_step(seed, size):
    """Pinsker, the oscillation bound and the locking bound; ‖Δz‖² between osc²/2 and V osc²/4."""
    z, y = pair(seed, size)
    step = flows.step_statistics(z, y)
    above = 1 + 1e-9
    assert (step.total_variation <= above * (step.kl_divergence / 2).sqrt()).all()
    assert (step.total_variation <= above * torch.tanh(step.oscillation / 4)).all()
    bound = simplex.locking_bound(torch.softmax(z, -1), step.oscillation)
    assert (step.total_variation <= above * bound).all()
    assert (step.first_order <= above * step.oscillation / 4).all()
    assert (step.step_sq >= step.oscillation.square() / 2 / above).all()
    assert (step.step_sq <= above * 12 * step.oscillation.square() / 4).all()


@given(seeds, sizes)
def test_bounds_between_the_statistics_of_a_state(seed, size):
    state = flows.state_statistics(pair(seed, size)[1])
    assert_close(state.p_max + state.tail_mass, torch.ones(3).double())
    assert (state.margin <= state.p_max).all()
    assert (state.entropy <= math.log(12) + 1e-12).all()
    assert (state.mobility_frobenius <= state.mobility_trace * (1 + 1e-12)).all()
    assert (state.mobility_trace <= 2 * state.tail_mass).all()


@given(seeds, st.floats(0.0, 3.0))
def test_a_path_along_one_drift_is_a_replicator_flow(seed, t):
    """softmax(z + tb) is p(t) ∝ p₀ e^{bt}; its steps are read accordingly."""
    z, y = pair(seed, 1.0)
    p = simplex.replicator_flow(torch.softmax(z, -1), y - z, t)
    found = flows.step_statistics(z, z + t * (y - z)).total_variation
    assert_close(found, simplex.total_variation(torch.softmax(z, -1), p), rtol=1e-9, atol=1e-14)


@given(seeds, sizes, st.sampled_from([2, 5, 300]))
def test_the_meter_reads_what_the_reference_reads(seed, size, vocabulary):
    z, y = (x.float() for x in pair(seed, size, vocabulary))
    meter = flows.DepthMeter(3, vocabulary)
    same(meter.start(EVERY, z), flows.state_statistics(z), rtol=1e-5, atol=1e-30)
    state, step = meter.advance(EVERY, y)
    same(state, flows.state_statistics(y), rtol=1e-5, atol=1e-30)
    same(step, flows.step_statistics(z, y), rtol=1e-4, atol=1e-30)


# Variation


@given(seeds, st.integers(1, 20), st.floats(1e-3, 1e3))
def test_bounds_and_scale_of_variation(seed, n, scale):
    z = np.random.default_rng(seed).standard_normal((4, n + 1, 6)).cumsum(1)
    z -= z.mean(-1, keepdims=True)
    steps, states = (np.diff(z, axis=1) ** 2).sum(-1), (z[:, 1:] ** 2).sum(-1)
    chord = np.linalg.norm(z[:, -1] - z[:, 0], axis=-1)
    assert (flows.concentration(steps) >= 1 - 1e-12).all()
    assert (flows.concentration(steps) <= n + 1e-12).all()
    assert (flows.tortuosity(steps, chord) >= 1 - 1e-12).all()
    for found, expected in [
        (flows.concentration(scale**2 * steps), flows.concentration(steps)),
        (flows.tortuosity(scale**2 * steps, scale * chord), flows.tortuosity(steps, chord)),
        (
            flows.relative_variation(scale**2 * steps, scale**2 * states),
            flows.relative_variation(steps, states),
        ),
    ]:
        assert_allclose(found, expected, rtol=1e-9)


@given(seeds, st.integers(1, 12), st.integers(1, 12))
def test_variation_of_two_parts_adds(seed, m, n):
    steps = np.random.default_rng(seed).uniform(0, 2, (3, m + n))
    for function in (flows.path_length, flows.quadratic_variation):
        assert_allclose(function(steps[:, :m]) + function(steps[:, m:]), function(steps))


@given(seeds, st.integers(1, 12))
def test_the_straight_line_is_the_shortest_way_in_quadratic_variation(seed, n):
    """Equal steps along the chord have the least Σ‖Δz‖² of all paths with these ends."""
    z = np.random.default_rng(seed).standard_normal((n + 1, 6)).cumsum(0)
    found = flows.quadratic_variation((np.diff(z, axis=0) ** 2).sum(-1))
    assert found >= ((z[-1] - z[0]) ** 2).sum() / n - 1e-12


# Segmentation


def layout(steps):
    return [(s.first, s.last, s.kind) for s in flows.segments_of(steps)]


@given(profiles)
def test_segments_partition_the_layers(steps):
    found = flows.segments_of(steps)
    layers = [k for s in found for k in range(s.first, s.last + 1)]
    assert layers == list(range(1, len(steps) + 1))


@given(profiles)
def test_segments_are_long_and_cuts_are_few(steps):
    L = len(steps)
    assert all(len(s) >= max(3, L / 6) for s in flows.segments_of(steps) if s.kind == "segment")
    cuts = flows.jump_report(steps, np.zeros(L))
    assert len(cuts) <= max(2, L // 10)
    kind = {k: s.kind for s in flows.segments_of(steps) for k in range(s.first, s.last + 1)}
    assert all(kind[cut.layer] == "jump" for cut in cuts)


@given(profiles, st.integers(-30, 30))
def test_a_common_factor_changes_no_segment(steps, power):
    """Powers of two, so that the factor itself is exact; logarithms round below 1e-9."""
    assert layout(np.array(steps) * 2.0**power) == layout(steps)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60, unique=True))
def test_depth_read_backwards_gives_the_segments_backwards(steps):
    L = len(steps)
    backwards = [(L + 1 - b, L + 1 - a, kind) for a, b, kind in reversed(layout(steps))]
    assert layout(steps[::-1]) == backwards


# Detector


@given(seeds, st.integers(-20, 20))
def test_units_of_the_steps_do_not_matter_to_the_detector(seed, power):
    values = np.random.default_rng(seed).lognormal(0, 1.5, 60)
    plain, scaled = flows.JumpDetector(), flows.JumpDetector()
    for value in values:
        a, b = plain.update(value), scaled.update(value * 2.0**power)
        assert (a.level, a.severity) == (b.level, b.severity)


@given(seeds)
def test_the_window_mean_is_that_of_the_values_since_the_last_event(seed):
    values = np.random.default_rng(seed).lognormal(0, 2, 50)
    detector, since = flows.JumpDetector(window=4), []
    for value in values:
        found = detector.update(value)
        since = [*since, value][-4:]
        assert found.mean == pytest.approx(np.mean(since), rel=1e-14)
        since = [] if found.event else since
