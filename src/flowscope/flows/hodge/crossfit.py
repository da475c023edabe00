r"""Rotation of a sampled velocity, fitted on two halves so that noise is not read as rotation.

A velocity is fitted by a gradient and a field of the regressors at once; what of the field is
itself a gradient is then taken out. With Q orthonormal functions, T the gradients of the potentials
in them, moments G, C, K of one half (:mod:`flowscope.flows.hodge.moments`) and P the projection on
gradients,

.. math:: \hat f = \arg\min_f \min_\theta\; \mathbb E|v - \nabla\theta - f|^2
          + \lambda\langle f, Df\rangle, \qquad
          \hat w = (1 - P)\hat f, \qquad R = \mathbb E\langle \hat w_1, \hat w_2\rangle .

The potential is not penalised: a gradient shrunk unevenly is a gradient no more, and would be read
as rotation. So a gradient field within the dictionary has ŵ = 0 whatever λ is. Neither are the
constant and the linear part of f penalised (D = 0 there), so a linear rotation is not shrunk.

Halves are halves of the blocks, and a block stays in its half whatever its weight: a block drawn
twice cannot be in both, and its noise cannot multiply itself.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.moments import Basis, Moments, weighted

__all__ = ["Fit", "Projector", "chosen_ridge", "fit", "projector", "ridged"]

# Added to a normalised Gram matrix; a resample with few distinct points may lack a direction.
_JITTER = 1e-8
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Coefficients of one fit (or a batch): û = ∇θ̂ + ŵ, and those of the potential θ̂."""

    velocity: Float64[Tensor, "*B q d"]
    rotation: Float64[Tensor, "*B q d"]
    potential: Float64[Tensor, "*B r"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Projector:
    """Factorised matrices of a half, or of a batch of them.

    Attributes
    ----------
    gram
        G.
    stiff
        Cholesky factor of K.
    coupling
        B, products of the gradients of the potentials with the regressors (direction by function).
    bare, schur
        G ⊗ I − BᵀK⁻¹B, that of the regressors less their gradients, and the Cholesky factor of it
        with λD added.
    penalty
        Diagonal of λD.
    basis
        T.
    """

    gram: Float64[Tensor, "B q q"]
    stiff: Float64[Tensor, "B r r"]
    coupling: Float64[Tensor, "B r ds"]
    bare: Float64[Tensor, "B ds ds"]
    schur: Float64[Tensor, "B ds ds"]
    penalty: Float64[Tensor, "s"]
    basis: Basis

    def products(self, product: Float64[Tensor, "C q d"]) -> Float64[Tensor, "C r"]:
        """Products of a field with the gradients of the potentials, from those with Q."""
        T = self.basis.gradient
        return product.mT.reshape(len(product), -1) @ T.reshape(len(T), -1).mT

    def potential(self, product: Float64[Tensor, "C q d"]) -> Float64[Tensor, "C r"]:
        """Potential K⁻¹T·C of the gradient part of the field whose products with Q are given."""
        return _solved(self.stiff, self.products(product))

    def field(self, theta: Float64[Tensor, "C r"]) -> Float64[Tensor, "C q d"]:
        """Coefficients of the gradient of a potential."""
        T = self.basis.gradient
        return (theta @ T.reshape(len(T), -1)).reshape(len(theta), *T.shape[1:]).mT

    def regressed(
        self, product: Float64[Tensor, "C q d"], pull: Float64[Tensor, "C s d"] | float = 0.0
    ) -> Float64[Tensor, "C q d"]:
        """f̂ of the field whose products with Q are given, less a pull on the regressors alone."""
        s, d = len(self.penalty), product.shape[2]
        own = (product[:, :s] - pull).mT.reshape(len(product), -1)
        shadow = (self.potential(product)[:, None] @ self.coupling)[:, 0]
        found = torch.zeros_like(product)
        found[:, :s] = _solved(self.schur, own - shadow).reshape(-1, d, s).mT
        return found

    def rotation(self, f: Float64[Tensor, "C q d"]) -> Float64[Tensor, "C q d"]:
        """(1 − P)f."""
        return f - self.field(self.potential(self.gram @ f))


def projector(of: Moments, weights: Tensor, over: Basis) -> Projector:
    """Matrices of each row of weights, factorised; without ridge."""
    G = weighted(of.gram, weights) / (weights @ of.count)[:, None, None]
    T, s, d = over.gradient, len(over.penalty), over.gradient.shape[1]
    TG = torch.einsum("req,bqk->brek", T, G)
    K = TG.flatten(2) @ T.flatten(1).mT
    K.diagonal(dim1=1, dim2=2).add_(_JITTER)
    stiff = torch.linalg.cholesky(K)
    B = TG[..., :s].flatten(2)
    half = torch.linalg.solve_triangular(stiff, B, upper=False)
    unit = torch.eye(d, dtype=G.dtype, device=G.device)
    bare = torch.kron(unit, G[:, :s, :s].contiguous()) - half.mT @ half
    empty = torch.zeros_like(over.penalty)
    found = Projector(
        gram=G, stiff=stiff, coupling=B, bare=bare, schur=bare, penalty=empty, basis=over
    )
    return ridged(found, 0.0)


def ridged(half: Projector, ridge: float) -> Projector:
    """The same half with another ridge."""
    # Gradients among the regressors leave nothing of them; rounding must not leave less.
    penalty = ridge * half.basis.penalty + _JITTER
    schur = half.bare.clone()
    schur.diagonal(dim1=1, dim2=2).add_(penalty.repeat(half.basis.gradient.shape[1]))
    return replace(half, schur=torch.linalg.cholesky(schur), penalty=penalty)


def fit(half: Projector, product: Float64[Tensor, "B q d"]) -> Fit:
    r"""Velocity, its rotation and its potential.

    .. math:: \hat u = \nabla\hat\theta + \hat w, \qquad \nabla\hat\theta = Pv

    Parameters
    ----------
    half : matrices of a half, or of several.
    product : C, of each.

    Notes
    -----
    O(r² + (sd)²). The gradient part is that of the data alone: fitting f beside it and taking out
    its gradients leaves Pv.

    Examples
    --------
    >>> one = torch.ones(1, 1, 1).double()
    >>> flat = Basis(fields=one[0], potentials=one[0], gradient=one, penalty=0 * one[0, 0])
    >>> same = Moments(count=one[0, 0], gram=one, cross=3 * one, square=9 * one[0, 0])
    >>> bool(fit(projector(same, one[0], flat), 3 * one).rotation.abs().max() < 1e-6)
    True
    """
    potential = half.potential(product)
    rotation = half.rotation(half.regressed(product))
    return Fit(velocity=half.field(potential) + rotation, rotation=rotation, potential=potential)


def chosen_ridge(of: Moments, over: Basis, folds: int) -> float:
    r"""Ridge of the rotation by cross-validation over blocks.

    .. math:: \lambda = \arg\min_\lambda \sum_k \frac1{n_k}
              \sum_{i \in k} |v_i - \hat u^{(-k)}_\lambda(x_i)|^2

    Parameters
    ----------
    of : moments of the blocks.
    over : the basis.
    folds : number of folds; block b is in fold b mod folds (blocks are in random order).

    Notes
    -----
    One factorisation of K per fold, one of the regressors for each candidate, 1e-6 to 10 by tens.

    Examples
    --------
    >>> one = torch.ones(2, 1, 1).double()
    >>> flat = Basis(fields=one[0], potentials=one[0], gradient=one[:1], penalty=one[0, 0])
    >>> same = Moments(count=one[:, 0, 0], gram=one, cross=3 * one, square=9 * one[:, 0, 0])
    >>> chosen_ridge(same, flat, 2) in (1e-6, 10.0)
    True
    """
    device = of.count.device
    fold = torch.arange(len(of.count), device=device) % folds
    held = (fold == torch.arange(folds, device=device)[:, None]).double()
    G, C = (weighted(x, held) for x in (of.gram, of.cross))
    rest = (weighted(of.cross, 1 - held)) / ((1 - held) @ of.count)[:, None, None]
    bare = projector(of, 1 - held, over)
    losses = []
    for ridge in _RIDGES:
        B = fit(ridged(bare, ridge), rest).velocity
        sums = held @ of.square - 2 * (B * C).sum((1, 2)) + (B * (G @ B)).sum((1, 2))
        losses.append(float((sums / (held @ of.count)).mean()))
    return _RIDGES[losses.index(min(losses))]


def _solved(factor: Tensor, right: Tensor) -> Tensor:
    if len(factor) == 1:  # one half, many right sides
        return torch.cholesky_solve(right.mT.contiguous(), factor[0]).mT
    return torch.cholesky_solve(right[..., None], factor)[..., 0]
