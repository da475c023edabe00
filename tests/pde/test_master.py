"""The master equation of source 001: closed forms of each term, and its arms."""

import math

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.pde import MasterEquation


def field(n=7, width=8, seed=0):
    return torch.randn((2, n, width), generator=torch.Generator().manual_seed(seed)).double()


def silent(**settings):
    """A master equation whose attention and feed-forward write nothing."""
    model = MasterEquation(width=8, heads=2, steps=6, **settings).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "output" in name:
                weight.zero_()
    return model


def test_leak_two_shrinks_by_its_closed_form():
    u = field()
    assert torch.allclose(silent(leak=2)(u), 0.0877915 * u, atol=5e-8)
    assert silent(leak=2)(u).div(u).mean().item() == pytest.approx((2 / 3) ** 6, abs=1e-12)
    torch.testing.assert_close(silent(leak=1)(u), (5 / 6) ** 6 * u)
    torch.testing.assert_close(silent(leak=0)(u), u)


def test_finer_steps_tend_to_the_exact_flow():
    u = field()
    model = MasterEquation(width=8, heads=2, steps=4096, leak=2, shared=True).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "output" in name:
                weight.zero_()
    assert model(u).div(u).mean().item() == pytest.approx(0.1353353, abs=1e-4)


def test_the_step_is_the_sum_of_its_terms():
    u, model = (
        field(),
        MasterEquation(
            width=8,
            heads=2,
            steps=3,
            leak=2,
            norm="layer",
            stabiliser="published",
            gamma=0.3,
            diffusion=0.2,
        ).double(),
    )
    step = (
        model.attention(u, 1) + model.feed_forward(u, 1) + model.diffusion(u) + model.stabiliser(u)
    )
    torch.testing.assert_close(model.step(u, 1), u + model.dt * step)
    path = model.path(u)
    assert path.shape == (4, *u.shape)
    torch.testing.assert_close(path[2], model.step(path[1], 1))


def test_leak_is_subtracted_once_for_attention_and_once_for_feed_forward():
    u = field()
    two, one, none = (silent(leak=leak) for leak in (2, 1, 0))
    torch.testing.assert_close(two.attention(u, 0), -u)
    torch.testing.assert_close(two.feed_forward(u, 0), -u)
    torch.testing.assert_close(one.attention(u, 0) + one.feed_forward(u, 0), -u)
    assert not none.attention(u, 0).any()
    assert not none.feed_forward(u, 0).any()


def test_diffusion_is_the_discrete_laplacian_without_flux_at_the_ends():
    model = silent(diffusion=0.5)
    positions = torch.arange(7).double()[None, :, None]
    inner = model.diffusion(positions**2)[0, 1:-1, 0]
    torch.testing.assert_close(inner, torch.full((5,), 1.0).double())
    u = field()
    torch.testing.assert_close(model.diffusion(u).sum(1), torch.zeros(2, 8).double())
    assert (model.diffusion(u) * u).sum() < 0


def test_stabilisers_as_published_and_relaxing():
    u = field(n=50) * 3 + 1
    mean, sigma = (
        u.mean(1, keepdim=True),
        (u - u.mean(1, keepdim=True)).square().mean(1, keepdim=True).sqrt(),
    )
    published = silent(stabiliser="published", gamma=0.7, epsilon=0.0)
    torch.testing.assert_close(published.stabiliser(u), -0.7 * (u - mean) / sigma)
    relaxing = silent(stabiliser="relaxing", gamma=0.7, epsilon=0.0)
    torch.testing.assert_close(relaxing.stabiliser(u), -0.7 * (u - (u - mean) / sigma))
    still = (u - mean) / sigma
    assert relaxing.stabiliser(still).abs().max() < 1e-12
    assert not silent().stabiliser(u).any()


def test_norm_goes_in_front_of_both_writes():
    model = MasterEquation(width=8, heads=2, steps=1, leak=0, norm="layer").double()
    u = field()
    torch.testing.assert_close(
        model.attention(u, 0), model.attention(5 * u, 0), rtol=1e-4, atol=1e-5
    )
    bare = MasterEquation(width=8, heads=2, steps=1, leak=0, norm="none").double()
    assert not torch.allclose(bare.attention(u, 0), bare.attention(5 * u, 0), rtol=1e-2)


def test_shared_weights_are_one_block():
    many = MasterEquation(width=8, heads=2, steps=6)
    one = MasterEquation(width=8, heads=2, steps=6, shared=True)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (many, one)]
    assert sizes[0] == 6 * sizes[1]


def test_causal_attention_sees_no_later_token():
    model = MasterEquation(width=8, heads=2, steps=2, causal=True).double()
    u = field()
    later = u.clone()
    later[:, 5:] += 1
    torch.testing.assert_close(model(u)[:, :5], model(later)[:, :5])
    assert not torch.allclose(model(u)[:, 5:], model(later)[:, 5:])


def test_it_trains():
    torch.manual_seed(0)
    model = MasterEquation(width=8, heads=2, steps=3, leak=2, norm="layer")
    u, target = field().float(), field(seed=1).float()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        loss = (model(u) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert math.isfinite(losses[-1])


@pytest.mark.parametrize(
    "settings",
    [{"leak": 3}, {"heads": 3}, {"norm": "batch"}, {"stabiliser": "strong"}, {"steps": 0},
     {"diffusion": -1.0}, {"dt": 0.0}, {"gamma": -1.0}, {"epsilon": -1.0}, {"width": 0}],
)  # fmt: skip
def test_bad_settings_are_refused(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        MasterEquation(**{"width": 8, "heads": 2, "steps": 6, **settings})
