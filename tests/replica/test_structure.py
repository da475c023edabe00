"""What 004 assumes about a block, measured where the answer is known."""

import pytest
import torch
from tests.replica.blocks import (
    SIZE,
    TOKENS,
    WIDTH,
    dense,
    of_matrix,
    orthonormal,
    prenorm_block,
    random_matrix,
    state,
)

from flowscope.errors import InvalidInputError
from flowscope.replica import (
    Propagator,
    ReplicaBlock,
    modal_gains,
    modal_product,
    structural_assumptions,
)


def averaging_block(mlp):
    """Uniform attention over the values themselves, MLP factor 1 + mlp per coordinate."""

    def project(H):
        zero = torch.zeros_like(H)[..., None, :, :] + 0 * H[..., None, :, :]
        return zero, zero, H[..., None, :, :]

    return ReplicaBlock(project, lambda H, o: H + mlp * H + o[..., 0, :, :], 1.0)


def test_assumptions_of_an_averaging_block_are_known():
    """χ is 1 for the constant mode and 0 for a mode of mean zero; no pattern; MLP factor .5."""
    flat = torch.zeros(2, TOKENS, WIDTH, dtype=torch.float64)
    flat[0, :, 0] = TOKENS**-0.5
    flat[1, 0, 0], flat[1, 1, 0] = 0.5**0.5, -(0.5**0.5)
    found = structural_assumptions(Propagator(averaging_block(0.5), state()), flat, 0.3, band=1)
    torch.testing.assert_close(found.chi, torch.tensor([1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(found.mlp, torch.full((2,), 0.5, dtype=torch.float64))
    assert float(found.mlp_spread) < 1e-12
    assert float(found.chi_leading) == pytest.approx(1.0)
    assert float(found.chi_trailing) == pytest.approx(0.0, abs=1e-12)
    assert float(found.pattern_share[0]) < 1e-12


def test_an_mlp_that_tells_modes_apart_is_seen():
    modes = torch.zeros(2, TOKENS, WIDTH, dtype=torch.float64)
    modes[0, 0, 0] = modes[1, 0, 1] = 1.0
    slopes = torch.tensor([1.0, 3.0] + [0.0] * (WIDTH - 2), dtype=torch.float64)
    found = structural_assumptions(Propagator(averaging_block(slopes), state()), modes, 0.0)
    assert float(found.mlp_spread) == pytest.approx(0.5)  # (1, 3): sd 1, mean 2


def test_assumptions_come_from_the_channels():
    propagator, modes = Propagator(prenorm_block(), state()), orthonormal()
    found = structural_assumptions(propagator, modes, 0.4, band=2)
    free, gated = modal_gains(propagator, modes, 0.0), modal_gains(propagator, modes, 0.4)
    torch.testing.assert_close(found.chi, free.routing)
    torch.testing.assert_close(found.pi, gated.query + gated.key)
    torch.testing.assert_close(found.pattern_share, (found.pi / found.chi).abs())
    torch.testing.assert_close(found.mlp, free.direct - 1)
    torch.testing.assert_close(
        found.chi_difference, free.routing[:2].mean() - free.routing[2:].mean()
    )


def test_bands_must_not_overlap():
    propagator, modes = Propagator(prenorm_block(), state()), orthonormal()
    with pytest.raises(InvalidInputError, match="band"):
        structural_assumptions(propagator, modes, 0.4, band=3)


def layers(count=3, g_state=None):
    """Consecutive propagators of one step, each at the state the layer before it made."""
    H, found = state() if g_state is None else g_state, []
    for seed in range(count):
        found.append(Propagator(prenorm_block(seed), H))
        H = found[-1].next_state
    return found


@pytest.mark.parametrize("g", [0.0, 0.7])
def test_layer_product_against_the_composed_matrices(g):
    chain, modes = layers(), orthonormal()
    flat = modes.flatten(1)
    K = [dense(propagator, g) for propagator in chain]
    found = modal_product(chain, modes, g)
    product = torch.stack([torch.diagonal(flat @ k @ flat.T) for k in K]).prod(0)
    measured = torch.diagonal(flat @ K[2] @ K[1] @ K[0] @ flat.T)
    torch.testing.assert_close(found.product, product, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.measured, measured, atol=1e-12, rtol=0)
    expected = torch.log(measured / product)  # NaN where they differ in sign
    torch.testing.assert_close(found.log_ratio, expected, equal_nan=True)


def test_closure_is_exact_for_modes_that_layers_share():
    """Commuting layers with the modes as eigenvectors: the product of gains is the whole."""
    Q = torch.linalg.qr(random_matrix(3))[0]
    values = torch.linspace(0.5, 1.5, 2 * SIZE, dtype=torch.float64).reshape(2, SIZE)
    chain = [of_matrix(Q @ torch.diag(v) @ Q.T) for v in values]
    found = modal_product(chain, Q.T[:4].reshape(4, TOKENS, WIDTH), 0.5)
    torch.testing.assert_close(found.measured, (values[0] * values[1])[:4], atol=1e-12, rtol=0)
    torch.testing.assert_close(found.log_ratio, torch.zeros(4).double(), atol=1e-12, rtol=0)


def test_a_product_across_reverse_steps_is_refused():
    """E85: hidden states are made anew at each step, so their gains do not multiply."""
    first, second = layers(1)[0], layers(1, state(seed=9))[0]
    with pytest.raises(InvalidInputError, match="one step"):
        modal_product([first, second], orthonormal(), 0.3)
