"""Speciation of a two-component mixture: κ, its fixed point, its onset."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import oracles

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    live_gain,
    mixture_amplitude,
    mixture_step,
    speciation_parameter,
)

GAMMA, C, ETA, M2 = 0.4, 0.5, 0.7, 0.9


def test_the_onset_of_the_errata():
    """γ = .4, c = .5, η = .7, m² = .6875: κ = 1 and the live Jacobian is 1 (E84)."""
    assert speciation_parameter(GAMMA, m2=0.6875, c=C, eta=ETA) == pytest.approx(1.0, abs=1e-15)
    assert live_gain(GAMMA, m2=0.6875, c=C, eta=ETA) == pytest.approx(1.0, abs=1e-15)


@given(st.floats(0.01, 3), st.floats(0, 4), st.floats(0.05, 3), st.floats(-1, 1.5))
def test_kappa_passes_one_where_the_live_gain_does(gamma, m2, c, eta):
    assume((1 - eta) * c + gamma > 1e-3)
    kappa, live = (
        speciation_parameter(gamma, m2=m2, c=c, eta=eta),
        live_gain(gamma, m2=m2, c=c, eta=eta),
    )
    assume(abs(kappa - 1) > 1e-9)
    assert np.sign(kappa - 1) == np.sign(live - 1)


def test_without_a_positive_denominator_there_is_no_kappa():
    """(1 − η)c + γ ≤ 0: the block amplifies whatever the score does."""
    with pytest.raises(InvalidInputError, match="amplifies"):
        speciation_parameter(0.1, m2=1.0, c=1.0, eta=1.2)


@pytest.mark.parametrize(
    "bad", [{"gamma": 0.0}, {"gamma": math.nan}, {"c": 0.0}, {"m2": -0.1}, {"eta": math.inf}]
)
def test_numbers_that_make_no_mixture_are_refused(bad):
    given_ = {"gamma": GAMMA, "m2": M2, "c": C, "eta": ETA, **bad}
    with pytest.raises(InvalidInputError):
        speciation_parameter(given_.pop("gamma"), **given_)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 0.99, 1.0])
def test_up_to_one_there_is_no_branch(kappa):
    assert mixture_amplitude(kappa) == 0.0


@given(st.floats(1.0001, 50))
def test_the_branch_solves_its_equation(kappa):
    u = mixture_amplitude(kappa)
    assert u > 0
    assert u == pytest.approx(kappa * math.tanh(u), rel=1e-11)


def test_the_branch_of_the_errata():
    assert mixture_amplitude(1.01) == pytest.approx(0.17338, abs=2e-5)


@pytest.mark.parametrize("excess", [1e-12, 1e-8, 1e-4, 1e-2])
def test_the_branch_opens_like_a_square_root(excess):
    """u² = 3ε + 18ε²/5 + O(ε³) with ε = 1 − 1/κ: no digits are lost near the onset."""
    kappa = 1 + excess
    eps = (kappa - 1) / kappa
    expected = math.sqrt(3 * eps + 3.6 * eps**2)
    assert mixture_amplitude(kappa) == pytest.approx(expected, rel=10 * eps**2 + 1e-13)


def test_a_large_kappa_is_its_own_branch():
    assert mixture_amplitude(60.0) == 60.0


def test_the_branch_is_a_fixed_point_of_the_block():
    """u = κ tanh u and a = u c/m solve a = f(a) of eq 36."""
    kappa = speciation_parameter(GAMMA, m2=M2, c=C, eta=ETA)
    a = mixture_amplitude(kappa) * C / math.sqrt(M2)
    assert kappa > 1
    assert float(mixture_step(a, GAMMA, m2=M2, c=C, eta=ETA)) == pytest.approx(a, abs=1e-12)


def test_its_slope_at_zero_is_the_live_gain():
    step = 1e-5
    up, down = (mixture_step(s * step, GAMMA, m2=M2, c=C, eta=ETA) for s in (1, -1))
    slope = float((up - down) / (2 * step))
    assert slope == pytest.approx(live_gain(GAMMA, m2=M2, c=C, eta=ETA), abs=1e-9)


def test_the_score_of_the_step_is_that_of_the_mixture():
    """α = 1 at t = 0: variance c, means ±m."""
    x = np.linspace(-2, 2, 9)
    score = (mixture_step(x, GAMMA, m2=M2, c=C, eta=ETA) - ETA * x) / GAMMA
    np.testing.assert_allclose(score, oracles.mixture_score(x, 0.0, math.sqrt(M2), C), atol=1e-12)


@pytest.mark.parametrize(("m2", "s2"), [(4.0, 0.25), (2.0, 0.5)])
def test_speciation_of_the_noised_mixture_is_at_the_known_time(m2, s2):
    """A pure score step, η = 1: κ = m²/c at time t, and 1 at t_S = ½log(1 + m² − s²)."""

    def kappa(t):
        c = float(oracles.unit_clock_variance(s2, t))
        return speciation_parameter(0.3, m2=m2 * math.exp(-2 * t), c=c, eta=1.0)

    onset = oracles.speciation_time(m2, s2)
    assert kappa(onset) == pytest.approx(1.0, abs=1e-12)
    assert kappa(onset - 0.01) > 1 > kappa(onset + 0.01)
