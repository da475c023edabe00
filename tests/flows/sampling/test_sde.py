"""Paths of SDEs. A linear scheme is linear in its start and its noise, so its moments are read off
exactly: the response of the end to each of them, no sampling."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad_vec
from scipy.linalg import expm, solve_continuous_lyapunov
from scipy.stats import chi2
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import sde_path
from flowscope.flows.sampling.propagation import diagonal_propagation, matrix_propagation

SQRT2 = 2**0.5


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def zero(t, x):
    return torch.zeros_like(x)


def responses(drift, noise, times, *, method):
    """∂x_T/∂x₀ and ∂x_T/∂ΔW_k of a linear one-dimensional scheme, by unit impulses."""
    steps = len(times) - 1
    x0 = torch.zeros(steps + 1, 1, dtype=torch.float64)
    x0[0] = 1.0
    dw = torch.zeros(steps, steps + 1, 1, dtype=torch.float64)
    dw[torch.arange(steps), torch.arange(steps) + 1] = 1.0
    path = sde_path(drift, noise, x0, times, method=method, increments=dw, generator=generator())
    return path.states[-1, 0, 0], path.states[-1, 1:, 0]


def scheme_variance(drift, noise, start, horizon, steps, method):
    """Exact variance at the horizon that the scheme gives from variance ``start``."""
    times = np.linspace(0, horizon, steps + 1)
    own, noises = responses(drift, noise, times, method=method)
    return float(own**2 * start + (noises**2).sum() * horizon / steps)


@pytest.mark.parametrize(("method", "order"), [("euler_maruyama", 1), ("heun", 2)])
def test_weak_order_by_exact_moments(method, order):
    """dX = −(1 + t) X dt + √2 (1 + t) dW; the variance solves v' = −2(1+t)v + 2(1+t)²."""
    exact = variance_of_the_growing_noise(1.0)
    steps = [20, 40, 80, 160]
    errors = [
        abs(
            scheme_variance(
                lambda t, x: -(1 + t) * x, lambda t, x: SQRT2 * (1 + t), 0.25, 1.0, k, method
            )
            - exact
        )
        for k in steps
    ]
    assert abs(np.polyfit(np.log(steps), np.log(errors), 1)[0] + order) < 0.1


def variance_of_the_growing_noise(horizon):
    clock = lambda t: t + t * t / 2  # noqa: E731
    weight = quad_vec(
        lambda s: 2 * (1 + s) ** 2 * np.exp(-2 * (clock(horizon) - clock(s))), 0, horizon
    )[0]
    return 0.25 * np.exp(-2 * clock(horizon)) + weight


def test_euler_maruyama_has_strong_order_one_for_additive_noise():
    """Against Heun on 4,096 steps of the same Brownian path; dX = −X³ dt + dW."""
    fine = 4096
    dw = torch.randn(fine, 2000, 1, generator=generator(), dtype=torch.float64) / fine**0.5
    x0 = torch.ones(2000, 1, dtype=torch.float64)

    def end(k, method="euler_maruyama"):
        sums = dw.reshape(k, fine // k, 2000, 1).sum(1)
        return sde_path(lambda t, x: -(x**3), 1.0, x0, [0.0, 1.0], substeps=k, increments=sums,
                        method=method, generator=generator()).states[-1]  # fmt: skip

    truth, steps = end(fine, "heun"), [16, 32, 64, 128]
    errors = [float((end(k) - truth).square().mean().sqrt()) for k in steps]
    assert abs(np.polyfit(np.log(steps), np.log(errors), 1)[0] + 1) < 0.1


def test_euler_maruyama_is_in_the_sense_of_ito():
    """dX = X dW is a martingale; in the sense of Stratonovich its mean would be e^{½}."""
    x0 = torch.ones(200_000, 1, dtype=torch.float64)
    path = sde_path(zero, lambda t, x: x, x0, [0.0, 1.0], substeps=50, generator=generator())
    end = path.states[-1]
    assert abs(float(end.mean()) - 1) < 4 * float(end.std()) / 200_000**0.5  # level 6e-5


def variance_band(n, level=1e-4):
    """Two-sided band of a sample variance over the true one, for Gaussian samples."""
    return chi2.ppf(level / 2, n - 1) / (n - 1), chi2.ppf(1 - level / 2, n - 1) / (n - 1)


@pytest.mark.parametrize("given_noise", [False, True])
@pytest.mark.parametrize("step", [0.01, 1.0, 30.0])
def test_exponential_is_exact_in_law_for_ou_at_any_step(step, given_noise):
    """Two steps of dX = −X dt + √2 dW from 3; level 1e-4 for the mean and the variance."""
    n = 40_000
    x0 = torch.full((n, 1), 3.0, dtype=torch.float64)
    dw = step**0.5 * torch.randn(2, n, 1, generator=generator(1), dtype=torch.float64)
    path = sde_path(zero, SQRT2, x0, [0.0, step, 2 * step], method="exponential", linear=-1.0,
                    generator=generator(), increments=dw if given_noise else None)  # fmt: skip
    low, high = variance_band(n)
    for k in (1, 2):
        x, variance = path.states[k, :, 0], 1 - np.exp(-2 * k * step)
        assert abs(float(x.mean()) - 3 * np.exp(-k * step)) < 3.9 * (variance / n) ** 0.5
        assert low < float(x.var()) / variance < high


@pytest.mark.parametrize("given_noise", [False, True])
def test_exponential_is_exact_in_law_for_matrices(given_noise):
    """A non-normal A with a noise of one column; each entry of the covariance at level 1e-4."""
    A = torch.tensor([[-1.0, 4.0], [0.0, -2.0]], dtype=torch.float64)
    sigma = torch.tensor([[0.5], [1.0]], dtype=torch.float64)
    n, h = 40_000, 1.5
    dw = h**0.5 * torch.randn(1, n, 1, generator=generator(2), dtype=torch.float64)
    path = sde_path(zero, sigma, torch.zeros(n, 2, dtype=torch.float64), [0.0, h],
                    method="exponential", linear=A, generator=generator(),
                    increments=dw if given_noise else None)  # fmt: skip
    x, exact = path.states[-1], exact_covariance(A.numpy(), (sigma @ sigma.T).numpy(), h)
    found = (x.T @ x / n).numpy()
    spread = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / n)
    assert (np.abs(found - exact) < 4 * spread).all()


