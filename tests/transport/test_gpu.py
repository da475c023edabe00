"""Couplings on a CUDA device give what they give on a CPU, and stay there."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.transport import (
    PointCloud,
    prescribed,
    semi_relaxed,
    sinkhorn,
    sinkhorn_divergence,
    unbalanced,
)
from flowscope.transport.iterations import sinkhorn_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def causal_problem():
    cost = drawn(8, 8).masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), torch.inf)
    return cost, torch.ones(8).double(), torch.linspace(1.6, 0.4, 8, dtype=torch.float64)


SOLVERS = {
    "sinkhorn": lambda c: sinkhorn(c, epsilon=0.05, tolerance=1e-9),
    "small": lambda c: sinkhorn(c, relative_epsilon=1e-3, tolerance=1e-8),
    "unbalanced": lambda c: unbalanced(c, epsilon=0.05, relaxation=0.2, tolerance=1e-9),
    "semi_relaxed": lambda c: semi_relaxed(c, epsilon=0.05),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_coupling_on_the_device_is_the_one_on_the_cpu(name):
    cost = drawn(5, 40, 30)
    here, there = SOLVERS[name](cost), SOLVERS[name](cost.cuda())
    assert there.matrix.is_cuda
    assert_close(there.matrix.cpu(), here.matrix, rtol=0, atol=1e-7)
    assert_close(there.value.cpu(), here.value, rtol=1e-7, atol=1e-9)


def test_prescribed_columns_on_the_device():
    cost, a, b = causal_problem()
    here = prescribed(cost, a, b, epsilon=0.1, tolerance=1e-9)
    there = prescribed(cost.cuda(), a.cuda(), b.cuda(), epsilon=0.1, tolerance=1e-9)
    assert_close(there.matrix.cpu(), here.matrix, rtol=0, atol=1e-8)


def test_clouds_and_slopes_on_the_device():
    x, y = drawn(50, 3), drawn(40, 3, seed=1)
    found = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device).requires_grad_()
        coupling = sinkhorn(PointCloud(leaf, y.to(device)), epsilon=0.05, tolerance=1e-10)
        found.append(torch.autograd.grad(coupling.cost, leaf)[0].cpu())
    assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)
    here = sinkhorn_divergence(x, y, epsilon=0.05, tolerance=1e-9).value
    there = sinkhorn_divergence(x.cuda(), y.cuda(), epsilon=0.05, tolerance=1e-9).value
    assert_close(there.cpu(), here, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_on_the_device(dtype):
    cost = drawn(20, 20).to(dtype)
    assert_close(
        sinkhorn(cost.cuda(), epsilon=0.05).matrix.cpu(), sinkhorn(cost, epsilon=0.05).matrix
    )
    logits = torch.randn(2, 4, 16, 16, dtype=dtype)
    assert_close(sinkhorn_attention(logits.cuda(), 3).cpu(), sinkhorn_attention(logits, 3))


def test_twenty_thousand_points_fit():
    x, y = torch.randn(20_000, 16, device="cuda"), torch.randn(20_000, 16, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    coupling = sinkhorn(PointCloud(x, y), relative_epsilon=0.1)
    assert coupling.status == "converged"
    assert torch.cuda.max_memory_allocated() < 1e9
