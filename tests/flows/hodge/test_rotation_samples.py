"""Rotation from samples: closed forms, gradients that are none, noise that is none."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.oracles import gaussian_rotational_energy

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import Settings, rotation

SPIN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, g):
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def spd(rng, d):
    M = rng.standard_normal((d, 2 * d))
    return M @ M.T / d


def curved(N, d, g):
    """Two lumps, bent: far from Gaussian."""
    x = normal(N, d, g=g)
    lump = 2.0 * torch.randint(2, (N, 1), generator=g) - 1
    x[:, :2] = 0.5 * x[:, :2] + lump
    x[:, 1] += 0.3 * x[:, 0] ** 2
    return x


def slope(potential, x):
    y = x.clone().requires_grad_()
    return torch.autograd.grad(potential(y).sum(), y)[0]


@pytest.mark.parametrize("d", [2, 8])
def test_linear_field_has_the_closed_form_energy(d):
    """§9.14, random A, Σ, a; 20,000 points."""
    rng = np.random.default_rng(d)
    A, Sigma, a = rng.standard_normal((d, d)), spd(rng, d), spd(rng, d)
    x = torch.from_numpy(rng.multivariate_normal(np.zeros(d), Sigma, 20_000))
    u = x @ torch.from_numpy(A).mT
    found = rotation(x, u, diffusion=torch.from_numpy(a), generator=seeded())
    truth = gaussian_rotational_energy(A, Sigma, a)
    assert_allclose(found.energy, truth, rtol=0.03)
    assert_allclose(found.total, np.trace(np.linalg.inv(a) @ A @ Sigma @ A.T), rtol=0.03)


def test_weighted_not_unweighted_energy():
    """E44: 3.2, where the unweighted problem gives 5."""
    g = seeded()
    x = normal(20_000, 2, g=g) * torch.tensor([1.0, 2.0])
    found = rotation(x, x @ SPIN.mT, diffusion=1.0, generator=g)
    assert_allclose(found.energy, 3.2, rtol=0.03)
    assert_allclose(found.normalised, 0.64, rtol=0.03)


def test_share_does_not_depend_on_the_unit_of_diffusion():
    g = seeded()
    x = normal(4000, 2, g=g)
    u = x @ (SPIN - torch.eye(2)).mT
    one, ten = (rotation(x, u, diffusion=a, generator=seeded()) for a in (1.0, 10.0))
    assert_allclose(one.normalised, ten.normalised, rtol=1e-6)
    assert_allclose(one.energy, 10 * ten.energy, rtol=1e-6)


def test_reference_is_subtracted():
    g = seeded()
    x = normal(4000, 2, g=g)
    turning = x @ SPIN.mT
    as_values = rotation(x, turning - x, diffusion=1.0, generator=seeded(), reference=turning)
    as_function = rotation(
        x, turning - x, diffusion=1.0, generator=seeded(), reference=lambda y: y @ SPIN.mT
    )
    assert abs(as_values.normalised) < 1e-10
    assert as_values.energy == as_function.energy


POTENTIALS = {
    "cubic": lambda x: x[:, 0] ** 3 + x[:, 0] * x[:, 1] ** 2,
    "quartic": lambda x: x[:, 0] ** 4 / 4 + x[:, 0] ** 2 * x[:, 1] ** 2,
    "logcosh": lambda x: torch.log(torch.cosh(3 * x[:, 0])),
}


@pytest.mark.parametrize("name", POTENTIALS)
@pytest.mark.parametrize("law", ["gaussian", "curved"])
@pytest.mark.parametrize("d", [2, 8])
def test_gradient_motion_is_not_read_as_rotation(name, law, d):
    g = seeded()
    x = normal(5000, d, g=g) if law == "gaussian" else curved(5000, d, g)
    found = rotation(x, slope(POTENTIALS[name], x), diffusion=1.0, generator=g)
    # Outside the dictionary (log cosh, d = 8, two bent lumps) up to .002 leaks.
    assert abs(found.normalised) < 3e-3


def test_gradient_within_the_dictionary_has_none_whatever_the_ridge():
    """The potential is not penalised: shrinking a gradient unevenly would make it turn."""
    from flowscope.flows.hodge.crossfit import fit, projector, ridged
    from flowscope.flows.hodge.problem import blocks, sample
    from flowscope.flows.hodge.samples import weak

    g = seeded()
    x = curved(3000, 3, g)
    u = slope(POTENTIALS["cubic"], x)
    taken = sample(
        x, u, reference=None, times=None,
        blocks=lambda N: blocks(None, N, generator=g, at_most=20, least=4),
    )  # fmt: skip
    of = weak(taken, torch.eye(3).double(), Settings(), g)
    half = projector(of.moments, (torch.arange(20) < 10).double()[None], of.basis)
    C = of.moments.cross[:10].sum(0)[None] / of.moments.count[:10].sum()
    for ridge in (0.0, 1e-2, 10.0):
        found = fit(ridged(half, ridge), C)
        assert found.rotation.square().sum() < 1e-8 * found.velocity.square().sum()


def planted(seed, share, N=2000, d=2):
    g = seeded(seed)
    x = normal(N, d, g=g)
    spin = torch.kron(torch.eye(d // 2, dtype=torch.float64), SPIN)
    u = -x + (share / (1 - share)) ** 0.5 * x @ spin.mT + normal(N, d, g=g)
    return x, u, g


def test_noise_is_not_read_as_rotation():
    """Twenty noisy gradient fields, noise = signal: mean 0 within four standard errors."""
    shares = [
        rotation(x, u, diffusion=1.0, generator=g, settings=Settings(draws=20)).normalised
        for x, u, g in (planted(seed, 0.0) for seed in range(20))
    ]
    assert abs(np.mean(shares)) < 4 * np.std(shares) / np.sqrt(20)
    assert np.std(shares) < 3e-3


def test_planted_rotation_comes_back_unbiased():
    """Twenty fields with a share of .2, noise = signal energy of the gradient."""
    shares = [
        rotation(x, u, diffusion=1.0, generator=g, settings=Settings(draws=20)).normalised
        for x, u, g in (planted(seed, 0.2) for seed in range(20))
    ]
    assert_allclose(np.mean(shares), 0.2, atol=4 * np.std(shares) / np.sqrt(20))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_interval_covers_the_truth_at_its_level(share):
    """Level .9, 40 fields: at least 32 cover (a binomial of .9 gives fewer in 4 % of runs)."""
    settings = Settings(draws=300, level=0.9, blocks=40)
    covered = sum(
        share in rotation(x, u, diffusion=1.0, generator=g, settings=settings).interval
        for x, u, g in (planted(seed, share, N=1500) for seed in range(40))
    )
    assert covered >= 32


def test_null_test_keeps_its_level_and_has_power():
    """Level .1: at most 9 of 40 gradients rejected (1.5 % of runs reject more); all planted are."""
    settings = Settings(draws=199)

    def rejected(share):
        return sum(
            rotation(x, u, diffusion=1.0, generator=g, settings=settings).p_value <= 0.1
            for x, u, g in (planted(seed, share) for seed in range(40))
        )

    assert rejected(0.0) <= 9
    assert rejected(0.1) >= 38


def test_null_follows_the_noise_and_not_the_signal():
    """R of the null is a product of two noises: a tenth of the noise, a hundredth of the null."""
    g = seeded()
    x, eta = normal(3000, 2, g=g), normal(3000, 2, g=g)
    loud, soft = (
        rotation(x, -x + c * eta, diffusion=1.0, generator=seeded(1)).null[2] for c in (1.0, 0.1)
    )
    assert_allclose(soft / loud, 0.01, rtol=0.3)


def test_noise_shared_within_groups_is_not_read_as_rotation():
    """A random linear field per group: without groups it is signal, with them it is noise."""
    rejected = [0, 0]
    for seed in range(20):
        g = seeded(seed)
        groups = torch.arange(2000) % 40
        x = normal(2000, 2, g=g)
        wobble = normal(40, 2, 2, g=g)[groups]
        u = -x + (wobble @ x[..., None])[..., 0]
        for k, unit in enumerate((None, groups)):
            found = rotation(
                x, u, diffusion=1.0, generator=g, groups=unit, settings=Settings(draws=199)
            )
            rejected[k] += found.p_value <= 0.05
    assert rejected[0] >= 8
    assert rejected[1] <= 3


def test_first_order_resamples_agree_with_refits():
    from flowscope.flows.hodge.crossfit import fit, projector, ridged
    from flowscope.flows.hodge.influence import resampled
    from flowscope.flows.hodge.judgement import chances
    from flowscope.flows.hodge.problem import blocks, sample
    from flowscope.flows.hodge.samples import weak

    x, u, g = planted(0, 0.2, N=3000, d=2)
    taken = sample(
        x, u, reference=None, times=None,
        blocks=lambda N: blocks(None, N, generator=g, at_most=64, least=4),
    )  # fmt: skip
    settings = Settings(draws=200, splits=2, waves=4)
    of = weak(taken, torch.eye(2).double(), settings, g)
    drawn = chances(64, settings, g)

    def refitted(weights):
        total = 0.0
        G = (weights[:, None, None] * of.moments.gram).sum(0) / (weights @ of.moments.count)
        for first in drawn.splits:
            one, two = (
                fit(
                    ridged(projector(of.moments, w[None], of.basis), of.ridge),
                    (w @ of.moments.cross.flatten(1)).reshape(1, *of.moments.cross.shape[1:])
                    / (w @ of.moments.count),
                ).rotation[0]
                for w in (weights * first, weights * ~first)
            )
            total += float((one * (G @ two)).sum()) / len(drawn.splits)
        return total

    quick = resampled(
        of.moments, drawn.splits, of.basis, of.ridge, weights=drawn.weights, signs=drawn.signs
    )
    slow = np.array([refitted(w) for w in drawn.weights])
    fast = quick.draws[:, 0].numpy()
    # the jitter on the diagonals is not in the influences
    assert_allclose(quick.energies[0], refitted(torch.ones(64).double()), rtol=1e-5)
    assert np.corrcoef(slow, fast)[0, 1] > 0.97
    assert_allclose(fast.std(), slow.std(), rtol=0.1)


def test_the_least_p_is_one_over_one_more_than_the_draws():
    x, u, _ = planted(3, 0.9)
    settings = Settings(draws=99)
    found = rotation(x, u, diffusion=1.0, generator=seeded(5), settings=settings)
    assert found.p_value == 1 / 100


def test_same_seed_same_answer():
    x, u, _ = planted(3, 0.1)
    one, two = (rotation(x, u, diffusion=1.0, generator=seeded(5)) for _ in range(2))
    assert one.interval == two.interval
    assert one.p_value == two.p_value


def test_no_signal_abstains():
    g = seeded()
    x = normal(2000, 2, g=g)
    found = rotation(x, normal(2000, 2, g=g), diffusion=1.0, generator=g)
    assert found.status == "abstained"
    assert "no signal" in found.because
    assert np.isnan(found.normalised)
    assert found.interval.method.startswith("none")


def test_estimated_diffusion_is_the_noise_covariance_times_the_step():
    g = seeded()
    x = normal(5000, 2, g=g)
    a = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    step = 0.1
    noise = normal(5000, 2, g=g) @ torch.linalg.cholesky(a).mT / step**0.5
    u = x @ (SPIN - torch.eye(2)).mT
    truth = gaussian_rotational_energy((SPIN - torch.eye(2)).numpy(), np.eye(2), a.numpy())
    found = rotation(x, u + noise, diffusion="estimate", generator=g, settings=Settings(step=step))
    # sd of R over seeds is about .12 here: noise has nine times the energy of the signal
    assert_allclose(found.energy, truth, rtol=0.35)
    exact = rotation(x, u + noise, diffusion=a, generator=seeded(0))
    assert_allclose(found.total, exact.total, rtol=0.1)


def test_singular_diffusion_is_refused_or_extrapolated():
    g = seeded()
    x = normal(3000, 2, g=g)
    u = -x * torch.tensor([1.0, 0.0])
    a = torch.tensor([1.0, 0.0])
    with pytest.raises(InvalidInputError, match="regularise"):
        rotation(x, u, diffusion=a, generator=g)
    found = rotation(x, u, diffusion=a, generator=g, regularise=(0.1, 0.01, 0.001))
    assert [row.epsilon for row in found.extrapolation] == [0.1, 0.01, 0.001]
    assert found.extrapolation[-1].energy == found.energy
    assert abs(found.normalised) < 1e-6


def test_time_dependent_gradient_has_no_rotation_and_a_turning_one_has():
    g = seeded()
    t = torch.rand(6000, generator=g, dtype=torch.float64)
    x = normal(6000, 2, g=g) * (1 + t)[:, None]
    still = rotation(x, (1 - 2 * t)[:, None] * x, diffusion=1.0, generator=g, times=t)
    assert abs(still.normalised) < 1e-6
    turning = rotation(x, t[:, None] * (x @ SPIN.mT), diffusion=1.0, generator=g, times=t)
    # E t²|x|² = 2 ∫ t²(1+t)² dt
    assert_allclose(turning.energy, 2 * (1 / 3 + 2 / 4 + 1 / 5), rtol=0.05)
    assert turning.normalised > 0.99


def test_hjb_tells_a_bridge_from_a_stationary_law():
    """E48: bridge N(0, 1) → N(0, .49) of √2 dB, and stationary OU; both have R = 0."""
    g, N = seeded(), 6000
    t = (torch.arange(N) % 12).double() / 11
    c = (0.49 + 1) ** 0.5 - 1
    S = (1 - t) ** 2 + 0.49 * t**2 + t * (1 - t) * (2 * c + 2)
    rate = -2 * (1 - t) + 0.98 * t + (1 - 2 * t) * (2 * c + 2)
    x = S.sqrt()[:, None] * normal(N, 2, g=g)
    u = (rate / (2 * S))[:, None] * x + 0.3 * normal(N, 2, g=g)
    bridge = rotation(x, u, diffusion=2.0, generator=g, times=t, scores=-x / S[:, None])
    y = normal(N, 2, g=g)
    ou = rotation(y, 0.3 * normal(N, 2, g=g), diffusion=2.0, generator=g, times=t, scores=-y)
    assert abs(bridge.normalised) < 1e-3
    assert bridge.hjb.relative < 0.2
    assert ou.hjb.relative > 0.8


def test_missing_hjb_says_why():
    x, u, g = planted(0, 0.1)
    assert "times" in rotation(x, u, diffusion=1.0, generator=g).hjb.reason


def test_bad_input_is_refused_in_a_sentence():
    x, u, g = planted(0, 0.1, d=4)

    def refused(match, points=x, velocities=u, **options):
        with pytest.raises(InvalidInputError, match=match):
            rotation(points, velocities, **{"diffusion": 1.0, "generator": g, **options})

    broken = u.clone()
    broken[3, 1] = torch.nan
    refused("one shape", velocities=u[:-1])
    refused("finite", velocities=broken)
    refused("constant", points=x * torch.tensor([1.0, 1.0, 0.0, 1.0]))
    refused("rank 3", points=torch.cat([x[:, :3], x[:, :1]], 1))
    refused("groups are needed", groups=torch.arange(2000) % 3)
    refused("one per point", groups=torch.arange(5))
    refused("carry at most", points=x[:60], velocities=u[:60])
    refused("invertible", diffusion=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    refused("symmetric", diffusion=torch.eye(4) + torch.triu(torch.ones(4, 4), 1))
    refused("diffusion must be a number", diffusion=torch.ones(3))
    refused("negative eigenvalue", diffusion=-1.0)
    refused("estimate", diffusion="guess")
    refused("samples", method="magic")
    refused("at most 3 coordinates", method="grid")
    refused("two values", times=torch.zeros(2000))
    refused("decreasing", regularise=(0.1, 0.2))
