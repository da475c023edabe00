"""Weak error: exact for linear schemes, by step doubling for the rest."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tests.oracles import reverse_ode_variance, reverse_sde_variance, unit_clock_variance

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import (
    family_drift,
    linear_weak_error,
    sde_path,
    step_doubling,
    weak_error_slope,
)

GAUSSIAN = {"mean": [0.0], "covariance": [[0.25]], "linear": [[-1.0]], "diffusion": [[2.0]]}


def variance_errors(steps, lam, horizon=3.0):
    found = linear_weak_error(steps, **GAUSSIAN, horizon=horizon, lam=lam)
    return found.covariance_error.flatten().numpy()


@pytest.mark.parametrize(
    ("lam", "table"),
    [(1.0, [0.064273, 0.030249, 0.014632]), (0.0, [0.034392, 0.016844, 0.008323])],
)
def test_the_table_of_the_theory_page(lam, table):
    """§9.4; the flow's variance comes out too small, the SDE's too large: sizes."""
    assert_allclose(np.abs(variance_errors([50, 100, 200], lam)), table, atol=5e-7)


@given(st.floats(0.05, 3.0), st.floats(0.2, 4.0), st.integers(1, 40))
def test_one_dimension_agrees_with_the_scalar_recursion(s2, horizon, steps):
    for lam, oracle in ((1.0, reverse_sde_variance), (0.0, reverse_ode_variance)):
        problem = {**GAUSSIAN, "covariance": [[s2]]}
        found = linear_weak_error([steps], **problem, horizon=horizon, lam=lam).covariance_error
        assert_allclose(float(found), oracle(s2, horizon, steps) - s2, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_every_member_has_order_one(lam):
    steps = [200, 400, 800, 1600]
    assert abs(weak_error_slope(steps, variance_errors(steps, lam)).slope + 1) < 0.05


def test_the_slope_is_minus_one_only_asymptotically():
    """E49."""
    for steps, slope in (((25, 50, 100, 200), -1.0915), ((200, 400, 800, 1600), -1.0144)):
        assert_allclose(
            weak_error_slope(steps, variance_errors(steps, 1.0)).slope, slope, atol=5e-5
        )


def test_mean_and_covariance_fall_with_order_one_in_two_dimensions():
    """A non-normal A, a correlated a, a mean off zero."""
    steps = [100, 200, 400, 800]
    found = linear_weak_error(
        steps,
        mean=[1.0, -2.0],
        covariance=[[0.5, 0.2], [0.2, 0.8]],
        linear=[[-1.0, 0.7], [-0.4, -0.5]],
        diffusion=[[1.0, 0.3], [0.3, 0.2]],
        horizon=1.5,
        lam=0.7,
    )
    for errors in (found.mean_error, found.covariance_error.flatten(1)):
        for column in errors.T:
            assert abs(weak_error_slope(steps, column).slope + 1) < 0.1


@given(st.floats(-3, -0.2), st.floats(0.01, 10))
def test_a_power_law_has_its_slope_and_no_error(slope, size):
    steps = [10, 30, 70, 200]
    found = weak_error_slope(steps, [size * k**slope for k in steps])
    assert_allclose(found.slope, slope, atol=1e-10)
    assert found.standard_error < 1e-10


def test_the_interval_of_a_noisy_line_is_that_of_regression():
    """Against the covariance of numpy's fit."""
    steps, errors = [10, 20, 40, 80, 160], [0.11, 0.048, 0.027, 0.0121, 0.0066]
    found = weak_error_slope(steps, errors)
    fit, covariance = np.polyfit(np.log(steps), np.log(errors), 1, cov=True)
    assert_allclose([found.slope, found.standard_error], [fit[0], covariance[0, 0] ** 0.5])
    assert found.interval[0] < -1 < found.interval[1]


def test_two_points_have_no_interval():
    assert math.isnan(weak_error_slope([10, 20], [0.1, 0.05]).standard_error)


# --- step doubling -------------------------------------------------------------------------------


def reverse_sampler(lam, horizon=3.0):
    member = family_drift(
        lambda t, x: -x,
        lambda t, x: -x / (1 - 0.75 * torch.exp(-2 * t)),
        2.0,
        lam=lam,
        direction="reverse",
        horizon=horizon,
    )

    def ends(x0, dw):
        return sde_path(member.drift, member.noise, x0, [0.0, horizon], substeps=len(dw),
                        increments=dw, generator=torch.Generator()).states[-1]  # fmt: skip

    return ends


