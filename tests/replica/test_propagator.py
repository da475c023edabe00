"""The propagator against the Jacobian of the block and differences of the real coupled block."""

import pytest
import torch
from tests.replica.blocks import TOKENS, WIDTH, coupled_step, difference, prenorm_block, state

from flowscope.errors import InvalidInputError
from flowscope.replica import Propagator, ReplicaBlock, kernel_derivative, routing_factor

COUPLINGS = [0.0, 0.3, 1.0]


def directions(count=4, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def plain_step(block, H):
    q, k, v = block.project(H)
    return block.finish(H, torch.softmax(block.scale * (q @ k.mT), -1) @ v)


def test_uncoupled_it_is_the_jacobian_of_the_block():
    block, H = prenorm_block(), state()
    jacobian = torch.autograd.functional.jacobian(lambda X: plain_step(block, X), H)
    size = H.numel()
    basis = torch.eye(size, dtype=H.dtype).reshape(size, *H.shape)
    found = Propagator(block, H).apply(basis, 0.0).reshape(size, size).T
    torch.testing.assert_close(found, jacobian.reshape(size, size), atol=1e-13, rtol=0)


@pytest.mark.parametrize("g", COUPLINGS)
def test_it_is_the_difference_quotient_of_the_real_coupled_block(g):
    """Relative to ‖K_g h − h‖: the identity must not hide an error."""
    block, H = prenorm_block(), state()
    for h in directions():
        expected = difference(block, H, h, g)
        found = Propagator(block, H).apply(h, g)
        assert float((found - expected).norm() / (expected - h).norm()) < 1e-7


def test_a_mask_of_the_block_is_kept():
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    block, H = prenorm_block(mask=mask), state()
    h = directions()[0]
    expected = difference(block, H, h, 0.3)
    found = Propagator(block, H).apply(h, 0.3)
    assert float((found - expected).norm() / (expected - h).norm()) < 1e-7
    free = Propagator(prenorm_block(), H).apply(h, 0.3)
    assert float((found - free).norm()) > 1e-2


@pytest.mark.parametrize("g", COUPLINGS)
def test_channels_sum_to_the_propagator(g):
    propagator = Propagator(prenorm_block(), state())
    h = directions()
    channels = propagator.channels(h, g)
    parts = channels.direct + channels.routing + channels.query + channels.key
    torch.testing.assert_close(channels.total, parts, atol=1e-14, rtol=0)
    torch.testing.assert_close(propagator.apply(h, g), parts, atol=1e-13, rtol=0)


def test_at_full_coupling_only_the_query_channel_is_left():
    propagator, h = Propagator(prenorm_block(), state()), directions()
    free, full = propagator.channels(h, 0.0), propagator.channels(h, 1.0)
    assert not bool(full.routing.any())
    assert not bool(full.key.any())
    assert torch.equal(full.query, free.query)
    assert float(full.query.norm()) > 0.1 * float(free.routing.norm())
    assert torch.equal(full.direct, free.direct)


@pytest.mark.parametrize("g", [0.3, 0.8])
def test_values_and_keys_are_gated_by_the_same_factor(g):
    propagator, h = Propagator(prenorm_block(), state()), directions()
    free, gated = propagator.channels(h, 0.0), propagator.channels(h, g)
    rho = routing_factor(g)
    torch.testing.assert_close(gated.routing, rho * free.routing, atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(gated.key, rho * free.key, atol=1e-14, rtol=1e-12)


def test_the_channels_are_the_ones_of_the_formula():
    """Each written out for a block whose rest is linear: finish = H + o, one head."""
    generator = torch.Generator().manual_seed(3)
    Wq, Wk, Wv = torch.randn(3, WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    block = ReplicaBlock(
        lambda H: tuple((H @ W.T)[..., None, :, :] for W in (Wq, Wk, Wv)),
        lambda H, o: H + o[..., 0, :, :],
        0.3,
    )
    H, h, g = state(), directions()[0], 0.4
    A = torch.softmax(0.3 * H @ Wq.T @ Wk @ H.T, -1)
    channels = Propagator(block, H).channels(h, g)
    rho, V = routing_factor(g), H @ Wv.T
    assert torch.equal(channels.direct, h)
    expected = rho * A @ h @ Wv.T
    torch.testing.assert_close(channels.routing, expected, atol=1e-13, rtol=0)
    expected = kernel_derivative(A, 0.3 * h @ Wq.T @ Wk @ H.T) @ V
    torch.testing.assert_close(channels.query, expected, atol=1e-13, rtol=0)
    expected = rho * kernel_derivative(A, 0.3 * H @ Wq.T @ Wk @ h.T) @ V
    torch.testing.assert_close(channels.key, expected, atol=1e-13, rtol=0)


def test_several_directions_and_states_are_those_taken_one_by_one():
    block, states = prenorm_block(), state(batch=(3,))
    h = directions(5 * 3).reshape(5, 3, TOKENS, WIDTH)
    for chunk in (None, 2):
        found = Propagator(block, states, chunk=chunk).apply(h, 0.3)
        for i in range(5):
            for j in range(3):
                one = Propagator(block, states[j]).apply(h[i, j], 0.3)
                torch.testing.assert_close(found[i, j], one, atol=1e-13, rtol=0)


def test_the_next_state_is_the_image_of_the_symmetric_state():
    block, H = prenorm_block(), state()
    expected = coupled_step(block, H, H, 0.6)[0]
    torch.testing.assert_close(Propagator(block, H).next_state, expected, atol=1e-13, rtol=0)


def test_wrong_shapes_and_strengths_are_refused():
    propagator = Propagator(prenorm_block(), state())
    with pytest.raises(InvalidInputError, match="shape"):
        propagator.apply(torch.zeros(TOKENS + 1, WIDTH, dtype=torch.float64), 0.3)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        propagator.channels(directions(), 1.5)
    with pytest.raises(InvalidInputError, match="finite"):
        Propagator(prenorm_block(), state() / 0.0)
