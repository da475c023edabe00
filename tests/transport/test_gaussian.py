"""Gaussian closed forms against the oracles, solvers on grids and finite differences."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.transport.gaussian import (
    Gaussian,
    bures_barycenter,
    bures_distance,
    gaussian_bridge,
    gaussian_coupling,
)

A = np.array([[1.0, 0.3, 0.0], [0.3, 2.0, -0.4], [0.0, -0.4, 0.7]])
B = np.array([[0.6, -0.1, 0.2], [-0.1, 1.5, 0.5], [0.2, 0.5, 3.0]])
M, N = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.3, -0.2])
FIRST, SECOND = Gaussian(mean=M, covariance=A), Gaussian(mean=N, covariance=B)


def law(mean, variance):
    return Gaussian(mean=[mean], covariance=[[variance]])


def random_covariance(seed, d=3, rank=None):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, rank or d))
    return torch.from_numpy(factor @ factor.T)


def centred(covariance):
    covariance = torch.as_tensor(covariance)
    mean = torch.zeros(covariance.shape[:-1], dtype=covariance.dtype)
    return Gaussian(mean=mean, covariance=covariance)


# --- distance ----------------------------------------------------------------------------------


def test_distance_is_the_oracle_plus_the_means():
    expected = math.sqrt((M - N) @ (M - N) + oracles.bures_distance_squared(A, B))
    assert float(bures_distance(FIRST, SECOND)) == pytest.approx(expected, rel=1e-13)


def test_distance_of_samples_converges_to_it():
    # Exact transport of equal-size quantile grids in one dimension: an independent route.
    q = (np.arange(20000) + 0.5) / 20000
    z = torch.special.ndtri(torch.from_numpy(q)).numpy()
    sampled = math.sqrt(ot.emd2_1d(1 + 2 * z, -0.5 + 0.5 * z))
    assert float(bures_distance(law(1.0, 4.0), law(-0.5, 0.25))) == pytest.approx(sampled, abs=1e-3)


def test_equal_laws_are_at_rounding_distance_not_at_its_root():
    assert float(bures_distance(FIRST, FIRST)) < 1e-14


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_distance_is_symmetric_and_obeys_the_triangle(seed):
    x, y, z = (centred(random_covariance(3 * seed + i)) for i in range(3))
    assert_close(bures_distance(x, y), bures_distance(y, x))
    assert bures_distance(x, z) <= bures_distance(x, y) + bures_distance(y, z) + 1e-12


def test_batches_broadcast_and_match_single_calls():
    stack = Gaussian(mean=np.stack([M, N]), covariance=np.stack([A, B]))
    expected = torch.stack([bures_distance(g, SECOND) for g in (FIRST, SECOND)])
    assert_close(bures_distance(stack, SECOND), expected, rtol=0, atol=1e-14)
    coupling = gaussian_coupling(stack, SECOND, epsilon=0.4)
    single = gaussian_coupling(FIRST, SECOND, epsilon=0.4)
    assert_close(coupling.cross_covariance[0], single.cross_covariance)
    assert_close(coupling.value[0], single.value)


# --- coupling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 7.0])
def test_coupling_is_the_oracle(epsilon):
    coupling = gaussian_coupling(FIRST, SECOND, epsilon=epsilon)
    C = oracles.entropic_gaussian_coupling(A, B, epsilon)
    assert_close(coupling.cross_covariance.numpy(), C, rtol=0, atol=1e-12)
    value = oracles.entropic_gaussian_cost(M, A, N, B, epsilon)
    assert float(coupling.value) == pytest.approx(value, rel=1e-12)
    cost = 0.5 * ((M - N) @ (M - N) + np.trace(A + B - 2 * C))
    assert float(coupling.cost) == pytest.approx(cost, rel=1e-12)


def test_divergence_is_the_mutual_information_of_the_joint_law():
    coupling = gaussian_coupling(FIRST, SECOND, epsilon=0.5)
    entropies = [oracles.gaussian_entropy(S) for S in (A, B, coupling.joint.covariance.numpy())]
    information = entropies[0] + entropies[1] - entropies[2]
    assert float(coupling.divergence) == pytest.approx(information, rel=1e-12)
    assert_close(coupling.value, coupling.cost + 0.5 * coupling.divergence)


def test_coupling_is_the_one_sinkhorn_finds_on_a_grid():
    x = np.linspace(-8, 8, 321)
    mass = [np.exp(-(x**2) / (2 * v)) for v in (1.0, 0.49)]
    a, b = (m / m.sum() for m in mass)
    cost = 0.5 * (x[:, None] - x[None]) ** 2
    plan = ot.sinkhorn(a, b, cost, reg=0.5, stopThr=1e-13, numItermax=5000)
    found = gaussian_coupling(law(0.0, 1.0), law(0.0, 0.49), epsilon=0.5)
    assert float(found.cross_covariance) == pytest.approx(x @ plan @ x, abs=1e-8)
    assert float(found.cross_covariance) == pytest.approx(0.493303, abs=1e-6)
    kl = (plan * np.log(plan / np.outer(a, b))).sum()
    assert float(found.value) == pytest.approx((plan * cost).sum() + 0.5 * kl, abs=1e-8)


def test_at_zero_epsilon_the_coupling_is_the_monge_map():
    coupling = gaussian_coupling(FIRST, SECOND, epsilon=0.0)
    T = coupling.cross_covariance.mT @ torch.linalg.inv(torch.from_numpy(A))
    assert_close(T, T.mT)
    assert torch.linalg.eigvalsh(T).min() > 0
    assert_close(T @ torch.from_numpy(A) @ T.mT, torch.from_numpy(B))
    assert_close(coupling.value, bures_distance(FIRST, SECOND) ** 2 / 2)
    assert coupling.divergence == math.inf


@pytest.mark.parametrize("epsilon", [1e-300, 1e-30, 1e-15, 1e-9])
def test_tiny_epsilon_stays_next_to_its_limit(epsilon):
    limit = gaussian_coupling(FIRST, SECOND, epsilon=0.0)
    near = gaussian_coupling(FIRST, SECOND, epsilon=epsilon)
    assert_close(near.cross_covariance, limit.cross_covariance, rtol=0, atol=2 * epsilon + 1e-14)
    # The first correction of the cost is εd/2 and of the value ε KL.
    assert float(near.cost - limit.cost) == pytest.approx(1.5 * epsilon, rel=1e-3, abs=1e-14)
    assert near.value.isfinite()


def test_huge_epsilon_decouples_with_its_first_order():
    # C ≈ AB/ε: far below the rounding of the textbook difference.
    C = gaussian_coupling(FIRST, SECOND, epsilon=1e12).cross_covariance
    assert_close(C * 1e12, torch.from_numpy(A @ B), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.3])
def test_singular_laws_couple_on_the_directions_they_have(epsilon):
    flat = np.diag([2.0, 0.0, 1.0])
    found = gaussian_coupling(centred(flat), centred(B), epsilon=epsilon).cross_covariance
    regular = oracles.entropic_gaussian_coupling(flat + 1e-9 * np.eye(3), B, max(epsilon, 1e-13))
    assert_close(found.numpy(), regular, rtol=0, atol=1e-4)
    assert torch.all(found[1] == 0)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-8, 0.1, 3.0]))
def test_joint_law_is_a_law_even_of_singular_marginals(seed, epsilon):
    first, second = random_covariance(seed, rank=2), random_covariance(seed + 1, rank=1)
    joint = gaussian_coupling(centred(first), centred(second), epsilon=epsilon).joint
    assert_close(joint.covariance[:3, :3], first)
    assert_close(joint.covariance[3:, 3:], second)
    assert torch.linalg.eigvalsh(joint.covariance).min() > -1e-13 * joint.covariance.abs().max()


def test_value_grows_and_cost_grows_with_epsilon():
    found = [gaussian_coupling(FIRST, SECOND, epsilon=e) for e in (0.0, 0.1, 1.0, 10.0)]
    for key in ("value", "cost"):
        values = [float(getattr(c, key)) for c in found]
        assert values == sorted(values)


# --- bridge ------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.0, 0.2, 0.5, 1.0])
def test_bridge_marginals_and_slope_are_the_oracles(t):
    bridge = gaussian_bridge(FIRST, SECOND, epsilon=0.6, time=t)
    assert_close(bridge.marginal.mean.numpy(), oracles.gaussian_bridge_mean(M, N, t))
    Sigma = oracles.gaussian_bridge_covariance(A, B, 0.6, t)
    assert_close(bridge.marginal.covariance.numpy(), Sigma)
    line = gaussian_bridge(law(0.0, 1.0), law(0.0, 0.49), epsilon=0.5, time=t)
    slope = oracles.gaussian_bridge_drift_slope(1.0, 0.49, 0.5, t)
    assert float(line.slope) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.6])
def test_slope_solves_the_riccati_and_lyapunov_equations(epsilon):
    h, t = 1e-4, 0.37
    back, now, ahead = (
        gaussian_bridge(FIRST, SECOND, epsilon=epsilon, time=s) for s in (t - h, t, t + h)
    )
    K, Sigma = now.slope, now.marginal.covariance
    assert_close(K, K.mT)
    rate = (ahead.slope - back.slope) / (2 * h)
    assert_close(rate, -K @ K, rtol=1e-5, atol=1e-6)
    rate = (ahead.marginal.covariance - back.marginal.covariance) / (2 * h)
    noise = epsilon * torch.eye(3, dtype=torch.float64)
    assert_close(rate, K @ Sigma + Sigma @ K.mT + noise, rtol=0, atol=1e-9)


def test_drift_carries_the_mean_along_a_straight_line():
    bridge = gaussian_bridge(FIRST, SECOND, epsilon=0.6, time=0.3)
    assert_close(bridge.drift(bridge.marginal.mean), torch.from_numpy(N - M))


def test_drift_is_the_conditional_mean_velocity_of_the_coupling():
    # An independent route: E[(X₁ − X_t)/(1 − t) | X_t] by Gaussian conditioning.
    t, epsilon = 0.3, 0.6
    C = oracles.entropic_gaussian_coupling(A, B, epsilon)
    Sigma = oracles.gaussian_bridge_covariance(A, B, epsilon, t)
    slope = (((1 - t) * C.T + t * B) @ np.linalg.inv(Sigma) - np.eye(3)) / (1 - t)
    found = gaussian_bridge(FIRST, SECOND, epsilon=epsilon, time=t)
    assert_close(found.slope.numpy(), slope, rtol=0, atol=1e-12)


def test_a_point_start_gives_the_drift_of_a_brownian_bridge_mixture():
    # From a point, drift at time 0 is E[X₁] − x₀ + (B/ε − I)(x − x₀): T = B/ε.
    start = Gaussian(mean=[0.0, 0.0], covariance=np.zeros((2, 2)))
    end = centred(B[:2, :2])
    slope = gaussian_bridge(start, end, epsilon=0.5, time=0.0).slope
    assert_close(slope, torch.from_numpy(B[:2, :2] / 0.5 - np.eye(2)))


# --- barycenter --------------------------------------------------------------------------------


def test_barycenter_is_the_oracle():
    stack, weights = [A, B, np.diag([0.1, 1.0, 5.0])], [0.2, 0.5, 0.3]
    found = bures_barycenter([centred(S) for S in stack], weights, tolerance=1e-13)
    expected = oracles.bures_barycenter(stack, weights)
    assert_close(found.gaussian.covariance.numpy(), expected, rtol=0, atol=1e-11)
    assert found.status == "converged"
    assert found.residual <= 1e-13


def test_barycenter_on_the_line_averages_deviations_and_means():
    found = bures_barycenter([law(0.0, 1.0), law(4.0, 9.0)], [0.25, 0.75]).gaussian
    assert float(found.mean) == pytest.approx(3.0)
    assert float(found.covariance) == pytest.approx((0.25 + 0.75 * 3) ** 2)


def test_identical_inputs_return_the_input():
    found = bures_barycenter([FIRST, FIRST, FIRST])
    assert_close(found.gaussian.covariance, FIRST.covariance)


@settings(max_examples=8)
@given(st.integers(0, 10**6))
def test_no_other_covariance_is_nearer_on_average(seed):
    laws = [centred(random_covariance(seed + i)) for i in range(3)]
    best = bures_barycenter(laws).gaussian
    turn = torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 3))) * 0.05
    other = centred((torch.eye(3) + turn) @ best.covariance @ (torch.eye(3) + turn).mT)
    total = [sum(bures_distance(g, x) ** 2 for g in laws) for x in (best, other)]
    assert total[0] <= total[1]


def test_singular_members_do_not_disturb_the_barycenter():
    flat = np.diag([2.0, 0.0, 1.0])
    found = bures_barycenter([centred(flat), centred(B)]).gaussian.covariance.numpy()
    near = oracles.bures_barycenter([flat + 1e-10 * np.eye(3), B], [0.5, 0.5])
    assert_close(found, near, rtol=0, atol=2e-5)


def test_batched_barycenter_matches_single_ones():
    stack = Gaussian(mean=np.stack([M, N]), covariance=np.stack([A, B]))
    found = bures_barycenter([stack, SECOND], [0.4, 0.6]).gaussian
    single = bures_barycenter([FIRST, SECOND], [0.4, 0.6]).gaussian
    assert_close(found.covariance[0], single.covariance, rtol=0, atol=1e-9)
    assert_close(found.mean[0], single.mean)


def test_an_unfinished_barycenter_raises_with_what_it_had():
    with pytest.raises(ConvergenceError, match=r"at most 1e-13.*found.*after 2 iterations") as info:
        bures_barycenter([FIRST, SECOND], tolerance=1e-13, max_iterations=2)
    assert info.value.partial.status == "not converged"
    assert info.value.partial.residual > 1e-13


def reference_barycenter_variances(a, epsilon):
    """Fixed points of identical Gaussian inputs of variance a: product, Lebesgue, debiased."""
    return a - epsilon, a + epsilon, a


@pytest.mark.parametrize(("a", "epsilon"), [(1.0, 0.3), (2.0, 0.5)])
def test_entropic_barycenters_of_one_law_are_biased_as_the_theory_says(a, epsilon):
    # Objective over variances v, from our own values: OT_ε for the product reference; adding
    # ε·(−entropy of v) turns it into the Lebesgue one; debiasing takes ½OT_ε(v, v) away.
    grid = np.linspace(0.2 * a, 2 * a, 1801)
    family = Gaussian(mean=np.zeros((1801, 1)), covariance=grid[:, None, None])
    product = gaussian_coupling(family, law(0.0, a), epsilon=epsilon).value.numpy()
    lebesgue = product - epsilon * 0.5 * np.log(grid)
    debiased = product - 0.5 * gaussian_coupling(family, family, epsilon=epsilon).value.numpy()
    found = [grid[np.argmin(f)] for f in (product, lebesgue, debiased)]
    assert_close(np.array(found), np.array(reference_barycenter_variances(a, epsilon)),
                 rtol=0, atol=1.1e-3 * a)  # fmt: skip


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]], "symmetric; S − Sᵀ must be 0; found 0.1"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "no negative eigenvalue; found -1"),
        ([0.0], [[1.0, 0.0], [0.0, 1.0]], r"shapes .* found \(1,\) and \(2, 2\)"),
        ([math.nan], [[1.0]], "mean must be finite; found nan"),
        (0.0, 1.0, r"A number is \[m\] and \[\[v\]\]"),
    ],
)
def test_what_is_not_a_gaussian_is_refused(mean, covariance, message):
    with pytest.raises(InvalidInputError, match=message):
        Gaussian(mean=mean, covariance=covariance)


def test_rounding_below_zero_is_not_refused():
    v = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    covariance = v.mT @ v
    assert torch.linalg.eigvalsh(covariance)[0] < 0, "else this shows nothing"
    assert Gaussian(mean=[0.0] * 3, covariance=covariance).covariance.equal(covariance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_coupling(FIRST, SECOND, epsilon=-1.0), "epsilon must be.*found -1"),
        (lambda: gaussian_coupling(FIRST, law(0, 1.0), epsilon=1.0), r"one dimension; found \[3"),
        (lambda: gaussian_bridge(FIRST, SECOND, epsilon=1.0, time=1.5), "time must.*found 1.5"),
        (
            lambda: gaussian_bridge(centred(0 * A), SECOND, epsilon=0.0, time=0.5),
            "epsilon = 0 needs positive definite.*found 0.*take epsilon > 0",
        ),
        (
            lambda: gaussian_bridge(
                centred(random_covariance(1, rank=2)), SECOND, epsilon=0, time=0
            ),
            "epsilon = 0 needs positive definite.*take epsilon > 0",
        ),
        (
            lambda: gaussian_bridge(FIRST, centred(np.diag([1.0, 1.0, 0.0])), epsilon=1, time=1),
            "time 1 needs.*Ask for a time before 1",
        ),
        (lambda: bures_barycenter([FIRST]), "two laws at least; found 1"),
        (lambda: bures_barycenter([FIRST, SECOND], [0.5, 0.3, 0.2]), r"shape \(2,\); found \(3,\)"),
        (lambda: bures_barycenter([FIRST, SECOND], [0.5, 0.6]), "weights must sum to one"),
        (lambda: bures_barycenter([centred(0 * A)] * 2), "must be positive definite.*found 0"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