def test_exponential_shares_the_brownian_path_it_is_given():
    """Correlation of the noise of one step with ΔW: (1 − e^{−h})/√(h (1 − e^{−2h})/2)."""
    n, h = 40_000, 2.0
    dw = h**0.5 * torch.randn(1, n, 1, generator=generator(3), dtype=torch.float64)
    path = sde_path(zero, 1.0, torch.zeros(n, 1, dtype=torch.float64), [0.0, h], increments=dw,
                    method="exponential", linear=-1.0, generator=generator())  # fmt: skip
    pair = torch.stack([path.states[-1, :, 0], dw[0, :, 0]])
    exact = (1 - np.exp(-h)) / np.sqrt(h * (1 - np.exp(-2 * h)) / 2)
    assert abs(float(torch.corrcoef(pair)[0, 1]) - exact) < 4 * (1 - exact**2) / n**0.5


def forced_ou_end(rate, steps):
    """End at t = 2 of dX = (rate·X + cos t) dt from 1, and the exact one."""
    x0 = torch.ones(1, 1, dtype=torch.float64)
    path = sde_path(lambda t, x: torch.cos(t) + 0 * x, 0.0, x0, [0.0, 2.0], substeps=steps,
                    method="exponential", linear=rate, generator=generator())  # fmt: skip
    tail = np.exp(2 * rate) * (1 + rate / (1 + rate**2))
    return float(path.states[-1]), (np.sin(2.0) - rate * np.cos(2.0)) / (1 + rate**2) + tail


def test_exponential_integrates_the_rest_of_the_drift_to_first_order():
    steps = [50, 100, 200, 400]
    errors = [abs(np.subtract(*forced_ou_end(-3.0, k))) for k in steps]
    assert abs(np.polyfit(np.log(steps), np.log(errors), 1)[0] + 1) < 0.05


def test_exponential_is_stable_where_euler_is_not():
    found, exact = forced_ou_end(-1e4, 20)
    assert abs(found - exact) < 1e-4


def exact_covariance(A, a, h):
    return quad_vec(lambda s: expm(A * s) @ a @ expm(A.T * s), 0, h, epsabs=1e-13)[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 0.3, 20.0]))
