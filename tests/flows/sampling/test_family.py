"""The λ-family: equal marginals forward and back, for every kind of diffusion."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import quad_vec, solve_ivp
from scipy.linalg import expm
from scipy.stats import chi2, ks_2samp, kstest, lognorm
from scipy.stats import t as student
from tests.oracles import (
    ou_marginal,
    ou_probability_flow,
    reverse_ode_variance,
    reverse_sde_variance,
    unit_clock_variance,
)
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import family_drift, ode_path, score_to_velocity, sde_path

LAMBDAS = [0.0, 0.5, 1.0]
DIRECTIONS = ["forward", "reverse"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- Gaussian marginals, time-inhomogeneous and anisotropic, by linear algebra ------------------

A = np.array([[-1.0, 0.7], [-0.4, -0.5]])
M0, S0 = np.array([1.0, -2.0]), np.array([[0.5, 0.2], [0.2, 0.8]])
ANGLE = np.array([[1.0, 0.3], [0.3, 0.2]])
HORIZON = 1.3


def diffusion_matrix(t):
    return (1 + t) ** 2 * ANGLE


def marginal(t):
    """Mean and covariance of dX = A X dt + σ(t) dW, σσᵀ = (1 + t)² ANGLE."""
    E = expm(A * t)
    noise = quad_vec(
        lambda s: expm(A * (t - s)) @ diffusion_matrix(s) @ expm(A * (t - s)).T, 0, t, epsabs=1e-12
    )[0]
    return E @ M0, E @ S0 @ E.T + noise


def tensor(x):
    return torch.tensor(np.asarray(x), dtype=torch.float64)


def gaussian_member(lam, direction):
    def score(t, x):
        mean, covariance = marginal(float(t))
        return -(x - tensor(mean)) @ tensor(np.linalg.inv(covariance))

    horizon = HORIZON if direction == "reverse" else None
    return family_drift(
        lambda t, x: x @ tensor(A).mT,
        score,
        lambda t, x: tensor(diffusion_matrix(float(t))),
        lam=lam,
        direction=direction,
        horizon=horizon,
    )


def affine(member, s):
    """Matrix, offset and noise covariance of an affine member at time s, read at three points."""
    t = torch.tensor(s, dtype=torch.float64)
    probes = tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    values = member.drift(t, probes).numpy()
    sigma = member.noise(t, probes).numpy()
    return (values[1:3] - values[0]).T, values[0], sigma @ sigma.T


def moments_after(member, start, horizon):
    """Mean and covariance that the member's own Fokker–Planck equation gives."""

    def rate(s, y):
        M, offset, a = affine(member, s)
        mean, V = y[:2], y[2:].reshape(2, 2)
        return np.concatenate([M @ mean + offset, (M @ V + V @ M.T + a).ravel()])

    y0 = np.concatenate([start[0], start[1].ravel()])
    end = solve_ivp(rate, (0, horizon), y0, rtol=1e-8, atol=1e-10).y[:, -1]
    return end[:2], end[2:].reshape(2, 2)


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gaussian_marginals_are_kept_for_anisotropic_noise_that_grows(lam, direction):
    first, last = (0, HORIZON) if direction == "forward" else (HORIZON, 0)
    found = moments_after(gaussian_member(lam, direction), marginal(first), HORIZON)
    for value, exact in zip(found, marginal(last), strict=True):
        assert_allclose(value, exact, rtol=1e-6, atol=1e-7)


def test_velocity_with_full_noise_does_not_keep_the_marginals():
    """000 Thm. 6.6; F = −x, a = 2, N(0, 1): variance 1 + 2t."""
    velocity = family_drift(lambda t, x: -x, lambda t, x: -x, 2.0, lam=0.0).drift
    n = 40_000
    x0 = torch.randn(n, 1, generator=generator(), dtype=torch.float64)
    end = sde_path(velocity, 2**0.5, x0, [0.0, 1.0], substeps=5, generator=generator(1)).states[-1]
    low, high = 3 * chi2.ppf([5e-5, 1 - 5e-5], n - 1) / (n - 1)  # level 1e-4
    assert low < float(end.var()) < high


# --- samples -------------------------------------------------------------------------------------


