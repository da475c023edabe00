"""The HJB residual on laws whose potential, score and velocity are known in closed form."""

import numpy as np
import pytest
import torch
from tests import oracles
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.hjb import hjb_residual


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sliced(n_times, per_time, low=0.2, high=0.8):
    return torch.linspace(low, high, n_times).double().repeat_interleave(per_time)


class GaussianBridge:
    """Bridge between N(m₀, A) and N(m₁, B), reference √ε dB: all in closed form, batched over t."""

    def __init__(self, A, B, m0, m1, eps):
        self.A, self.B = (torch.as_tensor(x, dtype=torch.float64) for x in (A, B))
        self.m0, self.m1 = (torch.as_tensor(m, dtype=torch.float64) for m in (m0, m1))
        self.eps = eps
        C = torch.from_numpy(oracles.entropic_gaussian_coupling(A, B, eps))
        self.cross, self.eye = C + C.T, torch.eye(len(self.A)).double()

    def mean(self, t):
        return (1 - t)[:, None] * self.m0 + t[:, None] * self.m1

    def covariance(self, t):
        t = t[:, None, None]
        between = self.cross + self.eps * self.eye
        return (1 - t) ** 2 * self.A + t**2 * self.B + t * (1 - t) * between

    def velocity_slope(self, t):
        """Symmetric K with u = K(x − m_t) + ṁ, from KΣ + ΣK = Σ̇ (the gradient solution)."""
        cov, s = self.covariance(t), t[:, None, None]
        between = self.cross + self.eps * self.eye
        rate = -2 * (1 - s) * self.A + 2 * s * self.B + (1 - 2 * s) * between
        lhs = torch.func.vmap(lambda S: torch.kron(S, self.eye) + torch.kron(self.eye, S))(cov)
        return torch.linalg.solve(lhs, rate.flatten(1)).reshape(cov.shape)

    def score(self, t, x):
        return -torch.linalg.solve(self.covariance(t), (x - self.mean(t))[..., None])[..., 0]

    def velocity(self, t, x):
        moved = (self.velocity_slope(t) @ (x - self.mean(t))[..., None])[..., 0]
        return moved + self.m1 - self.m0

    def potential(self, t, x):
        """θ with ε∇θ = u."""
        y = x - self.mean(t)
        bent = 0.5 * torch.einsum("ni,nij,nj->n", y, self.velocity_slope(t), y)
        return (bent + y @ (self.m1 - self.m0)) / self.eps

    def points(self, t, seed=0):
        root = torch.linalg.cholesky(self.covariance(t))
        noise = normal(len(t), len(self.A), seed)
        return self.mean(t) + (root @ noise[..., None])[..., 0]

    def residual(self, t, x, **over):
        parts = {"potential": self.potential, "score": self.score, "velocity": self.velocity}
        return hjb_residual(x, t, diffusion=self.eps, **(parts | over))


BRIDGES = {
    "line": ([[1.0]], [[0.49]], [0.0], [0.0], 2.0),
    "moving line": ([[1.0]], [[0.49]], [-1.0], [1.5], 0.5),
    "commuting": (np.diag([1.0, 2.0, 0.5]), np.diag([0.5, 1.0, 2.0]), np.zeros(3), np.ones(3), 0.7),
    "turning": ([[1.0, 0.4], [0.4, 2.0]], [[2.0, -0.6], [-0.6, 0.5]], [0.0, 1.0], [1.0, 0.0], 1.0),
}


@pytest.mark.parametrize("name", BRIDGES)
def test_residual_vanishes_on_a_gaussian_bridge(name):
    bridge, t = GaussianBridge(*BRIDGES[name]), sliced(5, 40)
    found = bridge.residual(t, bridge.points(t))
    if name == "turning":
        # A bridge whose F is a gradient: so is u = F − ½εs, and the two slopes are symmetric.
        assert_close(bridge.velocity_slope(t), bridge.velocity_slope(t).mT)
    assert found.values.abs().max() < 1e-8
    assert found.relative < 1e-9
    assert found.status == "ok"


