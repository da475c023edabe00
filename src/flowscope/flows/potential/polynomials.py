r"""Mean velocity as a polynomial of the state, from sums over groups alone.

With $z = W(y-\mu)$ the whitened state, the velocity of a point is regressed on

$$
\phi(z) = \bigl[1,\; z_i,\; z_iz_j\ (i\le j)\bigr],
$$

with a ridge on all but the constant. The sums $\sum\phi\phi^\top$ and $\sum\phi v^\top$ of every
group of points (a prompt) are kept, so that a fit to any set of groups costs no pass over points.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

__all__ = ["Basis", "GroupMoments", "basis_of", "group_moments", "weights_of"]

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridges that are tried, relative to the mean eigenvalue of the Gram matrix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """Polynomials of degree one or two in whitened coordinates."""

    centre: Float64[Tensor, "r"]
    whitening: Float64[Tensor, "r r"]
    degree: int

    @property
    def size(self) -> int:
        """Number of functions, the constant included."""
        r = len(self.centre)
        return 1 + r + (r * (r + 1) // 2 if self.degree == 2 else 0)

    def whitened(self, y: Float64[Tensor, "N r"]) -> Float64[Tensor, "N r"]:
        """Coordinates of unit covariance."""
        return (y - self.centre) @ self.whitening.mT

    def values(self, y: Float64[Tensor, "N r"]) -> Float64[Tensor, "N F"]:
        """Functions at some states."""
        z = self.whitened(y)
        parts = [torch.ones_like(z[:, :1]), z]
        if self.degree == 2:
            i, j = torch.triu_indices(z.shape[1], z.shape[1])
            parts.append(z[:, i] * z[:, j])
        return torch.cat(parts, 1)

    def slopes(
        self, y: Float64[Tensor, "N r"], weights: Float64[Tensor, "F r"]
    ) -> Float64[Tensor, "N r r"]:
        """Jacobian of the velocity at some states: rows are components, columns coordinates."""
        z = self.whitened(y)
        n, r = z.shape
        linear = weights[1 : r + 1].mT.expand(n, r, r)
        if self.degree == 1:
            return linear @ self.whitening
        i, j = torch.triu_indices(r, r)
        form = torch.zeros(r, r, r, dtype=z.dtype)  # [component, i, j], symmetric
        form[:, i, j] = weights[r + 1 :].mT
        form = form + form.mT
        return (linear + torch.einsum("nj,cij->nci", z, form)) @ self.whitening


def basis_of(y: Float64[Tensor, "N r"], degree: int) -> Basis:
    """Polynomials in the coordinates that some points have with unit covariance."""
    covariance = torch.cov(y.mT).reshape(y.shape[1], y.shape[1])
    values, vectors = torch.linalg.eigh(covariance)
    scale = values.clamp_min(values[-1] * y.shape[1] * torch.finfo(y.dtype).eps).rsqrt()
    return Basis(centre=y.mean(0), whitening=scale[:, None] * vectors.mT, degree=degree)


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupMoments:
    """Sums over the points of every group."""

    gram: Float64[Tensor, "G F F"]
    cross: Float64[Tensor, "G F r"]
    energy: Float64[Tensor, "G"]
    count: Float64[Tensor, "G"]

    def over(self, chosen: Bool[Tensor, "G"] | None = None) -> tuple[Tensor, Tensor, float, float]:
        """Sums over some groups: Gram matrix, products with the velocity, energy, points."""
        parts = (self.gram, self.cross, self.energy, self.count)
        gram, cross, energy, count = (
            (part if chosen is None else part[chosen]).sum(0) for part in parts
        )
        return gram, cross, float(energy), float(count)


def group_moments(
    basis: Basis, y: Float64[Tensor, "N r"], v: Float64[Tensor, "N r"], place: Int64[Tensor, "N"]
) -> GroupMoments:
    """Sums over groups; ``place`` is the number of each point's group, from 0."""
    phi, groups = basis.values(y), int(place.max()) + 1
    gram = torch.zeros(groups, phi.shape[1], phi.shape[1], dtype=y.dtype)
    cross = torch.zeros(groups, phi.shape[1], v.shape[1], dtype=y.dtype)
    for group in range(groups):
        rows = phi[place == group]
        gram[group], cross[group] = rows.mT @ rows, rows.mT @ v[place == group]
    energy = torch.zeros(groups, dtype=y.dtype).index_add_(0, place, v.square().sum(1))
    return GroupMoments(gram=gram, cross=cross, energy=energy, count=place.bincount().to(y.dtype))


def weights_of(gram: Tensor, cross: Tensor, strength: float) -> Float64[Tensor, "F r"]:
    """Weights of a ridge on all functions but the constant."""
    level = float(gram.diagonal()[1:].mean())
    penalty = torch.full_like(gram.diagonal(), strength * level)
    penalty[0] = 0.0
    weights: Tensor = torch.linalg.solve(gram + torch.diag(penalty), cross)
    return weights


def held_out_error(moments: GroupMoments, folds: Int64[Tensor, "G"], strength: float) -> float:
    """Sum of squared errors on the groups of each fold, fitted on the others."""
    missed = 0.0
    for fold in range(int(folds.max()) + 1):
        gram, cross, _, _ = moments.over(folds != fold)
        weights = weights_of(gram, cross, strength)
        there, seen, energy, _ = moments.over(folds == fold)
        missed += energy - float((weights * (2 * seen - there @ weights)).sum())
    return missed