def unit_clock_member(lam, direction, s2=0.25, horizon=1.0):
    def score(t, x):
        return -x / (1 - (1 - s2) * torch.exp(-2 * t))

    return family_drift(
        lambda t, x: -x,
        score,
        2.0,
        lam=lam,
        direction=direction,
        horizon=horizon if direction == "reverse" else None,
    )


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sampled_gaussian_marginals_are_kept(lam, direction):
    """Kolmogorov–Smirnov at level 1e-3, Heun with 60 steps, 20,000 samples."""
    ends = [float(unit_clock_variance(0.25, t)) ** 0.5 for t in (0.0, 1.0)]
    first, last = ends if direction == "forward" else reversed(ends)
    member = unit_clock_member(lam, direction)
    x0 = first * torch.randn(20_000, 1, generator=generator(), dtype=torch.float64)
    path = sde_path(member.drift, member.noise, x0, [0.0, 1.0], substeps=60, method="heun",
                    generator=generator(1))  # fmt: skip
    assert kstest(path.states[-1, :, 0].numpy() / last, "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("lam", "oracle"), [(1.0, reverse_sde_variance), (0.0, reverse_ode_variance)]
)
def test_euler_steps_of_the_reverse_family_are_those_of_the_closed_form(lam, oracle):
    """Exact, by the response of the end to the start and to each increment."""
    member, steps = unit_clock_member(lam, "reverse", horizon=3.0), 50
    x0 = torch.zeros(steps + 1, 1, dtype=torch.float64)
    x0[0] = 1.0
    dw = torch.zeros(steps, steps + 1, 1, dtype=torch.float64)
    dw[torch.arange(steps), torch.arange(steps) + 1] = 1.0
    end = sde_path(member.drift, member.noise, x0, [0.0, 3.0], substeps=steps, increments=dw,
                   generator=generator()).states[-1, :, 0]  # fmt: skip
    start = float(unit_clock_variance(0.25, 3.0))
    found = end[0] ** 2 * start + (end[1:] ** 2).sum() * 3.0 / steps
    assert_allclose(float(found), oracle(0.25, 3.0, steps), rtol=1e-12)


def test_probability_flow_of_ou_is_the_closed_form_map():
    """Noise-schedule clock, β(t) = 1 + t; forth and, by the reverse member, back."""
    m, s2 = 1.5, 0.3

    def moments(t):
        return ou_marginal(m, s2, float(t) + float(t) ** 2 / 2)

    def member(direction, horizon=None):
        return family_drift(
            lambda t, x: -0.5 * (1 + t) * x,
            lambda t, x: -(x - moments(t)[0]) / moments(t)[1],
            lambda t, x: 1 + t,
            lam=0.0,
            direction=direction,
            horizon=horizon,
        )

    x0 = torch.linspace(-1, 4, 7, dtype=torch.float64)[:, None]
    there = ode_path(member("forward").drift, x0, [0.0, 2.0], rtol=1e-9, atol=1e-11).states[-1]
    assert_allclose(there.numpy(), ou_probability_flow(x0.numpy(), m, s2, 4.0), rtol=1e-7)
    back = ode_path(member("reverse", 2.0).drift, there, [0.0, 2.0], rtol=1e-9, atol=1e-11)
    assert_close(back.states[-1], x0, rtol=1e-6, atol=1e-7)


# --- diffusions that depend on the state --------------------------------------------------------

C, NU = 1.5, 4.0  # dX = −CX dt + √(1 + X²/ν) dW has a Student law with 2Cν + 1 degrees of freedom
FREE = 2 * C * NU + 1


def pearson_score(t, x):
    return -2 * (1 + C * NU) * x / NU / (1 + x * x / NU)


def pearson_member(lam, direction, divergence=lambda t, x: 2 * x / NU):
    return family_drift(
        lambda t, x: -C * x,
        pearson_score,
        lambda t, x: 1 + x * x / NU,
        lam=lam,
        direction=direction,
        horizon=1.0 if direction == "reverse" else None,
        divergence=divergence,
    )


