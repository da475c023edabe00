r"""Eigenvalues of the mobility: how fast logits can move probabilities, and along how many axes.

.. math:: J = \operatorname{diag} p - p\,p^\top, \qquad
          p_1 \ge \lambda_1 \ge p_2 \ge \lambda_2 \ge \dots \ge p_V \ge \lambda_V = 0
          \quad (p \text{ sorted}), \qquad \lambda_1 \le 2 \max_j p_j (1 - p_j) \le \tfrac12 .

J^τ = J/τ has the norm λ₁/τ. Source 000 J.2 bounds the eigenvalues by ¼; (½, ½) has ½.
:mod:`flowscope.simplex.secular` solves for them; here are the two functions and their slopes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from flowscope.errors import InvalidInputError
from flowscope.simplex.blocks import block_rows, reduced, row_blocks, strip_argmax, strip_copy
from flowscope.simplex.probability import (
    ArrayLike,
    as_probabilities,
    as_reals,
    as_tensor,
    check_outcomes,
    check_rows,
)
from flowscope.simplex.secular import eigenvalue_slopes, interlaced_roots, largest_root

__all__ = ["mobility_norm", "mobility_spectrum"]


def mobility_norm(p: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch"]:
    r"""Operator norm of the mobility: its largest eigenvalue.

    .. math:: \lambda_{\max}(J) = \max_{\|v\|_2 = 1} \operatorname{Var}_p(v), \qquad
              \frac{p_1}{p_1 - \lambda} = \sum_{\text{tail}} \frac{t}{\lambda - t}

    Parameters
    ----------
    p : probability vectors; p₁ is the largest entry and t the others.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors.

    Notes
    -----
    Two Newton steps on the secular equation (four in float64), O(V) each, in blocks of rows that
    stay in cache; the relative error in float32 is below 1e-6 for any tail mass, ties and zeros
    included. The slope solves again in float64. Source 000 §2 and J.2, whose bound ¼ is wrong.

    Examples
    --------
    >>> mobility_norm([[0.9, 0.1], [0.5, 0.5]])
    tensor([0.1800, 0.5000], dtype=torch.float64)
    """
    x = as_tensor(p, "p", None)
    check_outcomes(x, "p")
    epsilon = torch.finfo(x.dtype).eps
    x = as_reals(x, "p")
    norm: Tensor = _LargestEigenvalue.apply(x, epsilon)  # type: ignore[no-untyped-call]
    return norm.to(x.dtype)


def mobility_spectrum(
    p: Float[Tensor, "*batch V"] | ArrayLike, k: int
) -> Float[Tensor, "*batch k"]:
    r"""Largest k eigenvalues of the mobility, in descending order.

    .. math:: J v = \lambda v, \qquad \sum_j \frac{p_j}{p_j - \lambda} = 0
              \;\text{ or }\; \lambda \in \{0\} \cup \{p_j \text{ tied}\}

    Parameters
    ----------
    p : probability vectors.
    k : how many eigenvalues, 1 to V; the last of V is 0.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors, or k is not a whole number from 1 to V.

    Notes
    -----
    One sort and about six O(V) Newton steps per eigenvalue, all in float64: O(V log V + kV) time
    per row, so all V eigenvalues cost O(V²) time; memory is that of a block of rows. A multiple
    eigenvalue gets the mean slope of its cluster. Source 000 J.2.

    Examples
    --------
    >>> mobility_spectrum([0.5, 0.25, 0.25], 3)
    tensor([0.3750, 0.2500, 0.0000], dtype=torch.float64)
    """
    x = as_probabilities(p, "p")
    V = x.shape[-1]
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= V:
        raise InvalidInputError(
            f"k must be a whole number from 1 to V = {V}; found {k}. Ask for at most as many "
            "eigenvalues as there are outcomes."
        )
    spectrum: Tensor = _Eigenvalues.apply(x.reshape(-1, V), int(k))  # type: ignore[no-untyped-call]
    return spectrum.to(x.dtype).reshape(*x.shape[:-1], k)


class _LargestEigenvalue(Function):
    """Largest eigenvalue of diag p̂ − p̂p̂ᵀ, p̂ = p/Σp, with validation in the same pass."""

    @staticmethod
    def forward(p: Tensor, epsilon: float) -> Tensor:
        batch = p.shape[:-1]
        blocks = [_block_eigenvalues(block) for block in row_blocks(p)]
        root, total, smallest = (
            torch.cat(part).reshape(batch) for part in zip(*blocks, strict=True)
        )
        check_rows(p, total, smallest, epsilon, "p")
        return root / total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        p, norm = ctx.saved_tensors
        parts = zip(row_blocks(p), torch.split(norm.reshape(-1), block_rows(p)), strict=True)
        slopes = torch.cat([_block_slopes(*part) for part in parts]).reshape(p.shape)
        return (grad[..., None] * slopes).to(p.dtype), None


def _block_eigenvalues(p: Float[Tensor, "rows V"]) -> tuple[Tensor, Tensor, Tensor]:
    """Root, sum and smallest entry of each row; the sum in float64, from peak and tail."""
    place = strip_argmax(p)
    peak = p.gather(-1, place)[:, 0]
    tail = strip_copy(p).scatter_(-1, place, 0.0)
    mass = reduced(tail, lambda part: part.sum(-1, dtype=torch.float64)).sum(-1)
    smallest = reduced(p, lambda part: part.amin(-1)).amin(-1)
    return largest_root(peak, tail), peak.double() + mass, smallest


def _block_slopes(
    p: Float[Tensor, "rows V"], norm: Float[Tensor, " rows"]
) -> Float[Tensor, "rows V"]:
    """Slope of λ(p/Σp) in p; in float64, where the eigenvector is well determined near ties.

    The root is found again in float64 and takes its own slope from the norm that was returned, so
    that the slope can be differentiated in turn.
    """
    x = p.double()
    total = x.sum(-1, keepdim=True)
    x = x / total
    root = _block_eigenvalues(x.detach())[0] + (norm - norm.detach())
    slope = eigenvalue_slopes(x, root, torch.zeros_like(root, dtype=torch.int64))
    return (slope - (slope * x).sum(-1, keepdim=True)) / total


class _Eigenvalues(Function):
    """Largest k eigenvalues of diag p − ppᵀ for rows that sum to one."""

    @staticmethod
    def forward(p: Tensor, k: int) -> Tensor:
        return torch.cat([_block_spectrum(block.double(), k) for block in row_blocks(p)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        p, spectrum = ctx.saved_tensors
        slopes = torch.zeros_like(p, dtype=torch.float64)
        for row, index in _pairs(p, grad.shape[-1]):
            each = eigenvalue_slopes(p[row].double(), spectrum[row, index], index)
            slopes.index_add_(0, row, grad[row, index][:, None] * each)
        return slopes.to(p.dtype), None


def _block_spectrum(p: Float[Tensor, "rows V"], k: int) -> Float[Tensor, "rows k"]:
    ordered = p.sort(-1, descending=True).values
    spectrum = p.new_zeros(p.shape[0], k)  # the last of V stays 0
    for row, gap in _pairs(p, min(k, p.shape[-1] - 1)):
        spectrum[row, gap] = interlaced_roots(ordered[row], gap)
    return spectrum


def _pairs(p: Float[Tensor, "rows V"], k: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every (row, index < k) in blocks, one row of V numbers being needed for each."""
    size = block_rows(p)
    every = torch.arange(p.shape[0] * k, device=p.device)
    for block in torch.split(every, size):
        yield block // k, block % k
