"""Learned scores against analytic ones, and the habits of the training loop."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.score import (
    ScoreNet,
    ScoreTraining,
    Standard,
    fit_denoising_score,
    gaussian_score,
    mixture_score,
    noised_stein_identities,
)
from flowscope.flows.score.training import Cloud, _active, denoising_losses

QUICK = ScoreTraining(epochs=3, width=16)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def two_arms(n, seed, d=2):
    """½N(m, ¼) + ½N(−m, ½), m = (1.5, 0, …): points, and the score of the law blurred by σ."""
    means = torch.zeros(2, d)
    means[0, 0], means[1, 0] = 1.5, -1.5
    spreads = torch.tensor([0.25, 0.5])
    k = torch.randint(2, (n,), generator=source(seed))
    x = means[k] + spreads[k, None].sqrt() * torch.randn(n, d, generator=source(seed + 1000))

    def score(y, sigma):
        C = (spreads[:, None, None] + sigma**2) * torch.eye(d)
        return mixture_score(y, [0.5, 0.5], means, C)

    return x, score


def relative_error(found, score, x, sigma):
    y = x + sigma * torch.randn(x.shape, generator=source(99))
    truth = score(y, sigma)
    return float((found(y, sigma) - truth).norm() / truth.norm())


def test_score_of_gaussian_data_is_learned_at_every_scale():
    """Loose: relative L2 error below .15; 2,000 points leave .05 in the covariance alone."""
    C = torch.tensor([[1.0, 0.6, 0.0], [0.6, 2.0, 0.3], [0.0, 0.3, 0.1]])
    m = torch.tensor([1.0, 0.0, -1.0])
    draw = torch.distributions.MultivariateNormal(m, C)
    torch.manual_seed(3)
    x, unseen = draw.sample((2000,)), draw.sample((2000,))
    found = fit_denoising_score(x, generator=source())
    assert found.status == "ok"
    for sigma in found.sigmas:
        error = relative_error(
            found, lambda y, s: gaussian_score(y, m, C + s**2 * torch.eye(3)), unseen, sigma
        )
        assert error < 0.15


@pytest.fixture(scope="module")
def mixed():
    x, score = two_arms(4000, 0)
    return fit_denoising_score(x, generator=source()), score


def test_score_of_a_mixture_is_learned_and_beats_the_gaussian_fit(mixed):
    """Loose: relative error below .2 at the largest scale, .35 at the smallest (Gaussian .68)."""
    found, score = mixed
    unseen, _ = two_arms(4000, 7)
    errors = [relative_error(found, score, unseen, sigma) for sigma in found.sigmas]
    assert errors[0] < 0.2
    assert errors[-1] < 0.35
    fit = relative_error(
        lambda y, s: gaussian_score(y, y.mean(0), torch.cov(y.T)), score, unseen, found.sigmas[0]
    )
    assert fit > 0.5


def test_learned_score_of_a_mixture_obeys_stein_at_noised_points(mixed):
    found, _ = mixed
    unseen, _ = two_arms(4000, 7)
    sigma = found.sigmas[0]
    check = noised_stein_identities(
        lambda y: found(y, sigma), unseen, sigma, tolerance=0.1, generator=source()
    )
    assert check.status == "ok", check.because


def test_losses_are_those_of_the_score(mixed):
    """L = 1 − σ²E‖s‖²/d for the true score: the learned one is within .01 of it, and above."""
    found, score = mixed
    x, _ = two_arms(20_000, 11)
    for sigma, loss in zip(found.sigmas, found.losses, strict=True):
        y = x + sigma * torch.randn(x.shape, generator=source(5))
        best = 1 - sigma**2 * float(score(y, sigma).square().mean())
        assert loss == pytest.approx(best, abs=0.01 * (sigma / found.sigmas[0]) ** 2 + 1e-4)
        assert loss < 1


def test_scales_are_multiples_of_the_root_mean_square_of_a_coordinate():
    """E41: ‖x‖/√d, so that doubling the dimension changes nothing."""
    x = 3 * torch.randn(400, 5, generator=source())
    found = fit_denoising_score(x, scales=(0.02, 0.1), training=QUICK, generator=source())
    wide = fit_denoising_score(
        torch.cat([x, x + 1e-3 * x.flip(0)], 1), scales=(0.1,), training=QUICK, generator=source()
    )
    assert found.sigmas == pytest.approx((0.1 * found.unit, 0.02 * found.unit))
    assert found.unit == pytest.approx(float(x.square().mean().sqrt()))
    assert wide.unit == pytest.approx(found.unit, rel=1e-2)


def test_the_target_is_the_noise_and_its_square_is_taken_out():
    """Mean of the losses over noise = E‖σs + ε‖²/d, by plain averaging."""
    x = torch.randn(50_000, 2, generator=source()).double()
    standard = Standard.fit(x, torch.tensor([0.5]), None)
    net = ScoreNet(standard, width=8, blocks=1, generator=source(1)).double()
    torch.nn.init.normal_(net.outlet.weight, generator=source(2))
    noise = torch.randn(x.shape, generator=source(3)).double()
    sigma = torch.full((len(x),), 0.5).double()
    plain = (sigma[:, None] * net(x + 0.5 * noise, sigma, None) + noise).square().mean()
    for paired in (True, False):
        ours = denoising_losses(net, Cloud(x, None), sigma, noise, paired=paired).mean()
        assert_close(ours, plain, rtol=0.02, atol=0)


def test_pairs_of_noise_quieten_the_gradient_at_small_scales():
    """The 1/σ part cancels within a pair: at σ = .01 the gradient varies ten times less."""
    x, _ = two_arms(256, 0)
    net = ScoreNet(
        Standard.fit(x, torch.tensor([0.01]), None), width=16, blocks=1, generator=source()
    )
    sigma = torch.full((len(x),), 0.01)

    def spread(paired):
        rows = []
        for seed in range(20):
            noise = torch.randn(x.shape, generator=source(seed))
            loss = denoising_losses(net, Cloud(x, None), sigma, noise, paired=paired).mean()
            rows.append(torch.autograd.grad(loss, net.outlet.weight)[0].flatten())
        return torch.stack(rows).std(0).norm()

    assert spread(True) * 10 < spread(False)


def test_time_is_learned():
    """N(4t − 2, 1) at t ∈ [0, 1]: the score vanishes at 4t − 2, not at the pooled mean."""
    t = torch.rand(3000, generator=source())
    x = (4 * t - 2)[:, None] + torch.randn(3000, 1, generator=source(1))
    found = fit_denoising_score(x, times=t, scales=(0.1, 0.2), generator=source())
    for at in (0.1, 0.9):
        y = (4 * at - 2) + torch.linspace(-1, 1, 21)[:, None]
        assert_close(found(y, 0.2, at), (4 * at - 2 - y) / (1 + 0.04), atol=0.3, rtol=0)


def test_the_generator_decides_everything_and_the_global_state_nothing():
    x, _ = two_arms(300, 0)
    before = torch.random.get_rng_state()
    one = fit_denoising_score(x, training=QUICK, generator=source(5))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(12345)
    two = fit_denoising_score(x, training=QUICK, generator=source(5))
    other = fit_denoising_score(x, training=QUICK, generator=source(6))
    assert one.history == two.history
    assert torch.equal(one(x, 0.1), two(x, 0.1))
    assert not torch.equal(one(x, 0.1), other(x, 0.1))


def test_whole_groups_are_held_out():
    """Training sees 3 groups of 4; the Gaussian fit inside the network tells which."""
    groups = torch.arange(4).repeat_interleave(50)
    x = torch.randn(200, 2, generator=source()) + 100.0 * groups[:, None]
    found = fit_denoising_score(x, groups=groups, training=QUICK, generator=source())
    without = [float(x[groups != g].mean()) for g in range(4)]
    assert min(abs(float(found.net.centre.mean()) - m) for m in without) < 1e-3


def test_training_stops_early_and_keeps_the_best():
    x = torch.randn(64, 4, generator=source())  # Gaussian and few: the start is the best there is
    settings = ScoreTraining(epochs=60, patience=3, learning_rate=1e-2)
    found = fit_denoising_score(x, training=settings, generator=source())
    assert found.stopped_early
    assert found.epochs < 60
    assert found.validation_loss == min(found.history)


def test_curriculum_brings_the_scales_in_one_after_the_other():
    settings = ScoreTraining(epochs=100, curriculum=0.3)
    assert [_active(e, 4, settings) for e in (0, 9, 10, 19, 20, 29, 30, 99)] == [
        1, 1, 2, 2, 3, 3, 4, 4]  # fmt: skip
    assert _active(0, 4, ScoreTraining(curriculum=0.0)) == 4


def test_score_is_differentiable_in_its_point(mixed):
    found, _ = mixed
    x = torch.zeros(1, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(found(x, 0.1)[0, 0], x)
    h = torch.tensor([[1e-2, 0.0]])
    numeric = (found(h, 0.1) - found(-h, 0.1))[0, 0] / 2e-2
    assert_close(slope[0, 0], numeric, rtol=1e-2, atol=1e-3)


def test_a_score_no_better_than_zero_abstains():
    """Held-out groups far from those seen: the fit is a stranger to them."""
    groups = torch.arange(2).repeat_interleave(50)
    x = torch.randn(100, 2, generator=source()) * torch.where(groups == 0, 0.01, 30.0)[:, None]
    seen_small = [
        fit_denoising_score(x, groups=groups, training=QUICK, generator=source(k)) for k in range(4)
    ]
    assert "abstained" in {found.status for found in seen_small}


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"points": torch.randn(20, 2)}, "at least 32 points"),
        ({"points": torch.zeros(100, 2)}, "must vary"),
        ({"points": torch.randn(100, 2) * torch.tensor([1.0, 0.0])}, "must vary"),
        ({"points": torch.randn(100, 2).index_fill(0, torch.tensor([3]), torch.nan)}, "finite"),
        ({"points": torch.randn(100)}, "shape \\[n, d\\]"),
        ({"scales": (0.1, 0.0)}, "scales must be positive"),
        ({"scales": ()}, "scales must be positive"),
        ({"times": torch.zeros(7)}, "times must have shape"),
        ({"groups": torch.zeros(100, dtype=torch.int64)}, "at least 2 groups"),
        ({"groups": torch.zeros(7, dtype=torch.int64)}, "groups must have shape"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(over, words):
    given = {"points": torch.randn(100, 2), "training": QUICK, "generator": source()} | over
    with pytest.raises(InvalidInputError, match=words):
        fit_denoising_score(given.pop("points"), **given)


@pytest.mark.parametrize(
    "over", [{"width": 0}, {"held_out": 1.0}, {"curriculum": 2.0}, {"weight": "none"}]
)
def test_bad_settings_are_refused(over):
    with pytest.raises(InvalidInputError, match="must"):
        ScoreTraining(**over)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.zeros(3, 5), 0.1), "x must have shape"),
        ((torch.zeros(3, 2), 0.0), "sigma must be > 0"),
        ((torch.zeros(3, 2), torch.ones(2)), "sigma must have shape"),
        ((torch.zeros(3, 2), 0.1, 0.5), "t must be given exactly when"),
    ],
)
def test_a_wrong_call_of_the_score_is_refused(mixed, arguments, words):
    with pytest.raises(InvalidInputError, match=words):
        mixed[0](*arguments)
