"""K_g of the bundled trained transformer against differences of its own coupled blocks."""

import pytest
import torch

from flowscope.levers import couple
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load
from flowscope.nets import bundled_path
from flowscope.probes.block_callable import live_block
from flowscope.replica import Propagator

COUPLINGS = (0.0, 0.3, 1.0)
STEPS, REACHED = 10, 5
CLASS = 3


@pytest.fixture(scope="module")
def trained():
    """The model in float64 and what it is given half of the way from noise to an image."""
    path = bundled_path("image")
    loaded = load(path, dtype=torch.float64)
    denoiser = denoiser_of(path, loaded)
    clock = denoiser.clock(STEPS)
    x = torch.randn(1, *denoiser.shape, generator=torch.Generator().manual_seed(5)).double()
    labels = torch.tensor([CLASS])
    with torch.no_grad():
        for step in range(REACHED):
            found = denoiser.noise(x, clock.times[step], labels)
            x = clock.step(found, step, x, eta=0.0, noise=None)
    time = torch.tensor([clock.times[REACHED]])
    return loaded.model, {"hidden_states": x, "timestep": time, "class_labels": labels}


def quotient(model, batch, path, H, h, g, step=1e-4):
    """Central difference of (A − B)/√2 behind a block, while the model runs coupled by the lever.

    The block is given H ± t h/√2 in the place of what reached it.
    """
    pair = {name: torch.cat([x, x]) for name, x in batch.items()}
    block, images, given = model.get_submodule(path), [], []

    def before(module, args):
        return (given[-1], *args[1:])

    def after(module, args, output):
        A, B = output.chunk(2)
        images.append((A - B) / 2**0.5)

    with torch.no_grad(), couple(model, g) as lever:
        model(**pair)  # the lever finds the blocks in a pass that nobody touches
        first = block.register_forward_pre_hook(before)
        second = block.register_forward_hook(after)
        try:
            for t in (step, -step):
                given.append(torch.cat([H + t * h / 2**0.5, H - t * h / 2**0.5]))
                model(**pair)
        finally:
            first.remove()
            second.remove()
        coupled = {change.site.index for change in lever.summary()}
    # Nothing is touched at g = 0.
    assert coupled == set(range(len(model.transformer_blocks)) if g else ())
    return (images[0] - images[1]) / (2 * step)


@pytest.mark.parametrize("layer", [7, 15])
def test_propagator_is_the_difference_quotient_of_the_trained_coupled_block(trained, layer):
    """To 1e-5 of ‖K_g h − h‖, for no coupling, some, and all of it; the lever is the user's."""
    model, batch = trained
    live = live_block(model, batch, layer)
    propagator = Propagator(live.block, live.H0)
    h = torch.randn(live.H0.shape, generator=torch.Generator().manual_seed(3)).double()
    h *= live.H0.std()
    images = []
    for g in COUPLINGS:
        expected = quotient(model, batch, live.path, live.H0, h, g)
        found = propagator.apply(h, g)
        assert float((found - expected).norm() / (found - h).norm()) <= 1e-5
        images.append(found)
    # The coupling does something here, far beyond the bound.
    apart = float((images[0] - images[2]).norm() / (images[0] - h).norm())
    assert apart > 1e-2