def test_propagation_of_a_matrix_solves_its_own_equations(seed, h):
    """A Q + Q Aᵀ = E a Eᵀ − a and A Φ = E − I, the integrals' own derivatives."""
    rng = np.random.default_rng(seed)
    A, root = rng.standard_normal((3, 3)) - 2 * np.eye(3), rng.standard_normal((3, 3))
    a = root @ root.T
    made = matrix_propagation(torch.tensor(A), torch.tensor(a), h)
    E, Q = expm(A * h), made.covariance.numpy()
    np.testing.assert_allclose(made.transition.numpy(), E, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(A @ made.integral.numpy(), E - np.eye(3), rtol=1e-7, atol=1e-11)
    lyapunov = solve_continuous_lyapunov(A, E @ a @ E.T - a)
    np.testing.assert_allclose(Q, lyapunov, rtol=1e-6, atol=1e-8 * h)


def test_propagation_of_a_very_stiff_matrix_does_not_overflow():
    A = torch.diag(torch.tensor([-1e4, -1.0], dtype=torch.float64))
    made = matrix_propagation(A, torch.eye(2, dtype=torch.float64), 10.0)
    assert_close(made.covariance.diag(), torch.tensor([0.5e-4, 0.5 * (1 - np.exp(-20))]).double())


@given(st.floats(-50, 5), st.floats(0, 3), st.floats(1e-6, 3))
def test_diagonal_and_matrix_propagation_agree(rate, a, h):
    diagonal = diagonal_propagation(*(torch.tensor([v]).double() for v in (rate, a)), h)
    matrix = matrix_propagation(*(torch.tensor([[v]]).double() for v in (rate, a)), h)
    for name in ("transition", "integral", "covariance"):
        assert_close(getattr(matrix, name)[0], getattr(diagonal, name), rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("method", ["euler_maruyama", "heun"])
def test_kinds_of_noise_agree(method):
    x0 = torch.zeros(5, 2, dtype=torch.float64)
    values = [0.5, torch.full((2,), 0.5), 0.5 * torch.eye(2), lambda t, x: torch.full_like(x, 0.5),
              lambda t, x: 0.5 * torch.eye(2).expand(5, 2, 2)]  # fmt: skip
    ends = [
        sde_path(lambda t, x: -x, value, x0, [0.0, 0.5, 1.0], method=method, generator=generator())
        for value in values
    ]
    for other in ends[1:]:
        assert_close(other.states, ends[0].states)


def test_a_noise_matrix_of_three_columns_correlates_two_coordinates():
    sigma = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    dw = torch.tensor([[[1.0, 2.0, 3.0]]], dtype=torch.float64)
    path = sde_path(zero, sigma, torch.zeros(1, 2, dtype=torch.float64), [0.0, 1.0],
                    increments=dw, generator=generator())  # fmt: skip
    assert_close(path.states[-1], torch.tensor([[4.0, 5.0]], dtype=torch.float64))


def test_the_same_seed_gives_the_same_path():
    x0 = torch.zeros(3, 1)
    first, second = (
        sde_path(zero, 1.0, x0, [0.0, 1.0], substeps=4, generator=generator(7)).states
        for _ in range(2)
    )
    assert_close(first, second, rtol=0, atol=0)


def test_a_sample_that_diverges_does_not_touch_the_others():
    x0 = torch.tensor([[0.1], [30.0]])
    path = sde_path(
        lambda t, x: -(x**3), 0.0, x0, [0.0, 1.0, 2.0], substeps=20, generator=generator()
    )
    assert path.status == "diverged"
    assert "1 of 2" in path.because
    assert path.states[:, 0].isfinite().all()
    assert path.states[1:, 1].isnan().all()


@pytest.mark.parametrize("method", ["heun", "exponential"])
@pytest.mark.parametrize("x0", [torch.ones(4, 1), torch.ones(3)])
def test_noise_that_depends_on_the_state_is_refused_where_it_spoils_the_order(method, x0):
    linear = {"linear": -1.0} if method == "exponential" else {}
    with pytest.raises(InvalidInputError, match="must not depend on x"):
        sde_path(lambda t, x: -x, lambda t, x: 1 + x * x, x0, [0.0, 1.0], method=method,
                 generator=generator(), **linear)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"times": [0.0, 1.0, 0.5]}, "1 followed by 0.5"),
        ({"times": [1.0, 0.0]}, "strictly increase"),
        ({"x0": torch.tensor([[torch.inf, 0.0]])}, "found inf"),
        ({"x0": torch.tensor(1.0)}, r"\[N, 1\]"),
        ({"noise": -1.0}, "noise must be ≥ 0; found -1"),
        ({"noise": torch.tensor([1.0, -2.0])}, "found -2"),
        ({"noise": torch.ones(3)}, "diagonal of shape"),
        ({"noise": torch.ones(3, 2)}, "matrix of 2 rows"),
        ({"noise": lambda t, x: torch.ones(2, 2), "x0": torch.ones(2, 2)}, "could be either"),
        ({"noise": torch.nan}, "finite"),
        ({"method": "milstein"}, "'heun'"),
        ({"linear": -1.0}, "no other"),
        ({"method": "exponential"}, "found none"),
        ({"method": "exponential", "linear": lambda t, x: x}, "found a function"),
        ({"method": "exponential", "linear": torch.ones(2, 3)}, "square"),
        ({"increments": torch.zeros(2, 1, 2)}, r"shape \(1, 1, 2\)"),
        ({"increments": torch.full((1, 1, 2), torch.nan)}, "finite"),
        ({"substeps": 0}, "substeps"),
        ({"drift": lambda t, x: x[0]}, "shape of x"),
    ],
)
def test_bad_input_gets_a_sentence(change, words):
    given_ = {"drift": zero, "noise": 1.0, "x0": torch.ones(1, 2), "times": [0.0, 1.0], **change}
    first = [given_.pop(k) for k in ("drift", "noise", "x0", "times")]
    with pytest.raises(InvalidInputError, match=words):
        sde_path(*first, generator=generator(), **given_)
