"""Numbers per prompt, against a plain loop over prompts: different ones, sums, medians."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flowscope.instruments.audit.units import distinct_prompts, prompt_sums
from flowscope.instruments.audit.variation.tables import prompt_medians

STATES = ("entropy", "p_max", "tail_mass", "margin", "mobility_frobenius", "mobility_trace")


@st.composite
def tokens(draw):
    """Tokens of prompts of any size in any order, some with equal numbers, zeros and gaps."""
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(lambda x: x[-1] > 0))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    prompt = np.repeat(np.arange(len(sizes)), sizes)
    prompt = rng.permutation(prompt) if draw(st.booleans()) else prompt
    values = rng.normal(size=(len(prompt), 4)).round(draw(st.sampled_from([0, 1, 9])))
    special = draw(st.sampled_from([[0.0, -0.0], [np.nan], [np.inf, -np.inf], [1.0]]))
    where = rng.random(values.shape) < draw(st.sampled_from([0.1, 0.8]))
    return prompt, np.where(where, rng.choice(special, size=values.shape), values)


def assert_same(found, plain):
    """Equal to the last bit, as files keep them."""
    assert_array_equal(found, plain)
    assert_array_equal(np.signbit(found), np.signbit(plain))
    assert found.dtype == plain.dtype


@given(tokens())
def test_sums_are_those_of_one_addition_per_token(drawn):
    prompt, values = drawn
    plain = np.zeros((prompt.max() + 3, values.shape[1]))
    with np.errstate(invalid="ignore"):
        np.add.at(plain, prompt, values)
        found = prompt_sums(values, prompt, len(plain))
    assert_array_equal(found, plain)
    assert found.dtype == plain.dtype


@settings(deadline=None)
@given(tokens(), st.sampled_from([np.float32, np.float64]))
def test_medians_are_those_of_each_prompt(drawn, dtype):
    prompt, values = drawn
    depth = {"prompt": prompt, "state_sq": np.ones((len(prompt), 5)), "step_sq": values**2}
    depth |= {name: (values + k).astype(dtype) for k, name in enumerate(STATES)}
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore")  # a prompt without tokens, ∞ − ∞
        found = prompt_medians(depth)
        own = [prompt == number for number in range(prompt.max() + 1)]
        for name in STATES:
            plain = np.stack([np.median(depth[name][rows], 0) for rows in own])
            assert_same(found[name], plain.astype(np.float64))
        assert_same(
            found["relative_step"], np.stack([np.median(values[rows] ** 2, 0) for rows in own])
        )


def plain_distinct(steps):
    """Oracle: every prompt beside every earlier different one."""
    first = []
    for number, row in enumerate(steps):
        if not any(np.allclose(row, steps[k], rtol=1e-4, atol=1e-12) for k in first):
            first.append(number)
    return first


@given(st.integers(0, 10**6), st.integers(0, 25), st.integers(1, 4))
def test_different_prompts_are_those_that_are_close_to_no_earlier_one(seed, prompts, layers):
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 3, size=(prompts, layers)) * (1 + 1.2e-4 * rng.random((prompts, 1)))
    special = rng.random(steps.shape) < 0.1
    steps = np.where(special, rng.choice([np.nan, np.inf, -np.inf, 0, 1e-12], steps.shape), steps)
    assert distinct_prompts({"relative_step": steps}).tolist() == plain_distinct(steps)


@pytest.mark.parametrize(("prompts", "distinct"), [(0, []), (1, [0]), (3, [0])])
def test_prompts_without_layers_are_all_alike(prompts, distinct):
    assert distinct_prompts({"relative_step": np.zeros((prompts, 0))}).tolist() == distinct