def stationary_flux(member):
    """(b − ½(σ²)' − ½σ²·score) of a member: zero everywhere on its stationary law."""
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)[:, None].requires_grad_()
    t = torch.tensor(0.3, dtype=torch.float64)
    a = member.noise(t, x) ** 2
    (slope,) = torch.autograd.grad(a.sum(), x)
    return member.drift(t, x) - 0.5 * slope - 0.5 * a * pearson_score(t, x)


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_stationary_law_of_a_state_dependent_diffusion_is_kept(lam, direction):
    assert_close(
        stationary_flux(pearson_member(lam, direction)),
        torch.zeros(101, 1, dtype=torch.float64),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_without_its_divergence_a_state_dependent_diffusion_loses_its_law(lam, direction):
    flux = stationary_flux(pearson_member(lam, direction, divergence=0.0))
    assert float(flux.detach().abs().max()) > 0.9


@pytest.mark.parametrize(("divergence", "kept"), [(lambda t, x: 2 * x / NU, True), (0.0, False)])
def test_samples_of_a_state_dependent_diffusion_keep_their_law_only_with_the_divergence(
    divergence, kept
):
    """Reverse member λ = ½ from the Student law; KS at level 1e-3, 100,000 samples."""
    member = pearson_member(0.5, "reverse", divergence)
    z = torch.randn(100_000, 1, generator=generator(3), dtype=torch.float64)
    # A Student variable is normal over the root of a chi-square over its freedom (13, whole).
    chi = (
        torch.randn(100_000, int(FREE), generator=generator(4), dtype=torch.float64).square().sum(1)
    )
    x0 = z / (chi[:, None] / FREE).sqrt() * (NU / FREE) ** 0.5
    path = sde_path(member.drift, member.noise, x0, [0.0, 1.0], substeps=100, generator=generator())
    scaled = path.states[-1, :, 0].numpy() / (NU / FREE) ** 0.5
    assert (kstest(scaled, student(FREE).cdf).pvalue > 1e-3) == kept


@pytest.mark.parametrize("keep", [True, False])
def test_probability_flow_of_geometric_brownian_motion_maps_quantiles(keep):
    """dX = μX dt + σX dW from LogN(0, ¼): the flow is a line in log x; without ∇·a it is not."""
    mu, sigma, s2 = 0.3, 0.8, 0.25

    def score(t, x):
        mean, variance = (mu - sigma**2 / 2) * t, s2 + sigma**2 * t
        return -(1 + (x.log() - mean) / variance) / x

    member = family_drift(
        lambda t, x: mu * x,
        score,
        lambda t, x: sigma**2 * x * x,
        lam=0.0,
        divergence=(lambda t, x: 2 * sigma**2 * x) if keep else 0.0,
    )
    levels = np.linspace(0.05, 0.95, 9)
    x0 = tensor(lognorm(s2**0.5).ppf(levels))[:, None]
    end = ode_path(member.drift, x0, [0.0, 1.0], rtol=1e-9, atol=1e-11).states[-1, :, 0].numpy()
    law = lognorm((s2 + sigma**2) ** 0.5, scale=np.exp(mu - sigma**2 / 2))
    assert np.allclose(end, law.ppf(levels), rtol=1e-6) == keep


# --- 000 Cor. 6.4: through the softmax -----------------------------------------------------------


@pytest.mark.parametrize("right", [True, False])
def test_laws_on_the_simplex_agree_through_softmax(right):
    """Nine moments of softmax(Wᵀh), z-scores below 4 (level 6e-5 each), and KS per outcome at
    level 1e-4; the drift F alone in place of the velocity fails both."""
    n, a = 40_000, tensor([0.2, 2.0])
    W = tensor([[1.0, -1.0, 0.5], [0.3, 1.0, -1.2]])

    def covariance(t):
        return 0.5 * a + (tensor([0.5, 0.1]) - 0.5 * a) * torch.exp(-2 * t)

    def score(t, h):
        return -h / covariance(t)

    velocity = family_drift(lambda t, h: -h, score, a, lam=0.0).drift if right else lambda t, h: -h
    start = covariance(torch.tensor(0.0)).sqrt()
    h0, h1 = (
        start * torch.randn(n, 2, generator=generator(k), dtype=torch.float64) for k in (0, 1)
    )
    noisy = sde_path(lambda t, h: -h, a.sqrt(), h0, [0.0, 1.0], substeps=50, method="heun",
                     generator=generator(2)).states[-1]  # fmt: skip
    smooth = ode_path(velocity, h1, [0.0, 1.0]).states[-1]
    p, q = ((h @ W).softmax(-1) for h in (noisy, smooth))
    moments = [torch.cat([r, r * r, r * r.roll(1, -1)], -1) for r in (p, q)]
    spread = ((moments[0].var(0) + moments[1].var(0)) / n).sqrt()
    z = (moments[0].mean(0) - moments[1].mean(0)).abs() / spread
    assert bool((z < 4).all()) == right
    assert right == (min(ks_2samp(p[:, j], q[:, j]).pvalue for j in range(3)) > 1e-4)


# --- 000 §6.2: the anisotropic toy ---------------------------------------------------------------

NOISE = tensor([0.1, 1.0]) ** 2  # a = diag(σ₁², σ₂²), σ₁ ≪ σ₂


def toy_slopes(rate, variance):
    """u = slope·x per coordinate, for F = −rate·x and the law N(0, diag(variance))."""
    v = tensor(variance)
    x = torch.ones(1, 2, dtype=torch.float64)
    return score_to_velocity(-rate * x, -x / v, NOISE)[0]


def test_the_velocity_of_the_toy_is_half_the_growth_of_the_log_variance():
    """u_i = ½ (v̇_i / v_i) x_i with v̇ = −2·rate·v + σ²: what moves along e_i is v_i, not σ_i."""
    v, rate = tensor([0.3, 0.2]), 1.0
    assert_close(toy_slopes(rate, v), 0.5 * (-2 * rate * v + NOISE) / v)


def test_the_stationary_toy_neither_contracts_nor_drifts():
    """F = −x, v = σ²/2: u = 0 along both axes, however anisotropic the noise."""
    assert_close(toy_slopes(1.0, NOISE / 2), torch.zeros(2, dtype=torch.float64))


def test_the_toy_expands_along_the_quiet_axis_when_it_starts_sharp():
    """F = −x, v₁ = 1e-4 < σ₁²/2 = .005: slope +49 along e₁; 000 says it contracts there."""
    assert_close(toy_slopes(1.0, [1e-4, 1e-4])[0], tensor(49.0))


def test_the_toy_without_drift_expands_along_both_axes():
    """F = 0, v = 1: slopes +.005 and +.5."""
    assert_close(toy_slopes(0.0, [1.0, 1.0]), tensor([0.005, 0.5]))


def test_the_toy_contracts_along_both_axes_when_the_law_is_wide():
    """F = −x, v = 1: slopes −.995 and −.5; the contraction is F's, the noise only weakens it."""
    assert_close(toy_slopes(1.0, [1.0, 1.0]), tensor([-0.995, -0.5]))


def test_the_toy_never_drifts_a_centred_law():
    """u is odd: the mean stays at zero along e₂ too, on every sample of pairs x, −x."""
    x = torch.randn(50, 2, generator=generator(), dtype=torch.float64)
    u = score_to_velocity(-x, -x / tensor([0.3, 0.2]), NOISE)
    mirrored = score_to_velocity(x, x / tensor([0.3, 0.2]), NOISE)
    assert_close(u, -mirrored, rtol=0, atol=0)


# --- shapes and refusals -------------------------------------------------------------------------


def test_kinds_of_diffusion_give_one_velocity():
    x = torch.randn(4, 2, generator=generator(), dtype=torch.float64)
    a = tensor([2.0, 2.0])
    whole = [2.0, a, torch.diag(a), a.expand(4, 2), torch.diag(a).expand(4, 2, 2)]
    for other in whole[1:]:
        assert_close(score_to_velocity(-x, -3 * x, other), score_to_velocity(-x, -3 * x, whole[0]))


def test_a_singular_diffusion_moves_only_its_own_plane():
    a = tensor([[1.0, 1.0], [1.0, 1.0]])
    member = family_drift(lambda t, x: 0 * x, lambda t, x: -x, a, lam=1.0)
    assert_close(member.noise @ member.noise.mT, a)
    x = tensor([[1.0, -1.0]])
    assert_close(score_to_velocity(0 * x, -x, a), 0 * x)


def member_with(**change):
    given = {"diffusion": 1.0, "lam": 0.5, **change}
    member = family_drift(lambda t, x: -x, lambda t, x: -x, given.pop("diffusion"), **given)
    x = torch.ones(3, 2)
    member.drift(torch.tensor(0.0), x)
    return member.noise(torch.tensor(0.0), x) if callable(member.noise) else member.noise


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lam": 1.1}, r"in \[0, 1\].*found 1.1"),
        ({"lam": -0.1}, "found -0.1"),
        ({"direction": "backward"}, "'forward', 'reverse'"),
        ({"direction": "reverse"}, "found none"),
        ({"horizon": 2.0}, "found 2"),
        ({"diffusion": -1.0}, "≥ 0"),
        ({"diffusion": torch.tensor([1.0, -3.0])}, "found -3"),
        ({"diffusion": torch.tensor([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"diffusion": torch.tensor([[1.0, 2.0], [2.0, 1.0]])}, "negative eigenvalue"),
        ({"diffusion": torch.ones(2, 3)}, "square"),
        ({"diffusion": torch.ones(1, 1, 1)}, "3 axes"),
        ({"diffusion": torch.ones(3)}, "diagonal of shape"),
        ({"diffusion": lambda t, x: -x}, "found -1"),
        ({"diffusion": lambda t, x: 1 + x * x}, "divergence must be given"),
        ({"diffusion": lambda t, x: 1 + x * x, "divergence": torch.ones(2)}, "shape of the states"),
        ({"diffusion": lambda t, x: torch.tensor([[1.0, 2.0], [0.0, 1.0]])}, "symmetric"),
    ],
)
def test_bad_members_get_a_sentence(change, words):
    with pytest.raises(InvalidInputError, match=words):
        member_with(**change)


def test_drift_and_score_of_two_shapes_get_a_sentence():
    with pytest.raises(InvalidInputError, match="one shape"):
        score_to_velocity(torch.ones(2, 1), torch.ones(3, 1), 1.0)
