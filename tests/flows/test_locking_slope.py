"""The locking slope: exact for planted exponents, zero for exchangeable steps, joined exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress, t

from flowscope.errors import InvalidInputError
from flowscope.flows import common_slope, joined_sums, log_response, slope_sums
from flowscope.simplex import transplanted_steps


def _table(seed, prompts=4, tokens=5, layers=3):
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(prompts), tokens)
    delta = np.exp(-rng.exponential(2.0, (len(prompt), layers)))
    return rng, prompt, delta


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.floats(-2, 2))
def test_a_power_of_tail_mass_is_found_whatever_prompts_and_layers_add(seed, exponent):
    rng, prompt, delta = _table(seed)
    offset = 10 * rng.normal(size=(4, 3))
    sums = slope_sums(prompt, delta, exponent * np.log(delta) + offset[prompt])
    slope = common_slope(sums)
    assert slope.value == pytest.approx(exponent, abs=1e-9)
    np.testing.assert_allclose(slope.pseudo_values, exponent, atol=1e-9)


def test_one_prompt_and_layer_is_the_plain_regression():
    rng, prompt, delta = _table(0, prompts=1, tokens=20, layers=1)
    y = rng.normal(size=delta.shape)
    expected = linregress(np.log(delta[:, 0]), y[:, 0]).slope
    assert common_slope(slope_sums(prompt, delta, y)).value == pytest.approx(expected, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31))
def test_pseudo_values_are_those_of_leaving_prompts_out(seed):
    rng, prompt, delta = _table(seed)
    y = rng.normal(size=delta.shape)
    slope = common_slope(slope_sums(prompt, delta, y))
    for number in range(4):
        rest = prompt != number
        without = common_slope(slope_sums(prompt[rest], delta[rest], y[rest])).value
        expected = 4 * slope.value - 3 * without
        assert slope.pseudo_values[number] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.permutations(range(4)))
def test_sums_join_in_any_order(seed, order):
    rng, prompt, delta = _table(seed)
    y = rng.normal(size=delta.shape)
    whole = slope_sums(prompt, delta, y)
    parts = [
        slope_sums(prompt[here], delta[here], y[here]) for here in (prompt == p for p in order)
    ]
    joined = joined_sums(parts)
    for name in ("prompt", "count", "decided", "xx", "xy"):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), rtol=1e-12)


def test_a_prompt_in_two_parts_is_refused():
    _, prompt, delta = _table(0)
    sums = slope_sums(prompt, delta, delta)
    with pytest.raises(InvalidInputError, match="Prompt 0 is in two parts"):
        joined_sums([sums, sums])


def test_layers_are_chosen_and_their_spread_is_told():
    delta = np.exp(np.array([[-1.0, -0.1], [-3.0, -0.1], [-1.0, -0.1], [-3.0, -0.1]]))
    y = np.array([[0.0, 5.0], [4.0, -5.0], [1.0, 5.0], [5.0, -5.0]])
    sums = slope_sums([0, 0, 1, 1], delta, y)
    assert common_slope(sums, [0]).value == pytest.approx(-2.0)
    assert sums.spread([0]) == pytest.approx(np.sqrt(2))
    assert sums.spread([1]) == 0
    assert sums.spread() == pytest.approx(1.0)
    assert (sums.share([0]), sums.share([1]), sums.share()) == (1.0, 0.0, 0.5)
    assert sums.shares.tolist() == [1.0, 0.0]
    nothing = common_slope(sums, [1])
    assert np.isnan(nothing.value)
    assert not len(nothing.pseudo_values)
    assert np.isnan(nothing.standard_error)


def test_tokens_without_a_logarithm_are_left_out():
    rng, prompt, delta = _table(3)
    y = rng.normal(size=delta.shape)
    gone = rng.random(delta.shape) < 0.2
    sums = slope_sums(prompt, np.where(gone, 0.0, delta), y)
    assert sums.count.sum() == (~gone).sum()
    same = slope_sums(prompt, delta, np.where(gone, np.nan, y))
    assert common_slope(sums).value == pytest.approx(common_slope(same).value, rel=1e-12)
    assert np.isnan(log_response([0.0, 0.5], [[0.1, 0.2], [0.0, 0.3]])).all()


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="tail_mass and response"):
        slope_sums([0, 0], np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(InvalidInputError, match="axis of donors"):
        log_response(np.ones(3), np.ones(3))


def _steps(seed, exponent, prompts=16, tokens=16, outcomes=30, layers=3):
    """Steps of iid noise times δ^exponent, and the slope with its t interval."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(prompts):
        z = rng.uniform(1, 5, (tokens, 1)) * rng.normal(size=(tokens, outcomes))
        columns = []
        for _ in range(layers):
            laws = np.exp(z - z.max(1, keepdims=True))
            tail = 1 - laws.max(1, keepdims=True) / laws.sum(1, keepdims=True) + 1e-9
            after = z + tail**exponent * rng.normal(size=z.shape)
            turn = rng.integers(1, tokens - 1, (tokens, 1))
            donors = (np.arange(tokens)[:, None] + turn + [[0, 1]]) % tokens
            steps = transplanted_steps(z, after, donors)
            columns.append((steps.tail_mass, steps.total_variation, steps.transplanted))
            z = after
        rows.append([np.stack([c[k].numpy() for c in columns], 1) for k in range(3)])
    tail, moved, lent = (np.concatenate([row[k] for row in rows]) for k in range(3))
    prompt = np.repeat(np.arange(prompts), tokens)
    slope = common_slope(slope_sums(prompt, tail, log_response(moved, lent)))
    half = t.ppf(0.975, prompts - 1) * slope.standard_error
    return slope.value, slope.value - half, slope.value + half


def test_noise_does_not_lock_and_planted_locking_does():
    noise = np.array([_steps(seed, 0.0) for seed in range(20)])
    assert abs(noise[:, 0].mean()) < 0.02
    assert ((noise[:, 1] > 0) | (noise[:, 2] < 0)).sum() <= 4  # 5 % expected, P(> 4) = .003
    locked = np.array([_steps(seed, 0.3) for seed in range(3)])
    np.testing.assert_allclose(locked[:, 0], 0.3, atol=0.08)
    assert (locked[:, 1] > 0).all()
    # Large steps move more than in proportion: the sign is planted, the size is not.
    livelier = np.array([_steps(seed, -0.2) for seed in range(3)])
    assert (livelier[:, 2] < 0).all()
