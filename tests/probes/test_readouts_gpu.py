"""Readouts of half-precision models on a CUDA device; run by hand with ``pytest -m gpu``."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests import networks as models
from torch.testing import assert_close

from flowscope import Tap
from flowscope.probes import DepthProbe, Rows, TransplantProbe, positions_readout, spaced_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@torch.no_grad()
def _read(model, batch, probe_of, begun):
    """What a probe keeps of one pass, and the hidden states of the pass."""
    states = []
    with Tap(model) as tap:
        tap.on_block(lambda e: states.extend([e.hidden_in] * (e.site.index == 0) + [e.hidden_out]))
        model(**batch)
        tail = tap.anatomy.tail
    probe = probe_of(tail)
    probe.begin(begun)
    with Tap(model) as tap:
        tap.on_block(probe.update)
        model(**batch)
    probe.end()
    return probe.arrays(), states, tail


def _on_gpu(name, dtype):
    model, batch = models.READABLE[name]()
    return model.to("cuda", dtype), {k: v.to("cuda") for k, v in batch.items()}


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_exact_readout_is_that_of_the_widened_model(name, dtype):
    """The same statistics as float32 weights give of the same states."""
    model, batch = _on_gpu(name, dtype)
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    rows = Rows.of_mask(np.arange(models.ROWS), mask)
    found, states, _ = _read(model, batch, lambda t: DepthProbe(positions_readout(t)), rows)
    wide = copy.deepcopy(model).float()
    with torch.no_grad(), Tap(wide) as tap:
        tap.on_block(lambda e: None)
        wide(**batch)
        tail = tap.anatomy.tail
        z = [tail(state.float()).flatten(0, 1).double() for state in states]
    p = [torch.softmax(x, -1) for x in z]
    moved = torch.stack([0.5 * (a - b).abs().sum(-1) for a, b in pairwise(p)], 1)
    assert_close(torch.from_numpy(found["total_variation"]), moved.cpu(), rtol=1e-3, atol=1e-6)
    entropy = torch.stack([torch.special.entr(x).sum(-1) for x in p], 1)
    assert_close(torch.from_numpy(found["entropy"]), entropy.cpu(), rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_own_operands_give_the_models_own_output_at_the_last_layer():
    model, batch = _on_gpu("llama", torch.bfloat16)
    with Tap(model) as tap:
        states = []
        tap.on_block(lambda e: states.append(e.hidden_out))
        logits = model(**batch).logits
        readout = positions_readout(tap.anatomy.tail, "model")
    z = readout(states[-1].flatten(0, 1).float())
    assert z.dtype == torch.float32
    assert_close(z.to(torch.bfloat16), logits.flatten(0, 1), rtol=0.01, atol=0.01)
    exact = positions_readout(tap.anatomy.tail)(states[-1].flatten(0, 1).float())
    assert not torch.equal(exact, z)
    assert_close(exact, z, rtol=0.05, atol=0.05)


def test_transplants_of_all_prompts_at_once_are_those_of_the_cpu():
    model, batch = models.READABLE["llama"]()
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    rows = spaced_rows(np.array([5, 2]), mask, tokens=7)
    found = {}
    for device in ("cpu", "cuda"):
        moved = {k: v.to(device) for k, v in batch.items()}
        found[device] = _read(
            model.to(device), moved, lambda t: TransplantProbe(positions_readout(t), seed=3), rows
        )[0]
    for name, values in found["cpu"].items():
        np.testing.assert_allclose(found["cuda"][name], values, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("operands", ["exact", "model"])
@torch.no_grad()
def test_transplants_take_the_logits_that_the_depth_probe_has_read(operands):
    model, batch = _on_gpu("llama", torch.bfloat16)
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    prompts = np.array([5, 2])
    rows = spaced_rows(prompts, mask, tokens=7)
    with Tap(model) as tap:
        tap.on_block(lambda event: None)
        model(**batch)
        readout = positions_readout(tap.anatomy.tail, operands)
    depth, calls = DepthProbe(readout), []
    counted = lambda *given: (calls.append(None), readout(*given))[1]  # noqa: E731
    alone, beside = TransplantProbe(readout, seed=3), TransplantProbe(counted, seed=3)
    depth.begin(Rows.of_mask(prompts, mask))
    alone.begin(rows)
    beside.begin(rows, depth)
    with Tap(model) as tap:
        for probe in (depth, alone, beside):
            tap.on_block(probe.update)
        model(**batch)
    for probe in (depth, alone, beside):
        probe.end()
    # Layer 0 of the first batch: its meter has no second buffer before the first step.
    assert not calls
    for name, values in alone.arrays().items():
        np.testing.assert_allclose(beside.arrays()[name], values, rtol=2e-3, atol=1e-6)
