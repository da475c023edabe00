"""Closed forms of clustering on the sphere against integrals, limits and published numbers."""

import math

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.special import eval_gegenbauer

from flowscope.errors import InvalidInputError
from flowscope.flows.sphere import (
    critical_beta,
    critical_coupling,
    equiangular,
    fastest_degree,
    growth_rate,
    time_to_cosine,
)


@pytest.mark.parametrize(
    ("beta", "dim", "degree", "rate"), [(9.0, 2, 4, 0.704497), (4.0, 3, 2, 0.655495)]
)
def test_fastest_degree_has_its_rate(beta, dim, degree, rate):
    assert fastest_degree(beta, dim) == degree
    assert growth_rate(beta, degree, dim) == pytest.approx(rate, abs=1e-6)
    assert max(range(40), key=lambda k: growth_rate(beta, k, dim)) == degree


@pytest.mark.parametrize("dim", [3, 4, 7])
@pytest.mark.parametrize("degree", [1, 2, 5])
def test_growth_rate_is_the_integral_of_the_kernel(dim, degree):
    beta, order = 3.0, 0.5 * dim - 1

    def moment(k):
        def integrand(t):
            harmonic = eval_gegenbauer(k, order, t) / eval_gegenbauer(k, order, 1.0)
            return harmonic * math.exp(beta * t) * (1 - t * t) ** (order - 0.5)

        return quad(integrand, -1, 1, epsabs=1e-13)[0]

    expected = degree * (degree + dim - 2) * moment(degree) / moment(0) / beta
    assert growth_rate(beta, degree, dim) == pytest.approx(expected, rel=1e-7)


def test_growth_rate_survives_high_dimension_and_large_beta():
    # I_{v+1}/I_v tends to beta/2(v+1), so the rate of degree 1 tends to (d-1)/d.
    assert growth_rate(1.0, 1, 4096) == pytest.approx(4095 / 4096, rel=1e-6)
    assert growth_rate(1e-3, 1, 768) == pytest.approx(767 / 768, rel=1e-6)
    # The most of l^2 exp(-l^2/2 beta)/beta is 2/e at l = sqrt(2 beta).
    assert fastest_degree(1e4, 2) == pytest.approx(math.sqrt(2e4), rel=0.02)
    assert growth_rate(1e4, 141, 2) == pytest.approx(2 / math.e, rel=0.01)


def test_critical_numbers_equal_the_published_ones():
    assert critical_beta(2) == pytest.approx(2.446918, abs=1e-6)
    assert critical_beta(3) == pytest.approx(1.816155, abs=1e-6)
    assert 1 < critical_beta(4096) < 1.01
    assert critical_coupling(2.0, 2) == pytest.approx(1 / 1.5906368546, rel=1e-9)
    # On S^2 the Bessel function is elementary.
    half = math.sqrt(2 / (math.pi * 2)) * (math.cosh(2) - math.sinh(2) / 2)
    assert critical_coupling(2.0, 3) == pytest.approx(1 / (math.gamma(1.5) * half), rel=1e-12)


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_critical_coupling_balances_growth_and_noise(dim):
    beta = 3.0
    weights = [
        quad(lambda a, b=b: math.exp(b * math.cos(a)) * math.sin(a) ** (dim - 2), 0, math.pi)[0]
        for b in (beta, 0.0)
    ]
    unnormalised = growth_rate(beta, 1, dim) * weights[0] / weights[1]
    assert critical_coupling(beta, dim) * unnormalised == pytest.approx((dim - 1) / 2, rel=1e-9)


def test_equiangular_cosine_equals_the_published_ones():
    assert equiangular(6, 2.0, 1.0) == pytest.approx(0.249395, abs=1e-6)
    assert equiangular(32, 1.0, 1.0) == pytest.approx(0.1518493, abs=1e-7)
    assert time_to_cosine(128, 8.0, 0.5) == pytest.approx(31.90868, abs=1e-5)
    assert equiangular(6, 2.0, 0.0) == 0.0 == time_to_cosine(6, 2.0, 0.0)


@pytest.mark.parametrize(("n", "beta", "t"), [(2, 0.3, 2.0), (50, 4.0, 3.0), (1000, 9.0, 8.0)])
def test_equiangular_solves_its_equation_and_time_inverts_it(n, beta, t):
    def slope(_, g):
        weight = np.exp(beta * g)
        return 2 * weight * (1 - g) * ((n - 1) * g + 1) / (np.exp(beta) + (n - 1) * weight)

    solution = solve_ivp(slope, (0, t), [0.0], method="DOP853", rtol=1e-12, atol=1e-14)
    assert equiangular(n, beta, t) == pytest.approx(solution.y[0, -1], rel=1e-9)
    assert time_to_cosine(n, beta, equiangular(n, beta, t)) == pytest.approx(t, rel=1e-9)


def test_equiangular_cosine_tends_to_one():
    assert equiangular(6, 2.0, 500.0) == pytest.approx(1.0, abs=1e-12)
    assert equiangular(6, 2.0, 5000.0) <= 1.0


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, math.inf])
def test_beta_that_is_no_inverse_temperature_is_refused(beta):
    calls = [
        lambda: growth_rate(beta, 1, 2),
        lambda: fastest_degree(beta, 2),
        lambda: critical_coupling(beta, 2),
        lambda: equiangular(4, beta, 1.0),
        lambda: time_to_cosine(4, beta, 0.5),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="beta"):
            call()


@pytest.mark.parametrize("dim", [1, 0, 2.5, math.nan])
def test_dimension_below_two_or_not_whole_is_refused(dim):
    for call in (growth_rate, critical_coupling, critical_beta):
        arguments = {growth_rate: (1.0, 1), critical_coupling: (1.0,), critical_beta: ()}[call]
        with pytest.raises(InvalidInputError, match="dim"):
            call(*arguments, dim)


def test_other_bad_arguments_are_refused():
    for n, beta, t in [(1, 1.0, 1.0), (4, 701.0, 1.0), (4, 1.0, -1.0), (4, 1.0, math.nan)]:
        with pytest.raises(InvalidInputError):
            equiangular(n, beta, t)
    for cosine in (1.0, -0.1, math.nan):
        with pytest.raises(InvalidInputError, match="cosine"):
            time_to_cosine(4, 1.0, cosine)
    with pytest.raises(InvalidInputError, match="degree"):
        growth_rate(1.0, -1, 2)
