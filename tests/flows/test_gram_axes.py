"""Principal axes of logits found through the Gram matrix are those of the logits."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.gram import centred_gram, principal_axes


def _case(d=7, V=60, n=300):
    g = torch.Generator().manual_seed(0)
    U = torch.randn(V, d, generator=g, dtype=torch.float64)
    x = (
        torch.randn(n, d, generator=g, dtype=torch.float64)
        @ torch.diag(torch.arange(1.0, d + 1)).double()
    )
    return U, x


def test_axes_are_those_of_the_singular_value_decomposition_of_the_logits():
    U, x = _case()
    z = x @ U.mT
    z = z - z.mean(-1, keepdim=True)
    centred = z - z.mean(0)
    _, s, vt = torch.linalg.svd(centred, full_matrices=False)
    axes = principal_axes(torch.cov(x.mT), centred_gram(U), 3)
    B = (U - U.mean(0)) @ axes.combination
    assert_close(B.mT @ B, torch.eye(3).double())
    assert_close(axes.shares, s[:3] ** 2 / (s**2).sum())
    assert_close((B.mT @ vt[:3].mT).abs(), torch.eye(3).double(), atol=1e-9, rtol=0)
    assert_close(x @ axes.reduction, z @ B)


def test_fewer_axes_come_back_where_logits_vary_along_fewer():
    U, x = _case()
    flat = x * torch.tensor([1.0, 1, 0, 0, 0, 0, 0])
    assert len(principal_axes(torch.cov(flat.mT), centred_gram(U), 5).shares) == 2


def test_constant_logits_have_no_axes():
    U, _ = _case()
    with pytest.raises(InvalidInputError, match="must vary"):
        principal_axes(torch.zeros(7, 7), centred_gram(U), 2)