@pytest.mark.parametrize("d", [1, 2])
def test_residual_vanishes_on_a_bridge_that_is_not_gaussian(d):
    """μ = h·ĥ, h a mixture under the backward heat flow and ĥ one under the forward flow.

    φ = log h, s = ∇log h + ∇log ĥ, θ = φ − ½log μ = ½(log h − log ĥ), u = ε∇θ. Here ∇·u varies
    from point to point, which it does not on a Gaussian.
    """
    eps, t = 0.6, sliced(4, 30)
    x = 1.5 * normal(120, d)

    def log_mixture(x, centres, variance):
        gaps = (x[:, None, :] - normal(3, d, seed=centres)).square().sum(-1)
        logs = -0.5 * gaps / variance[:, None] - 0.5 * d * variance[:, None].log()
        return (logs + torch.tensor([0.0, 0.7, -0.4]).double()).logsumexp(-1)

    def back(t, x):
        return log_mixture(x, 1, eps * (1 - t) + 0.2)

    def forth(t, x):
        return log_mixture(x, 2, eps * t + 0.3)

    def slope(function):
        def field(t, x):
            return torch.autograd.grad(function(t, x).sum(), x, create_graph=True)[0]

        return field

    parts = {
        "potential": lambda t, x: 0.5 * (back(t, x) - forth(t, x)),
        "score": slope(lambda t, x: back(t, x) + forth(t, x)),
        "velocity": slope(lambda t, x: 0.5 * eps * (back(t, x) - forth(t, x))),
        "diffusion": eps,
    }
    found = hjb_residual(x, t, **parts)
    assert found.values.abs().max() < 1e-8
    assert found.scale > 0.1
    reversed_ = parts | {"potential": lambda t, x: 0.5 * (forth(t, x) - back(t, x))}
    assert hjb_residual(x, t, **reversed_).relative > 0.1


@pytest.mark.parametrize("d", [1, 3])
def test_stationary_ornstein_uhlenbeck_is_no_brownian_bridge(d):
    """φ = −|x|²/4, a = 2: the residual is |x|²/4 − d/2, of which the constant is c(t)."""
    x, t = normal(200, d), sliced(2, 100)
    found = hjb_residual(
        x,
        t,
        potential=lambda t, x: x.new_zeros(len(x)),
        score=lambda t, x: -x,
        velocity=lambda t, x: torch.zeros_like(x),
        diffusion=2.0,
    )
    bump = x.square().sum(-1).reshape(2, 100) / 4
    assert_close(found.values, (bump - bump.mean(1, keepdim=True)).flatten())
    assert_close(found.centre, (bump.mean(1) - d / 2)[:, None].expand(2, 100).flatten())
    assert found.relative == pytest.approx(1.0)


def test_velocity_potential_in_place_of_the_drift_potential_is_wrong_both_ways():
    """E48. With s = 0 and u = 0 the formula is that of θ alone: a bridge fails, OU passes."""
    bridge, t = GaussianBridge(*BRIDGES["line"]), sliced(3, 50)

    def nothing(t, x):
        return torch.zeros_like(x)

    alarm = bridge.residual(t, bridge.points(t), score=nothing, velocity=nothing)
    assert alarm.rms > 0.1
    assert alarm.relative > 0.1
    asleep = hjb_residual(
        normal(150, 1),
        t,
        potential=lambda t, x: x.new_zeros(len(x)),
        score=nothing,
        velocity=nothing,
        diffusion=2.0,
    )
    assert asleep.rms == 0.0
    assert asleep.relative == 0.0


@pytest.mark.parametrize("s2", [1.0, 0.25])
def test_ornstein_uhlenbeck_is_aligned_with_its_own_reference(s2):
    """dX = −X dt + √2 dW from N(0, s²), reference −x: φ = 0, though θ and ½log μ are not."""

    def variance(t):
        return (s2 * torch.exp(-2 * t) + 1 - torch.exp(-2 * t))[:, None]

    def velocity(t, x):
        return -x + x / variance(t)

    def potential(t, x):
        return (0.25 * x.square() / variance(t)).sum(-1)

    t = sliced(4, 50)
    x = variance(t).sqrt() * normal(200, 2)
    found = hjb_residual(
        x,
        t,
        potential=potential,
        score=lambda t, x: -x / variance(t),
        velocity=velocity,
        diffusion=2.0,
        reference=lambda t, x: -x,
    )
    assert found.rms < 1e-12
    assert found.scale > 0.1, "the pieces that cancel are not small"
    against_brownian = hjb_residual(
        x,
        t,
        potential=lambda t, x: (0.25 * x.square() * (1 / variance(t) - 1)).sum(-1),
        score=lambda t, x: -x / variance(t),
        velocity=velocity,
        diffusion=2.0,
    )
    assert against_brownian.relative > 0.05


