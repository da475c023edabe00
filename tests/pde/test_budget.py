"""Energy, attention's parts, spread and collapse, against closed forms and exact balances."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.pde import (
    advection_diffusion,
    attention_parts,
    collapse,
    energy_balance,
    spread_balance,
)


def tokens(seed, n=9, width=5, count=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, n, width), generator=generator, dtype=torch.float64)


def kernel(seed, n=9):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn((n, n), generator=generator, dtype=torch.float64)
    return torch.softmax(logits, -1)


def energy(h):
    return 0.5 * h.square().sum(-1)


def spread(x):
    return 0.5 * (x - x.mean(-2, keepdim=True)).square().sum((-1, -2))


# Energy


@given(st.integers(0, 10**6))
def test_work_sums_to_the_change_of_energy(seed):
    h, attention, feed_forward = tokens(seed, count=3)
    balance = energy_balance(h, [attention, feed_forward])
    change = energy(h + attention + feed_forward) - energy(h)
    torch.testing.assert_close(balance.work.sum(0), change, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(balance.energy, energy(h), rtol=1e-14, atol=0)


def test_energy_of_a_write_along_the_state_and_across_it():
    h = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    along, across = 0.5 * h, torch.tensor([[-4.0, 3.0]], dtype=torch.float64)
    first = energy_balance(h, [along])
    assert first.radial.item() == pytest.approx(1)
    assert first.angular.item() == pytest.approx(0)
    assert first.work.item() == pytest.approx(0.5 * 25 + 0.125 * 25)
    second = energy_balance(h, [across])
    assert second.radial.item() == pytest.approx(0)
    assert second.angular.item() == pytest.approx(1)
    assert second.work.item() == pytest.approx(12.5)


def test_each_write_is_measured_at_the_state_before_it():
    h = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    up = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    balance = energy_balance(h, [up, up])
    assert balance.angular[:, 0].tolist() == pytest.approx([1.0, 0.5])
    assert balance.radial[:, 0].tolist() == pytest.approx([0.0, math.sqrt(0.5)])
    assert balance.work[:, 0].tolist() == pytest.approx([0.5, 1.5])


def test_no_write_is_no_step():
    h = tokens(0)[0]
    balance = energy_balance(h, [torch.zeros_like(h)])
    assert not balance.work.any()
    assert not balance.angular.any()
    assert not balance.radial.any()


def test_half_precision_is_widened():
    h, w = tokens(1, count=2)
    narrow = energy_balance(h.bfloat16(), [w.bfloat16()])
    wide = energy_balance(h.bfloat16().double(), [w.bfloat16().double()])
    assert narrow.work.dtype == torch.float32
    torch.testing.assert_close(narrow.work.double(), wide.work, rtol=1e-5, atol=1e-5)


def test_energy_refuses_what_has_no_direction():
    h = tokens(0)[0]
    with pytest.raises(InvalidInputError, match="zero"):
        energy_balance(torch.zeros_like(h), [h])
    with pytest.raises(InvalidInputError, match="shape"):
        energy_balance(h, [h[:-1]])
    with pytest.raises(InvalidInputError, match="at least one write"):
        energy_balance(h, [])
    with pytest.raises(InvalidInputError, match="finite"):
        energy_balance(h, [h * math.nan])


# Parts of attention


@given(st.integers(0, 10**6), st.sets(st.integers(0, 8), max_size=8))
def test_parts_of_attention_sum_to_its_output(seed, sinks):
    P, v = kernel(seed), tokens(seed + 1)[0]
    parts = attention_parts(P, v, sorted(sinks))
    output = P @ v
    for total in (
        parts.part_self + parts.part_others + parts.part_sink,
        parts.local + parts.diffusion + parts.part_sink,
    ):
        torch.testing.assert_close(total, output, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parts.leak, P[:, sorted(sinks)].sum(-1), rtol=1e-12, atol=1e-15)


def test_without_sinks_equal_values_do_not_diffuse():
    P = kernel(3)
    parts = attention_parts(P, torch.ones(9, 2, dtype=torch.float64), [])
    assert parts.diffusion.abs().max() < 1e-15
    torch.testing.assert_close(parts.local, torch.ones(9, 2, dtype=torch.float64))


def test_values_of_a_sink_are_a_leak():
    """A sink whose value is zero takes mass and gives nothing: local is (1 − κ)v."""
    P, v = kernel(4), torch.ones(9, 1, dtype=torch.float64)
    v[0] = 0
    parts = attention_parts(P, v, [0])
    torch.testing.assert_close((P @ v)[1:, 0], 1 - P[1:, 0])
    torch.testing.assert_close(parts.local[1:, 0], 1 - parts.leak[1:])
    assert not parts.part_sink.any()


def test_attention_parts_with_heads_and_batch():
    P = torch.stack([kernel(s) for s in range(6)]).view(2, 3, 9, 9)
    v = tokens(2, count=6).view(2, 3, 9, 5)
    parts = attention_parts(P, v, [0])
    one = attention_parts(P[1, 2], v[1, 2], [0])
    torch.testing.assert_close(parts.part_others[1, 2], one.part_others)


def test_attention_parts_refuse_what_is_no_kernel():
    v = tokens(0)[0]
    with pytest.raises(InvalidInputError, match="square"):
        attention_parts(kernel(0)[:5], v, [])
    with pytest.raises(InvalidInputError, match="sum"):
        attention_parts(0.9 * kernel(0), v, [])
    with pytest.raises(InvalidInputError, match="sinks"):
        attention_parts(kernel(0), v, [9])
    with pytest.raises(InvalidInputError, match="values"):
        attention_parts(kernel(0), v[:4], [])


def test_periodic_gaussian_attention_damps_a_wave_by_its_closed_form():
    """exp(−s²k²/2) − 1 = −.0176084 at s = .03, k = 2π."""
    n, s = 512, 0.03
    x = torch.arange(n, dtype=torch.float64) / n
    apart = (x[:, None] - x[None] + 0.5) % 1 - 0.5
    P = torch.softmax(-(apart**2) / (2 * s**2), -1)
    wave = torch.cos(2 * torch.pi * x)[:, None]
    parts = attention_parts(P, wave, [])
    rate = (parts.diffusion * wave).sum() / wave.square().sum()
    assert rate.item() == pytest.approx(-0.0176084, abs=5e-8)
    moments = advection_diffusion(P, x)
    assert moments.diffusion[n // 2].item() == pytest.approx(s**2 / 2, rel=1e-9)
    assert moments.advection[n // 2].item() == pytest.approx(0, abs=1e-12)


@given(st.integers(0, 10**6), st.floats(0.05, 3))
def test_moments_reproduce_attention_on_quadratics(seed, dt):
    P, x = kernel(seed), torch.arange(9, dtype=torch.float64)
    a, b, c = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = a * x**2 + b * x + c
    moments = advection_diffusion(P, x, dt=dt)
    got = moments.advection * (2 * a * x + b) + moments.diffusion * (2 * a)
    torch.testing.assert_close(got, (P @ u - u) / dt, rtol=1e-10, atol=1e-10)


def test_a_sink_does_not_move_the_text():
    """All mass on a far sink: no drift and no diffusion once it is left out."""
    P = torch.eye(9, dtype=torch.float64) * 0.5
    P[:, 0] += 0.5
    with_sink = advection_diffusion(P, torch.arange(9.0).double())
    without = advection_diffusion(P, torch.arange(9.0).double(), sinks=[0])
    assert with_sink.advection[8].item() == pytest.approx(-4)
    assert not without.advection.any()
    assert not without.diffusion.any()


# Spread and cosines


@given(st.integers(0, 10**6))
def test_spread_shares_sum_to_the_change_of_the_spread(seed):
    x, a, b = tokens(seed, count=3)
    balance = spread_balance(x, [a, b])
    torch.testing.assert_close(
        balance.shares.sum(0), spread(x + a + b) - spread(x), rtol=1e-12, atol=1e-12
    )
    assert balance.spread.item() == pytest.approx(spread(x).item(), rel=1e-13)


def test_averaging_contracts_and_a_common_shift_does_nothing():
    x = tokens(5)[0]
    toward_mean = 0.3 * (x.mean(0) - x)
    balance = spread_balance(x, [toward_mean, torch.ones_like(x)])
    assert balance.shares[0].item() == pytest.approx((0.7**2 - 1) * spread(x).item(), rel=1e-12)
    assert balance.shares[1].item() == pytest.approx(0, abs=1e-12)


def test_cosine_changes_are_those_of_each_part_alone():
    x, a, b = tokens(6, count=3)

    def mean_cosine(y):
        unit = torch.nn.functional.normalize(y, dim=-1)
        C = unit @ unit.T
        return (C.sum() - C.trace()) / (len(y) * (len(y) - 1))

    balance = spread_balance(x, [a, b])
    assert balance.cosine.item() == pytest.approx(mean_cosine(x).item(), rel=1e-12)
    for part, change in zip((a, b), balance.cosine_changes, strict=True):
        want = mean_cosine(x + part) - mean_cosine(x)
        assert change.item() == pytest.approx(want.item(), rel=1e-10)


def test_collapse_of_known_clouds():
    same = torch.tensor([[3.0, 4.0]], dtype=torch.float64).repeat(6, 1)
    gone = collapse(same)
    assert gone.mean_cosine.item() == pytest.approx(1)
    assert gone.centred_share.item() == pytest.approx(0, abs=1e-12)
    assert gone.effective_rank.item() == pytest.approx(1)
    # corners of a cross-polytope: unit directions without mean, all axes alike
    corners = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    open_ = collapse(corners * torch.arange(1, 9)[:, None])
    assert open_.effective_rank.item() == pytest.approx(4)
    assert open_.mean_cosine.item() == pytest.approx(-1 / 7)
    assert collapse(corners).centred_share.item() == pytest.approx(1)


def test_effective_rank_is_of_centred_directions():
    """A common offset hides the directions from an uncentred rank, not from ours."""
    corners = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    shifted = torch.cat([corners, 1000 * torch.ones(8, 1, dtype=torch.float64)], 1)
    assert collapse(shifted).mean_cosine.item() > 0.999
    assert collapse(shifted).effective_rank.item() == pytest.approx(4, abs=1e-3)


def test_collapse_needs_two_tokens_and_directions():
    with pytest.raises(InvalidInputError, match="two tokens"):
        collapse(torch.ones(1, 3))
    with pytest.raises(InvalidInputError, match="zero"):
        collapse(torch.zeros(3, 3))
    with pytest.raises(InvalidInputError, match="two tokens"):
        spread_balance(torch.ones(1, 3), [torch.ones(1, 3)])


def test_collapse_of_a_batch_is_that_of_its_clouds():
    x = tokens(7, count=4)
    batch = collapse(x)
    for j in range(4):
        assert batch.effective_rank[j].item() == pytest.approx(collapse(x[j]).effective_rank.item())
        assert np.isclose(batch.mean_cosine[j], collapse(x[j]).mean_cosine)


def test_sizes_that_leave_the_dtype_are_refused_or_do_not_matter():
    x = tokens(8)[0].float()
    for scale in (1e-30, 1e25):
        torch.testing.assert_close(
            collapse(scale * x).mean_cosine, collapse(x).mean_cosine, rtol=1e-4, atol=1e-6
        )
        assert collapse(scale * x).centred_share == pytest.approx(
            collapse(x).centred_share.item(), rel=1e-4
        )
    for balance in (energy_balance, spread_balance):
        with pytest.raises(InvalidInputError):
            balance(1e25 * x, [1e25 * x])
    for sinks in (None, ["a"]):
        with pytest.raises(InvalidInputError, match="sinks"):
            attention_parts(kernel(0), tokens(0)[0], sinks)
