"""Replicas on a CUDA device: the same numbers as on the CPU. Run by hand; see CONTRIBUTING.md."""

import diffusers
import pytest
import torch
from tests.models.synthetic_pipelines import dit, pooled

import flowscope as fs
from flowscope.levers import couple
from flowscope.probes import live_block
from flowscope.replica import Propagator, stacked_gram

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SMALL = {"pairs": 4, "steps": 6, "interventions": 6, "couplings": (0.5,), "labels": (1,), "band": 1}


def inputs(device, dtype, rows=4):
    generator = torch.Generator().manual_seed(0)
    return {
        "hidden_states": torch.randn(rows, 1, 8, 8, generator=generator).to(device, dtype),
        "timestep": torch.full((rows,), 300, device=device),
        "class_labels": torch.ones(rows, dtype=torch.long, device=device),
    }


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_a_coupled_pass_is_that_of_the_cpu(dtype, bound):
    model = dit()
    with torch.no_grad(), couple(model, 0.5):
        wanted = model(**inputs("cpu", torch.float32)).sample
    model = model.to("cuda", dtype)
    with torch.no_grad(), couple(model, 0.5):
        found = model(**inputs("cuda", dtype)).sample
    with torch.no_grad():
        apart = model(**inputs("cuda", dtype)).sample
    error = (found.float().cpu() - wanted).norm() / wanted.norm()
    assert error < bound
    assert (apart.float().cpu() - wanted).norm() / wanted.norm() > 2 * error


def test_no_coupling_is_bitwise_neutral_on_the_device():
    model = dit().cuda().to(torch.bfloat16)
    with torch.no_grad():
        plain = model(**inputs("cuda", torch.bfloat16)).sample
        with couple(model, lambda step: [0.0] * 2):
            assert torch.equal(model(**inputs("cuda", torch.bfloat16)).sample, plain)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-12), (torch.bfloat16, 1e-6)])
def test_gram_matrices_are_those_of_the_cpu(dtype, bound):
    first, later = torch.randn(2, 16, 70001, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = stacked_gram(first.cuda(), later.cuda())
    assert found.is_cuda
    wanted = stacked_gram(first.double(), later.double())
    assert (found.cpu() - wanted).abs().max() < bound * wanted.diagonal().max()


def test_channels_are_those_of_the_cpu():
    model = dit().double()
    told = []
    for device in ("cpu", "cuda"):
        live = live_block(model.to(device), inputs(device, torch.float64, rows=1), 1)
        h = torch.randn(live.H0.shape, generator=torch.Generator().manual_seed(2)).to(live.H0)
        told.append(Propagator(live.block, live.H0).channels(h[None], 0.3).total.cpu())
    # diffusers embeds the time in float32, whatever the weights: 1e-7 of it differs by device
    assert (told[1] - told[0]).norm() < 1e-5 * told[0].norm()


def test_a_run_has_the_tables_of_the_cpu(tmp_path):
    tables = []
    for device in ("cpu", "cuda"):
        model, scheduler = dit().to(device), diffusers.DDIMScheduler()
        found = fs.sync(model, scheduler=scheduler, encoder=pooled, out=tmp_path / device, **SMALL)
        tables.append(found.run.read_table("agreement")["value"].to_numpy())
    torch.testing.assert_close(*map(torch.tensor, tables), rtol=1e-2, atol=1e-3)