def test_a_tilt_of_a_linear_reference_solves_the_equation_under_any_diffusion():
    """Reference dX = Bx dt + √a dW, h = exp(φ), φ = k(t)·x: bridge iff k' + Bᵀk = 0.

    μ_t is Gaussian with mean m' = Bm + ak and covariance of the reference, all by matrix
    exponentials; θ = φ − ½log μ up to a function of time.
    """
    B = torch.tensor([[-1.0, 0.5], [-0.2, -0.7]]).double()
    a = torch.tensor([[1.0, 0.3], [0.3, 0.5]]).double()
    k0 = torch.tensor([0.8, -0.4]).double()
    generator = torch.zeros(6, 6).double()
    generator[:2, :2], generator[:2, 2:4] = -B, a  # Van Loan: Σ_t = ∫ e^{Bs} a e^{Bᵀs} ds
    generator[2:4, 2:4] = B.T

    def at(t):
        grown = torch.linalg.matrix_exp(B * t[:, None, None])
        block = torch.linalg.matrix_exp(generator[:4, :4] * t[:, None, None])
        spread = block[:, 2:, 2:].mT @ block[:, :2, 2:]
        cov = grown @ grown.mT + 0.5 * (spread + spread.mT)
        k = torch.linalg.matrix_exp(-B.T * t[:, None, None]) @ k0
        # m(t) = ∫ e^{B(t−s)} a e^{−Bᵀs} k0 ds = S_t e^{−Bᵀt} k0, S_t the spread from zero
        return cov, (0.5 * (spread + spread.mT) @ k[..., None])[..., 0], k

    def score(t, x):
        cov, m, _ = at(t)
        return -torch.linalg.solve(cov, (x - m)[..., None])[..., 0]

    def potential(t, x):
        cov, m, k = at(t)
        pulled = torch.linalg.solve(cov, (x - m)[..., None])[..., 0]
        return (k * x).sum(-1) + 0.25 * ((x - m) * pulled).sum(-1)

    def velocity(t, x):
        return x @ B.T + at(t)[2] @ a - 0.5 * score(t, x) @ a

    t = sliced(3, 60)
    cov, m, _ = at(t)
    x = m + (torch.linalg.cholesky(cov) @ normal(180, 2)[..., None])[..., 0]
    parts = {"score": score, "velocity": velocity, "diffusion": a, "potential": potential}
    found = hjb_residual(x, t, reference=lambda t, x: x @ B.T, **parts)
    assert found.rms < 1e-10
    missing = hjb_residual(x, t, **parts)
    assert missing.relative > 0.05, "the reference is part of the equation"


def test_scattered_times_are_centred_by_a_polynomial():
    bridge = GaussianBridge(*BRIDGES["line"])
    t = 0.2 + 0.6 * torch.rand(400, generator=torch.Generator().manual_seed(1)).double()
    x = bridge.points(t)
    found = bridge.residual(t, x, degree=9)
    assert found.centring == "polynomial of degree 9"
    assert found.relative < 1e-5
    assert found.status == "ok"


def test_a_centre_that_the_polynomial_cannot_follow_is_said():
    x, t = normal(400, 1), torch.linspace(0, 1, 400).double()
    found = hjb_residual(
        x,
        t,
        potential=lambda t, x: 5 * torch.cos(12 * t) + 0.1 * x[:, 0],
        score=lambda t, x: -x,
        velocity=lambda t, x: torch.zeros_like(x),
        diffusion=2.0,
    )
    assert found.status == "abstained"
    assert "degree" in found.because


def test_a_function_of_time_added_to_the_potential_changes_nothing():
    bridge, t = GaussianBridge(*BRIDGES["moving line"]), sliced(4, 30)
    x = bridge.points(t) * 1.3  # off the law, so that nothing vanishes by luck
    plain = bridge.residual(t, x, velocity=lambda t, x: torch.sin(x))
    shifted = bridge.residual(
        t,
        x,
        velocity=lambda t, x: torch.sin(x),
        potential=lambda t, x: bridge.potential(t, x) + torch.cos(5 * t),
    )
    assert plain.rms > 0.01
    assert_close(plain.values, shifted.values)


def refused(**over):
    parts = {
        "points": normal(20, 2),
        "times": sliced(2, 10),
        "potential": lambda t, x: x.square().sum(-1),
        "score": lambda t, x: -x,
        "velocity": lambda t, x: -x,
        "diffusion": 1.0,
    } | over
    return hjb_residual(parts.pop("points"), parts.pop("times"), **parts)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"points": normal(3, 2), "times": sliced(1, 3)}, "at least 8 points"),
        ({"points": normal(20, 2) / 0}, "finite"),
        ({"times": sliced(2, 9)}, "times must have shape"),
        ({"diffusion": 0.0}, "positive definite"),
        ({"diffusion": torch.tensor([[1.0, 1.0], [1.0, 1.0]])}, "positive definite"),
        ({"diffusion": [1.0, 1.0, 1.0]}, "diffusion must have shape"),
        ({"score": lambda t, x: -x[:, :1]}, "score must have shape"),
        ({"potential": lambda t, x: x}, "potential must have shape"),
        ({"velocity": lambda t, x: -x.detach()}, "differentiable"),
        ({"score": lambda t, x: torch.log(-x.abs())}, "score must be finite"),
        ({"points": normal(20, 65), "diffusion": 1.0}, "at most 64"),
        ({"times": torch.linspace(0, 1, 20).double(), "degree": 9}, "points for a polynomial"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(over, words):
    with pytest.raises(InvalidInputError, match=words):
        refused(**over)