def doubled(lam, seed, samples=4000, steps=(25, 50, 100), functions=None, blocks=10):
    deviation = float(unit_clock_variance(0.25, 3.0)) ** 0.5
    return step_doubling(
        reverse_sampler(lam),
        functions or {"square": lambda x: x[:, 0] ** 2},
        steps,
        start=lambda n, g: deviation * torch.randn(n, 1, generator=g, dtype=torch.float64),
        horizon=3.0,
        samples=samples,
        blocks=blocks,
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_doubling_finds_the_exact_differences(lam):
    """Each within 4 standard errors (level 6e-5) of the moment recursion."""
    found = doubled(lam, 0)["square"]
    errors = variance_errors([25, 50, 100, 200], lam)
    z = (np.array(found.differences) - (errors[:-1] - errors[1:])) / found.standard_errors
    assert np.abs(z).max() < 4
    assert found.status == "ok"


def plain_reverse_euler(x, dw):
    """The same sampler without its checks."""
    h = 3.0 / len(dw)
    for k in range(len(dw)):
        v = float(unit_clock_variance(0.25, 3.0 - k * h))
        x = (1 + h - 2 * h / v) * x + math.sqrt(2) * dw[k]
    return x


def test_the_interval_covers_the_exact_slope():
    """60 runs at 95 %: fewer than 51 hits has probability 1e-3, 60 hits is likely enough."""
    errors = variance_errors([16, 32, 64], 1.0)
    exact = math.log(abs((errors[1] - errors[2]) / (errors[0] - errors[1]))) / math.log(2)
    deviation = float(unit_clock_variance(0.25, 3.0)) ** 0.5
    hits = 0
    for seed in range(60):
        found = step_doubling(
            plain_reverse_euler,
            {"square": lambda x: x[:, 0] ** 2},
            (16, 32),
            start=lambda n, g: deviation * torch.randn(n, 1, generator=g, dtype=torch.float64),
            horizon=3.0,
            samples=5000,
            blocks=10,
            generator=torch.Generator().manual_seed(seed),
        )["square"]
        hits += found.slope.interval[0] < exact < found.slope.interval[1]
    assert hits >= 51


def test_common_noise_makes_the_difference_small():
    """Spread of D_K: with independent noise it would be that of φ(X) itself, √2 times."""
    found = doubled(1.0, 0)["square"]
    independent = 0.25 * 2 / 4000**0.5
    assert found.standard_errors[-1] < independent / 10


def test_a_difference_within_its_noise_is_unresolved():
    """The mean is zero for every K by symmetry: no slope."""
    found = doubled(1.0, 0, functions={"mean": lambda x: x[:, 0]})["mean"]
    assert found.status == "unresolved"
    assert math.isnan(found.slope.slope)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": (20, 30)}, "power of two"),
        ({"steps": (20,)}, "at least two"),
        ({"samples": 4001}, "divide"),
        ({"blocks": 5}, "blocks"),
        ({"functions": {"square": lambda x: x**2}}, "one finite number"),
        ({"functions": {"log": lambda x: x[:, 0].log()}}, "one finite number"),
    ],
)
def test_bad_designs_get_a_sentence(change, words):
    with pytest.raises(InvalidInputError, match=words):
        doubled(1.0, 0, **change)


@pytest.mark.parametrize(
    ("steps", "errors", "words"),
    [
        ([10, 10], [0.1, 0.2], "at least 2 different"),
        ([10, 20], [0.1, 0.0], "not zero"),
        ([10, 20], [0.1], "one per number"),
        ([0, 20], [0.1, 0.2], "whole number"),
    ],
)
def test_bad_slopes_get_a_sentence(steps, errors, words):
    with pytest.raises(InvalidInputError, match=words):
        weak_error_slope(steps, errors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"covariance": [[0.0]]}, "positive definite"),
        ({"covariance": [[1.0, 0.0], [0.0, 1.0]]}, "1 × 1"),
        ({"diffusion": [[-1.0]]}, "negative eigenvalue"),
        ({"lam": 2.0}, "lam must"),
        ({"horizon": 0.0}, "horizon > 0"),
        ({"mean": [float("nan")]}, "finite"),
    ],
)
def test_bad_problems_get_a_sentence(change, words):
    with pytest.raises(InvalidInputError, match=words):
        linear_weak_error([10], **{**GAUSSIAN, "horizon": 1.0, "lam": 1.0, **change})
