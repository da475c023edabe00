"""Laws of the coupled attention of 004 eq 19: neutral at g = 0, symmetric, normalised."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.replica import coupled_attention, coupling_weights, pattern_factor, routing_factor

strengths = st.floats(0.0, 1.0)
SCALE = 0.6


def tensors(seed, pairs=2, heads=3, tokens=5, width=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 2 * pairs, heads, tokens, width)
    return torch.randn(*shape, generator=generator, dtype=dtype).unbind(0)


def plain(q, k, v):
    return torch.softmax(SCALE * (q @ k.mT), -1) @ v


@given(strengths)
def test_weights_share_one_and_their_difference_is_the_routing_factor(g):
    own, other = coupling_weights(g)
    assert own + other == pytest.approx(1.0, abs=1e-15)
    assert routing_factor(g) == pytest.approx(own - other, abs=1e-15)
    assert pattern_factor(g) == own


def test_factors_at_the_ends():
    assert (routing_factor(0.0), pattern_factor(0.0)) == (1.0, 1.0)
    assert (routing_factor(1.0), pattern_factor(1.0)) == (0.0, 0.5)
    assert coupling_weights(0.25) == (0.8, 0.2)


@pytest.mark.parametrize("g", [-1e-9, 1.0 + 1e-9, math.nan, math.inf])
@pytest.mark.parametrize("function", [coupling_weights, routing_factor, pattern_factor])
def test_a_strength_outside_the_unit_interval_is_refused(function, g):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        function(g)


def test_no_coupling_is_bit_identical_to_plain_attention():
    q, k, v = tensors(0)
    assert torch.equal(coupled_attention(q, k, v, 0.0, scale=SCALE), plain(q, k, v))


@pytest.mark.parametrize("g", [0.3, 1.0])
def test_the_mixture_is_the_published_one(g):
    """Each half written out by hand, pair by pair."""
    q, k, v = tensors(1)
    out = coupled_attention(q, k, v, g, scale=SCALE)
    for a, b in [(0, 2), (1, 3), (2, 0), (3, 1)]:
        own, other = plain(q[a], k[a], v[a]), plain(q[a], k[b], v[b])
        torch.testing.assert_close(out[a], (own + g * other) / (1 + g), atol=1e-14, rtol=0)


@given(st.integers(0, 200), strengths)
def test_exchange_of_the_replicas_exchanges_the_outputs(seed, g):
    q, k, v = tensors(seed)
    out = coupled_attention(q, k, v, g, scale=SCALE)
    swapped = coupled_attention(*(x.roll(2, 0) for x in (q, k, v)), g, scale=SCALE)
    assert torch.equal(swapped, out.roll(2, 0))


@given(st.integers(0, 200), strengths)
def test_rows_still_sum_to_one(seed, g):
    q, k, v = tensors(seed)
    out = coupled_attention(q, k, torch.ones_like(v), g, scale=SCALE)
    torch.testing.assert_close(out, torch.ones_like(v), atol=1e-13, rtol=0)


@given(st.integers(0, 200), strengths)
def test_equal_replicas_feel_no_coupling(seed, g):
    q, k, v = (torch.cat([x[:2], x[:2]]) for x in tensors(seed))
    out = coupled_attention(q, k, v, g, scale=SCALE)
    torch.testing.assert_close(out, plain(q, k, v), atol=1e-13, rtol=0)


@pytest.mark.parametrize("g", [0.0, 0.4])
def test_masked_keys_of_either_replica_are_not_seen(g):
    """A key that A may not see and one that B may not: changing them changes nothing."""
    q, k, v = tensors(3, pairs=1)
    seen = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    seen[0, ..., 1], seen[1, ..., 3] = False, False
    out = coupled_attention(q, k, v, g, scale=SCALE, mask=seen)
    changed = [x.clone() for x in (k, v)]
    for x in changed:
        x[0, :, 1], x[1, :, 3] = 7.0, -5.0
    again = coupled_attention(q, *changed, g, scale=SCALE, mask=seen)
    torch.testing.assert_close(again, out, atol=1e-14, rtol=0)
    additive = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -torch.inf)
    assert torch.equal(coupled_attention(q, k, v, g, scale=SCALE, mask=additive), out)


def test_half_precision_is_widened_inside():
    q, k, v = (x.bfloat16() for x in tensors(4))
    out = coupled_attention(q, k, v, 0.5, scale=SCALE)
    wide = coupled_attention(q.float(), k.float(), v.float(), 0.5, scale=SCALE)
    assert torch.equal(out, wide.bfloat16())


def test_an_odd_batch_has_no_pairs():
    q, k, v = (x[:3] for x in tensors(5))
    with pytest.raises(InvalidInputError, match="even"):
        coupled_attention(q, k, v, 0.5, scale=SCALE)


def test_keys_and_values_that_do_not_fit_are_refused():
    q, k, v = tensors(6)
    with pytest.raises(InvalidInputError, match="same heads"):
        coupled_attention(q, k[:, :1], v[:, :1], 0.5, scale=SCALE)
    with pytest.raises(InvalidInputError, match="mask"):
        coupled_attention(q, k, v, 0.5, scale=SCALE, mask=torch.zeros(3, 1, 5, 5))
