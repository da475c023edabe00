"""Both models of coupled Ornstein–Uhlenbeck replicas, against moment equations of the pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from tests.oracles import (
    additive_coupling_rates,
    coupled_mode_speciation_time,
    coupled_mode_variance,
)

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    AdditiveCoupling,
    JointForward,
    ModeMoments,
    ModePair,
    mode_speciation,
    mode_variance,
)

MODES = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
LAPLACIAN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def integrated(drift, covariance, mean, duration):
    """Mean and covariance of (x^A, x^B) after dx = F(s) x ds + √2 dW, by the moment equations."""

    def moments(s, y):
        F, C = drift(s), y[2:].reshape(2, 2)
        return np.concatenate([F @ y[:2], (F @ C + C @ F.T + 2 * np.eye(2)).ravel()])

    start = np.concatenate([mean, covariance.ravel()])
    y = solve_ivp(moments, (0, duration), start, rtol=1e-10, atol=1e-13).y[:, -1]
    return MODES @ y[:2], np.diag(MODES @ y[2:].reshape(2, 2) @ MODES.T)


def forward_covariance(t, g, s2):
    """Covariance of the pair at time t of the coupled forward process."""
    variances = [coupled_mode_variance(t, rate, s2) for rate in (1, 1 + 2 * g)]
    return MODES.T @ np.diag(variances) @ MODES


@settings(max_examples=30, deadline=None)
@given(t=st.floats(0, 5), rate=st.floats(0.1, 5), s2=st.floats(0, 4))
def test_variance_of_a_mode(t, rate, s2):
    assert_allclose(mode_variance(t, rate, s2), coupled_mode_variance(t, rate, s2), atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(0.1, 5), s2=st.floats(0, 2), more=st.floats(0.01, 9))
def test_speciation_time_of_a_mode(rate, s2, more):
    found = mode_speciation(rate, s2 + more, s2)
    assert found.status == "ok"
    assert_allclose(found.time, coupled_mode_speciation_time(rate, s2 + more, s2), rtol=1e-10)
    variance = mode_variance(found.time, rate, s2)
    assert_allclose(variance, (s2 + more) * np.exp(-2 * rate * found.time), rtol=1e-9)


@pytest.mark.parametrize(("m2", "s2"), [(0.2, 0.25), (1.0, 1.0), (0.0, 3.0)])
def test_a_mode_without_two_arms_abstains(m2, s2):
    """Also where λ(m² − s²) ≤ −1, and the logarithm does not exist."""
    found = mode_speciation(2.0, m2, s2)
    assert found.status == "abstains"
    assert np.isnan(found.time)
    assert "no speciation" in found.because


@pytest.mark.parametrize("g", [0.0, 0.3, 1.0])
def test_rates_of_the_coupled_forward_process(g):
    assert tuple(JointForward(g).rates) == additive_coupling_rates(g)
    matrix = np.eye(2) + g * LAPLACIAN
    assert_allclose(MODES @ matrix @ MODES.T, np.diag(JointForward(g).rates), atol=1e-14)


@pytest.mark.parametrize("g", [0.0, 0.4, 2.0])
def test_forward_variances_solve_the_moment_equations(g):
    matrix = -np.eye(2) - g * LAPLACIAN
    _, variances = integrated(lambda s: matrix, 0.3 * np.eye(2), np.zeros(2), 0.7)
    assert_allclose(JointForward(g).variances(0.7, 0.3), variances, rtol=1e-8)


@pytest.mark.parametrize("g", [0.0, 0.5, 1.5])
def test_hand_coupled_rates_are_those_of_the_forward_modes_in_pure_noise(g):
    assert_allclose(AdditiveCoupling(g).reverse_rates(0.4, 1.0), additive_coupling_rates(g))
    assert_allclose(AdditiveCoupling(g).reverse_rates(20.0, 0.1), additive_coupling_rates(g))


@pytest.mark.parametrize("g", [0.0, 0.5, 1.3])
@pytest.mark.parametrize("s2", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("t", [0.0, 0.6])
def test_reverse_run_with_coupling_by_hand_solves_the_moment_equations(g, s2, t):
    """Equations 4–5 with dt < 0: f + g(x^A − x^B) changes sign in the direction of the run."""
    horizon = 2.0

    def drift(s):
        single = coupled_mode_variance(horizon - s, 1.0, s2)
        published = (-1 + 2 / single) * np.eye(2) + g * LAPLACIAN
        return -published

    first = coupled_mode_variance(horizon, 1.0, s2) * np.eye(2)
    start_mean = np.array([0.7, -0.2])
    means, variances = integrated(drift, first, start_mean, horizon - t)
    start = ModeMoments(ModePair(*(MODES @ start_mean)), ModePair(first[0, 0], first[0, 0]))
    found = AdditiveCoupling(g).reverse_moments(horizon, s2, t, start)
    assert_allclose(found.mean, means, rtol=1e-7)
    assert_allclose(found.variance, variances, rtol=1e-7)
    assert_allclose(AdditiveCoupling(g).reverse_moments(horizon, s2, t).variance, variances, 1e-7)


@pytest.mark.parametrize("g", [0.0, 0.5, 1.3])
def test_reverse_run_with_the_joint_score_solves_the_moment_equations(g):
    """From a start that is not the marginal: correlated and off centre."""
    horizon, s2, t = 1.5, 0.25, 0.2

    def drift(s):
        C = forward_covariance(horizon - s, g, s2)
        return np.eye(2) + g * LAPLACIAN - 2 * np.linalg.inv(C)

    first, start_mean = np.array([[0.9, 0.3], [0.3, 0.9]]), np.array([0.7, -0.2])
    means, variances = integrated(drift, first, start_mean, horizon - t)
    start = ModeMoments(ModePair(*(MODES @ start_mean)), ModePair(1.2, 0.6))
    found = JointForward(g).reverse_moments(horizon, s2, t, start)
    assert_allclose(found.mean, means, rtol=1e-7)
    assert_allclose(found.variance, variances, rtol=1e-7)


@settings(max_examples=25, deadline=None)
@given(g=st.floats(0.01, 3), s2=st.floats(0.05, 5), horizon=st.floats(0.3, 4))
def test_the_two_models_differ(g, s2, horizon):
    """The joint score gives the data back; the coupling by hand narrows the difference mode."""
    joint = JointForward(g).reverse_moments(horizon, s2)
    by_hand = AdditiveCoupling(g).reverse_moments(horizon, s2)
    assert_allclose(joint.variance, s2, rtol=1e-9)
    assert_allclose(by_hand.variance.common, s2, rtol=1e-9)
    assert by_hand.variance.difference < s2 * (1 - 1e-4)


def test_the_two_models_are_one_without_coupling():
    joint, by_hand = (
        model(0.0).reverse_moments(2.0, 0.3, 0.5) for model in (JointForward, AdditiveCoupling)
    )
    assert_allclose(joint, by_hand, rtol=1e-12)


def test_reverse_rates_of_the_joint_model_are_those_of_its_score():
    model, h = JointForward(0.6), 1e-4
    gaussian = ModePair(0.0, 0.0)
    rates = model.reverse_rates(0.3, 0.25)
    for k, direction in enumerate(MODES):
        at = model.score(*(h * direction), 0.3, means=gaussian, s2=0.25)
        drawn = -(model.rates[k] + 2 * (direction @ np.array(at)) / h)
        assert_allclose(drawn, rates[k], rtol=1e-9)


@pytest.mark.parametrize("means", [ModePair(0.0, 0.0), ModePair(1.5, 0.0), ModePair(1.0, -2.0)])
def test_score_is_the_gradient_of_the_joint_log_density(means):
    g, s2, t = 0.7, ModePair(0.25, 0.5), 0.35
    model = JointForward(g)
    C = MODES.T @ np.diag(
        [coupled_mode_variance(t, r, s) for r, s in zip(model.rates, s2, strict=True)]
    ) @ MODES  # fmt: skip
    arm = MODES.T @ (np.array(means) * np.exp(-np.array(model.rates) * t))

    def log_density(x):
        halves = [-0.5 * (x - c) @ np.linalg.solve(C, x - c) for c in (arm, -arm)]
        return np.logaddexp(*halves)

    h = 1e-5
    for x in np.random.default_rng(0).standard_normal((5, 2)):
        slope = [(log_density(x + h * e) - log_density(x - h * e)) / (2 * h) for e in np.eye(2)]
        assert_allclose(model.score(*x, t, means=means, s2=s2), slope, atol=1e-7)


def test_a_mode_has_two_valleys_below_its_speciation_time_and_one_above():
    model, m, s2 = JointForward(0.5), 2.0, 0.25
    for k, found in enumerate(model.speciation(m**2, s2)):
        means = ModePair(*(m * np.eye(2)[k]))
        x = 1e-3 * MODES[k]
        for factor, pushed_out in ((0.98, True), (1.02, False)):
            score = np.array(model.score(*x, factor * found.time, means=means, s2=s2))
            assert (score @ MODES[k] > 0) == pushed_out


def test_the_common_mode_leads_and_its_lead_grows_with_the_coupling():
    gaps = [JointForward(g).synchronization_gap(4.0, 0.25) for g in (0.0, 0.1, 0.5, 1.0)]
    values = [gap.value for gap in gaps]
    assert values[0] == 0.0
    assert all(np.diff(values) > 0)
    expected = np.log(1 + 3.75) / 2 - np.log(1 + 2 * 3.75) / 4
    assert_allclose(values[2], expected, rtol=1e-12)
    assert {gap.status for gap in gaps} == {"ok"}


def test_gap_abstains_where_a_mode_does_not_speciate():
    found = JointForward(0.5).synchronization_gap(ModePair(4.0, 0.1), 0.25)
    assert found.status == "abstains"
    assert np.isnan(found.value)
    assert found.because.startswith("difference mode: no speciation")
    assert found.common.status == "ok"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: JointForward(-0.1), "at least 0; got -0.1"),
        (lambda: AdditiveCoupling(float("nan")), "got nan"),
        (lambda: mode_variance(-1.0, 1.0, 1.0), "t ≥ 0"),
        (lambda: mode_speciation(0.0, 1.0, 0.5), "rate > 0"),
        (lambda: JointForward(0.1).reverse_moments(1.0, 0.5, 2.0), "0 ≤ t ≤ horizon"),
        (lambda: AdditiveCoupling(0.1).reverse_moments(1.0, 0.0), "s2 > 0"),
        (
            lambda: JointForward(0.1).score(0.0, 0.0, 0.0, means=ModePair(1.0, 0.0), s2=0.0),
            "needs noise",
        ),
    ],
)
def test_bad_models_get_a_sentence(call, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        call()
