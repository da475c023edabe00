"""Rows of attention of two networks: KL and cosine, means over heads or heads paired."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from flowscope.instruments.field.pde_view.networks import Core
from flowscope.pde import AttentionBranch

__all__ = ["KERNEL_MEASURES", "kernel_agreement", "kernels", "uniform"]

KERNEL_MEASURES = ("kl", "kl_matched", "cosine")
"""What `kernel_agreement` gives, in this order."""

Kernel = Float[Tensor, "batch heads N N"]


@torch.no_grad()
def kernels(blocks: Core, path: Float[Tensor, "L+1 batch N d"]) -> list[Kernel]:
    """Rows of attention of every block at its own states."""
    branches = blocks.attentions
    rows: list[Kernel] = []
    for index, states in enumerate(path[:-1]):
        branch = branches[index % len(branches)]
        assert isinstance(branch, AttentionBranch)
        rows.append(branch.kernel(states))
    return rows


def uniform(like: list[Kernel]) -> list[Kernel]:
    """Rows that attend to all tokens alike."""
    return [torch.full_like(kernel, 1 / kernel.shape[-1]) for kernel in like]


def kernel_agreement(ours: list[Kernel], truth: list[Kernel]) -> NDArray[np.float64]:
    """Agreement of rows of attention, ``[prompts, measures]``, means over blocks."""
    values = [_block(q.double(), p.double()) for q, p in zip(ours, truth, strict=True)]
    return torch.stack(values).mean(0).cpu().numpy()


def _block(q: Kernel, p: Kernel) -> Float[Tensor, "batch measures"]:
    """Agreement in one block. The pairing of heads is the best for all prompts together."""
    mean_q, mean_p = q.mean(1), p.mean(1)
    cross = torch.stack(
        [_divergence(p[:, k : k + 1], q) for k in range(p.shape[1])], 1
    )  # [batch, heads of p, heads of q]
    rows, columns = linear_sum_assignment(cross.mean(0).cpu().numpy())
    matched = cross[:, rows, columns].mean(-1)
    cosine = torch.nn.functional.cosine_similarity(mean_q, mean_p, dim=-1).mean(-1)
    return torch.stack([_divergence(mean_p, mean_q), matched, cosine], -1)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) of the last axis, mean over rows; a mass that underflowed counts as the least."""
    tiny = torch.finfo(torch.float32).tiny
    terms: Tensor = torch.special.entr(p).neg() - p * q.clamp_min(tiny).log()
    return terms.sum(-1).mean(-1)
