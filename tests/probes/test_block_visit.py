"""Blocks run alone: their derivatives against differences of the model, and bounds against SVDs."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.pde import jacobian_bounds
from flowscope.probes import model_anatomy
from flowscope.probes.block_visit import block_visits, without_cache

SINGLE = ("llama", "gemma3")  # their norms are single precision in any model


def wide(name):
    model, batch = models.READABLE[name]()
    model = model.double()
    batch = {k: x.double() if x.is_floating_point() else x for k, x in batch.items()}
    return model, without_cache(model, batch)


def state_in_the_model(model, inputs, path, call, H):
    """What leaves a call of a block when the model gives it another state."""
    module, seen = model.get_submodule(path), []

    def swap(module, args, kwargs):
        seen.append(None)
        if len(seen) != call + 1:
            return None
        if args:
            return (H, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": H}

    def keep(module, args, output):
        if len(seen) == call + 1:
            kept.append(output if isinstance(output, torch.Tensor) else output[0])

    kept = []
    handles = [module.register_forward_pre_hook(swap, with_kwargs=True)]
    handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    return kept[0]


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3", "bert", "albert", "vit", "dit"])
def test_derivatives_are_those_of_the_block_in_the_model(name):
    model, inputs = wide(name)
    chain = model_anatomy(model, inputs).depth
    visits = block_visits(model, inputs)
    assert [visit.path for visit in visits] == [block.path for block in chain.blocks]
    layer = len(chain) - 1
    visit = visits[layer]
    call = [block.path for block in chain.blocks[:layer]].count(visit.path)
    x = torch.randn(visit.H0.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    step, rounding = (1e-3, 2e-3) if name in SINGLE else (1e-5, 1e-6)
    there, back = (
        state_in_the_model(model, inputs, visit.path, call, visit.H0 + sign * step * x)
        for sign in (1, -1)
    )
    image = torch.func.jvp(visit.write, (visit.H0,), (x,))[1]
    difference = (there - back) / (2 * step) - x
    assert float((image - difference).norm() / difference.norm()) < rounding


def test_bounds_of_a_live_block_are_those_of_its_dense_jacobian():
    model, inputs = wide("gpt2")
    inputs = {"input_ids": inputs["input_ids"][:1, :4], "use_cache": False}
    visit = block_visits(model, inputs)[1]
    n = visit.H0.numel()
    J = torch.autograd.functional.jacobian(visit.write, visit.H0).reshape(n, n).numpy()
    lengths = visit.H0.norm(dim=-1, keepdim=True).expand_as(visit.H0).reshape(n).numpy()
    J = J * lengths[None, :] / lengths[:, None]
    found = jacobian_bounds(visit.write, visit.H0, products=n, probes=64)
    assert found.sigma_max.value == pytest.approx(np.linalg.norm(J, 2), rel=1e-6)
    rates = np.linalg.eigvalsh((J + J.T) / 2)
    assert found.log_norm.value == pytest.approx(rates[-1], rel=1e-5)
    assert found.least.value == pytest.approx(rates[0], rel=1e-5)
    assert abs(found.mean_gain.value - np.linalg.norm(J) / np.sqrt(n)) < (
        4 * found.mean_gain.residual
    )


def test_what_cannot_be_derived_is_refused():
    model, batch = models.llama()
    with pytest.raises(InvalidInputError, match="bfloat16 lose most of their digits"):
        block_visits(model.bfloat16(), without_cache(model, batch))
    model, batch = models.llama()
    with pytest.raises(UnsupportedModelError, match="cache"):
        block_visits(model, {**batch, "use_cache": True})
    with pytest.raises(InvalidInputError, match="training"):
        block_visits(model.train(), batch)
    model, batch = models.READABLE["sd3"]()
    with pytest.raises(UnsupportedModelError, match="streams"):
        block_visits(model, batch)
