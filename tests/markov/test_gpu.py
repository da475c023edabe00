"""The Markov geometry on a CUDA device: the numbers of the CPU, and tensors that stay there."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope import markov
from flowscope.levers import geometry_attention
from flowscope.probes import GeometryProbe
from flowscope.tap import Tap

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def scores(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [16, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantities_of_heads_do_not_depend_on_the_device(n, dtype):
    z = 2 * scores(6, n, n, dtype=dtype)
    here = markov.chain_quantities(z) | markov.sector_quantities(z)
    there = markov.chain_quantities(z.cuda()) | markov.sector_quantities(z.cuda())
    for name, value in here.items():
        assert there[name].is_cuda, name
        torch.testing.assert_close(there[name].cpu(), value, rtol=3e-3, atol=1e-5, msg=name)


def test_laws_currents_and_maps_stay_on_the_device():
    W = scores(3, 40, 40)
    P = markov.attention_kernel(W.cuda())
    law = markov.stationary_distribution(P)
    own = markov.attention_kernel(W)
    expected = markov.stationary_distribution(own)
    torch.testing.assert_close(law.cpu(), expected, rtol=1e-10, atol=0)
    flow = markov.currents(P, law)
    assert flow.is_cuda
    torch.testing.assert_close(flow.cpu(), markov.currents(own, expected), rtol=1e-8, atol=1e-14)
    L = markov.magnetic_laplacian(W.cuda(), 1.0, 0.05)
    assert L.is_cuda
    assert float(torch.linalg.eigvalsh(L).min()) > -1e-12
    flat = markov.diffusion_map(W.cuda(), coordinates=2)
    torch.testing.assert_close(
        flat.eigenvalues.cpu(), markov.diffusion_map(W, coordinates=2).eigenvalues
    )


def test_a_tiled_map_on_the_device():
    q, k = scores(700, 8), scores(700, 8).flip(0)
    here = markov.diffusion_map(markov.FactoredScores(q=q, k=k), 0.1, coordinates=4)
    there = markov.diffusion_map(markov.FactoredScores(q=q.cuda(), k=k.cuda()), 0.1, coordinates=4)
    torch.testing.assert_close(there.eigenvalues.cpu(), here.eigenvalues, rtol=1e-8, atol=1e-12)


def read(model, batch, rows):
    with torch.no_grad(), Tap(model) as tap:
        probes = []

        def listen(call):
            if not probes:
                probes.append(GeometryProbe(len(tap.anatomy.depth)))
                probes[0].begin(np.arange(rows), torch.ones(rows, 1))
            probes[0].update(call)

        tap.on_attention(listen)
        model(**batch)
    probes[0].end()
    return probes[0].arrays()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_on_the_device_is_read_there(dtype):
    model, batch = models.llama()
    rows = len(batch["input_ids"])
    here = read(model, batch, rows)
    there = read(model.cuda().to(dtype), {n: x.cuda() for n, x in batch.items()}, rows)
    close = 1e-3 if dtype == torch.float32 else 0.1
    for name in ("entropy_production", "effective_keys", "gap"):
        np.testing.assert_allclose(
            there[f"geometry_{name}"], here[f"geometry_{name}"], rtol=close, atol=close * 0.1
        )


def test_a_dial_turns_on_the_device():
    model, batch = models.llama()
    batch = {n: x.cuda() for n, x in batch.items()}
    model = model.cuda()
    with torch.no_grad():
        plain = model(**batch).logits
        with geometry_attention(model, flux=0.0) as lever:
            turned = model(**batch).logits
        with geometry_attention(model, flux=0.0, noise=1) as beside:
            model(**batch)
        again = model(**batch).logits
    assert turned.is_cuda
    assert not torch.allclose(turned, plain)
    assert torch.equal(again, plain)
    first = [table.query("layer == 0")["norm"].to_numpy() for table in (lever.table, beside.table)]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-4)
