r"""Factorised equations of halves of the blocks, of all halves at once, and the penalty of fields.

.. math:: \hat f = (I \otimes G - B^\top K^{-1}B + \lambda D)^{-1}(c - B^\top K^{-1}a), \qquad
          \hat w = \begin{pmatrix} -K^{-1}B\hat f\\ \hat f\end{pmatrix}, \qquad
          Pv = \begin{pmatrix} K^{-1}a\\ 0\end{pmatrix}

with a and c the products of v with the gradients and with the fields. One factorisation of a half
serves every right-hand side, so controls on the same points cost next to nothing; halves lie on
the first axis, and each step is one product or solution of stacks.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from flowscope.flows.hodge.joint import JITTER, JointMoments, Products

__all__ = ["Halves", "Unridged", "chosen_penalty", "halves", "ridged", "shares", "split_weights"]

_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
# Numbers of trial matrices that are factorised at once, unless one fold alone has more.
_AT_ONCE = 2**21


@dataclass(frozen=True, kw_only=True, eq=False)
class Unridged:
    """Factorised equations of several halves, for gradients alone.

    Attributes
    ----------
    shares
        Share of each block in the sums that make the mean of a half over its points.
    mean
        Moments of each half.
    stiff
        Inverse of the Cholesky factor of K.
    bare
        I ⊗ G − BᵀK⁻¹B.
    """

    shares: Float64[Tensor, "h b"]
    mean: JointMoments
    stiff: Float64[Tensor, "h r r"]
    bare: Float64[Tensor, "h ds ds"]

    def potential(self, product: Float64[Tensor, "h r c"]) -> Float64[Tensor, "h r c"]:
        """K⁻¹ of products with the gradients."""
        found: Tensor = self.stiff.mT @ (self.stiff @ product)
        return found

    def chosen(self, which: slice) -> "Unridged":
        """Some of the halves."""
        return Unridged(
            shares=self.shares[which],
            mean=self.mean.chosen(which),
            stiff=self.stiff[which],
            bare=self.bare[which],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Halves(Unridged):
    """Factorised equations of several halves; ``schur`` is as ``stiff``, of bare + λD."""

    schur: Float64[Tensor, "h ds ds"]

    def chosen(self, which: slice) -> "Halves":
        """Some of the halves."""
        return _with(super().chosen(which), self.schur[which])

    def rotation(self, of: Products, slope: Float64[Tensor, "h r c"]) -> Tensor:
        """Coefficients of ŵ = (1 − P)f̂, from products and K⁻¹ of those with the gradients."""
        B = self.mean.coupling
        f = self.schur.mT @ (self.schur @ (of.regressors - B.mT @ slope))
        return torch.cat([-self.potential(B @ f), f], 1)

    def parts(self, of: Products) -> Float64[Tensor, "3 h rds c"]:
        """Coefficients of ŵ, of Pv and of their sum."""
        slope = self.potential(of.gradients)
        turned = self.rotation(of, slope)
        rising = torch.cat([slope, torch.zeros_like(of.regressors)], 1)
        return torch.stack([turned, rising, turned + rising])


def shares(weights: Float64[Tensor, "h b"], count: Float64[Tensor, "b"]) -> Float64[Tensor, "h b"]:
    """What sums over blocks are multiplied by in the mean over points, for each row of weights."""
    return weights / (weights @ count)[:, None]


def halves(of: JointMoments, shares: Float64[Tensor, "h b"]) -> Unridged:
    """Equations of the mean of blocks for each row of shares, factorised, without ridge."""
    mean = of.averaged(shares)
    stiff = _inverse(torch.linalg.cholesky(_raised(mean.stiffness, mean.floor)))
    shadow = stiff @ mean.coupling
    s = mean.gram.shape[-1]
    bare = shadow.mT @ shadow
    bare.neg_()
    d = bare.shape[-1] // s
    bare.view(-1, d, s, d, s).diagonal(0, 1, 3).add_(mean.gram[..., None])
    return Unridged(shares=shares, mean=mean, stiff=stiff, bare=bare)


def ridged(of: Unridged, pull: Float64[Tensor, "ds"]) -> Halves:
    """The same halves with a penalty λD on the fields."""
    return _with(of, _inverse(torch.linalg.cholesky(_raised(of.bare, pull + JITTER))))


def chosen_penalty(
    of: JointMoments, right: Products, penalty: Float64[Tensor, "ds"],
    *, trained: Unridged, held: Float64[Tensor, "f b"],
) -> Float64[Tensor, "ds"]:  # fmt: skip
    r"""λD with λ by cross-validation over blocks.

    .. math:: \lambda = \arg\min_\lambda \textstyle\sum_k
              \langle \hat u_k, M_k\hat u_k\rangle - 2\langle \hat u_k, c_k\rangle

    Parameters
    ----------
    of : moments of the blocks.
    right : products of one field.
    penalty : D.
    trained : equations of the blocks that each fold leaves.
    held : shares of the blocks of each fold.
    """
    ridges = torch.tensor(_RIDGES, dtype=penalty.dtype, device=penalty.device)
    pulls = ridges[:, None] * penalty + JITTER
    here, there, tested = right.averaged(held), right.averaged(trained.shares), of.averaged(held)
    losses = torch.zeros_like(ridges)
    step = max(1, _AT_ONCE // (len(ridges) * len(penalty) ** 2))
    for first in range(0, len(held), step):
        now = slice(first, first + step)
        part, B = trained.chosen(now), trained.mean.coupling[now]
        slope = part.potential(there.gradients[now])
        left = there.regressors[now] - B.mT @ slope
        trials = part.bare[:, None].expand(-1, len(ridges), -1, -1)
        schur = torch.linalg.cholesky(_raised(trials, pulls))
        half = torch.linalg.solve_triangular(schur, left[:, None], upper=False)
        f = torch.linalg.solve_triangular(schur.mT, half, upper=True)[..., 0].mT
        u = torch.cat([slope - part.potential(B @ f), f], 1)
        losses += (u * (tested.chosen(now).applied(u) - 2 * here.stacked[now])).sum((0, 1))
    return ridges.take(losses.argmin()) * penalty  # an index would be read from the device


def split_weights(splits: Bool[Tensor, "S b"]) -> Float64[Tensor, "2S b"]:
    """Weights of the first half of a split, of its second, of the first of the next, and so on."""
    return torch.stack([splits, ~splits], 1).flatten(0, 1).double()


def _inverse(factors: Tensor) -> Tensor:
    """Inverses of lower Cholesky factors, whose products serve many right-hand sides."""
    one = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    found: Tensor = torch.linalg.solve_triangular(factors, one, upper=False)
    return found


def _raised(matrices: Tensor, by: Tensor) -> Tensor:
    """Matrices with numbers added to their diagonals."""
    raised = matrices.clone()
    raised.diagonal(0, -2, -1).add_(by)
    return raised


def _with(of: Unridged, schur: Tensor) -> Halves:
    return Halves(shares=of.shares, mean=of.mean, stiff=of.stiff, bare=of.bare, schur=schur)
