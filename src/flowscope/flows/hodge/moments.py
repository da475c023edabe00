r"""Orthonormal functions on a sample, and the moments of a velocity against them, block by block.

.. math:: G = \mathbb E[QQ^\top], \qquad C = \mathbb E[Qv^\top], \qquad K = T(G \otimes I)T^\top .

Q are orthonormal combinations of the functions of a dictionary and T the gradients of its
potentials written in them. Sums over blocks are linear in the data: a resample of the blocks, or a
half of them, is a vector of weights.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.dictionary import Dictionary
from flowscope.flows.hodge.problem import Blocks

__all__ = ["Basis", "Moments", "basis", "moments", "orthonormal", "weighted"]

# Directions whose share of their own size is smaller are rounding, or the sample lacks them.
_NEGLIGIBLE = 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """Orthonormal functions of the field, and the gradients of orthonormal potentials in them.

    Attributes
    ----------
    fields
        Q = Φ·fields.
    potentials
        Ψ·potentials, whose gradients are orthonormal.
    gradient
        T, gradient of each potential, in the metric of the diffusion.
    penalty
        Diagonal D of the ridge, for the s first functions, those that a rotation is written in:
        0 for constant and linear functions, 1/eigenvalue for others.
    """

    fields: Float64[Tensor, "m q"]
    potentials: Float64[Tensor, "p r"]
    gradient: Float64[Tensor, "r d q"]
    penalty: Float64[Tensor, "s"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Sums over each block: of 1, QQᵀ, Qvᵀ and |v|²."""

    count: Float64[Tensor, "b"]
    gram: Float64[Tensor, "b q q"]
    cross: Float64[Tensor, "b q d"]
    square: Float64[Tensor, "b"]


def basis(
    dictionary: Dictionary, values: Float64[Tensor, "N m"], chart: Float64[Tensor, "d d"]
) -> Basis:
    r"""Orthonormal basis of both dictionaries on a sample.

    .. math:: \tfrac1N \textstyle\sum_i Q(z_i)Q(z_i)^\top = I, \qquad T(I \otimes I)T^\top = I

    Parameters
    ----------
    dictionary : Φ and Ψ.
    values : Φ at the points.
    chart : J = a^{1/2}L^{-⊤}, which takes a gradient in z to the metric of the diffusion.

    Notes
    -----
    O(N m² + p³). Constant and linear functions first, then the others that a rotation is written
    in, then those that only hold gradients; each block orthogonal to those before, along the
    eigenvectors of its correlation; directions below 1e-8 of the largest are left out.

    Examples
    --------
    >>> from flowscope.flows.hodge.dictionary import matched_dictionary
    >>> g = torch.Generator().manual_seed(0)
    >>> z = torch.randn(500, 1, generator=g).double()
    >>> phi = matched_dictionary(z, generator=g, degree=2, waves=0)
    >>> basis(phi, phi.fields(z, z[:, 0]), torch.eye(1).double()).gradient.shape
    torch.Size([3, 1, 3])
    """
    G = values.mT @ values / len(values)
    linear, regressors, m = dictionary.linear_size, dictionary.regressors, len(G)
    Q = torch.zeros(m, 0, dtype=G.dtype, device=G.device)
    penalty = [torch.zeros(linear, dtype=G.dtype, device=G.device)]
    for low, high in ((0, linear), (linear, regressors), (regressors, m)):
        new, eigen = orthonormal(G, Q, range(low, high))
        Q = torch.cat([Q, new], 1)
        if 0 < low < regressors:
            penalty.append(1 / eigen)
    T = torch.einsum("ej,pjm->pem", chart, dictionary.gradient) @ (G @ Q)
    T = T.reshape(len(T), -1)
    size = T.norm(dim=1, keepdim=True).clamp_min(1e-150)  # powers differ by many tens
    stiffness, directions = torch.linalg.eigh((T / size) @ (T / size).mT)
    held = stiffness > _NEGLIGIBLE
    P = directions[:, held] * stiffness[held].rsqrt() / size
    return Basis(
        fields=Q,
        potentials=P,
        gradient=(P.mT @ T).reshape(P.shape[1], len(chart), -1),
        penalty=torch.cat(penalty),
    )


def moments(Q: Float64[Tensor, "N q"], v: Float64[Tensor, "N d"], units: Blocks) -> Moments:
    r"""Sums of products over each block.

    .. math:: G_b = \textstyle\sum_{i \in b} Q_i Q_i^\top, \qquad C_b = \sum_{i\in b} Q_i v_i^\top

    Parameters
    ----------
    Q : orthonormal functions at the points.
    v : velocities in the metric of the diffusion.
    units : block of each point.

    Notes
    -----
    O(N q²).

    Examples
    --------
    >>> one = Blocks(labels=torch.zeros(4, dtype=torch.int64), count=1, groups=1)
    >>> moments(torch.ones(4, 1).double(), torch.ones(4, 1).double(), one).cross
    tensor([[[4.]]], dtype=torch.float64)
    """
    order = units.labels.argsort(stable=True)
    sizes = torch.bincount(units.labels, minlength=units.count)
    ordered = (torch.split(x[order], sizes.tolist()) for x in (Q, v))
    parts = list(zip(*ordered, strict=True))
    return Moments(
        count=sizes.double(),
        gram=torch.stack([q.mT @ q for q, _ in parts]),
        cross=torch.stack([q.mT @ w for q, w in parts]),
        square=torch.stack([w.square().sum() for _, w in parts]),
    )


def orthonormal(
    G: Tensor, Q: Tensor, block: range, least: float = _NEGLIGIBLE
) -> tuple[Tensor, Tensor]:
    """Combinations of a block of functions, orthonormal and orthogonal to those of Q."""
    here = slice(block.start, block.stop)
    unit = torch.eye(len(G), dtype=G.dtype, device=G.device)[:, here]
    free = unit - Q @ (Q.mT @ (G @ unit))
    free = free - Q @ (Q.mT @ (G @ free))  # twice is enough
    # In units of the functions themselves: what is left of one that Q holds already is rounding.
    size = G.diagonal()[here].clamp_min(1e-300).rsqrt()
    eigen, vectors = torch.linalg.eigh(size[:, None] * (free.mT @ G @ free) * size)
    lost = int((eigen <= least).sum())  # they increase
    eigen, vectors = eigen[lost:], vectors[:, lost:]
    return free @ (size[:, None] * vectors * eigen.rsqrt()), eigen


def weighted(x: Tensor, weights: Tensor) -> Tensor:
    """Sum of x over blocks (first axis) for each row of weights."""
    return (weights @ x.reshape(len(x), -1)).reshape(len(weights), *x.shape[1:])
