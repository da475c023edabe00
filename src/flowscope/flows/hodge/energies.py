r"""Cross-fitted energies of rotation and gradient, with the influence of each block on them.

.. math:: R = \langle \hat w_1, \hat w_2\rangle + \text{what } P_1, P_2 \text{ took up}, \qquad
          G = \langle P_1 v, P_2 v\rangle, \qquad U = \langle \hat u_1, \hat u_2\rangle .

Noise and what lies outside the functions multiply to zero between halves, so R and G are energies
of what is represented, neither raised nor lowered by noise. Counting block b once more moves R by

.. math:: \psi_b = \langle \hat w(\eta_b), \hat w'\rangle
          + \tfrac1N(\langle \hat w_1, \hat w_2\rangle_b - N_b R)

with η_b what the *other* half does not explain of the block (its own half has bent towards it) and
ŵ' the rotation of the other half.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.halves import Halves
from flowscope.flows.hodge.joint import JointMoments, Products

__all__ = ["Energies", "Fits", "Influence", "energies", "fits", "influence"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fits:
    """Fits of several fields on each half; they are linear in the fields.

    Attributes
    ----------
    parts
        Coefficients of rotation, gradient and velocity.
    slopes
        Products of the rotations with the gradients, summed over each block.
    """

    parts: Float64[Tensor, "3 h rds c"]
    slopes: Float64[Tensor, "b r h c"]

    def chosen(self, column: slice) -> "Fits":
        """Those of some of the fields."""
        return Fits(parts=self.parts[..., column], slopes=self.slopes[..., column])

    def plus(self, other: "Fits", scale: Float64[Tensor, ""]) -> "Fits":
        """Those of the fields with another one added to each, times a number."""
        return Fits(
            parts=self.parts + scale * other.parts, slopes=self.slopes + scale * other.slopes
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Energies:
    """R, G and U of several fields on the same points, and R before what P took up is added."""

    rotation: Float64[Tensor, "c"]
    gradient: Float64[Tensor, "c"]
    total: Float64[Tensor, "c"]
    plain: Float64[Tensor, "c"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """What each block does to the energies of one field.

    Attributes
    ----------
    energies
        b·ψ_b: of R, G and U.
    noise
        ⟨ŵ(η_b), ŵ(η_c)⟩ for block b of one half and c of the other, mean over the splits.
    linear
        ⟨ŵ(η_b), ŵ'⟩ with ŵ' scaled to energy 1.
    measure
        (⟨ŵ₁, ŵ₂⟩_b − N_b R)/(N R); zero where R is not positive.
    """

    energies: Float64[Tensor, "b 3"]
    noise: Float64[Tensor, "b b"]
    linear: Float64[Tensor, "b"]
    measure: Float64[Tensor, "b"]


def fits(of: JointMoments, right: Products, pairs: Halves) -> Fits:
    """Fits of fields on both halves of each split, from their products and the blocks' moments."""
    parts = pairs.parts(right.averaged(pairs.shares))
    _, h, _, c = parts.shape
    # One pass over the blocks for all halves: their matrices are large, and read once.
    slopes = of.sloped(parts[0].transpose(0, 1).flatten(1))
    return Fits(parts=parts, slopes=torch.unflatten(slopes, 2, (h, c)))


def energies(of: Fits, whole: JointMoments, pairs: Halves, members: int) -> Energies:
    r"""Energies by the product of two halves, mean over several halvings.

    .. math:: \frac1S\sum_s \langle\hat w_{1s}, \hat w_{2s}\rangle

    Parameters
    ----------
    of : fits of each field.
    whole : moments of all points, a mean over them.
    pairs : equations of both halves of each of S splits; they serve every field.
    members : most blocks that a half has.

    Notes
    -----
    O(S·b·c·(r + ds)²). A potential fitted to finitely many points takes up a little of a true
    rotation; its expectation is added to R, as in :mod:`flowscope.flows.hodge.influence`.
    """
    one, two = _sides(of.parts, 1).unbind(2)
    plain = (one * whole.applied(two)).sum(2).mean(1)
    taken = _taken(of.slopes, pairs, members).mean(0)
    return Energies(rotation=plain[0] + taken, gradient=plain[1], total=plain[2], plain=plain[0])


def influence(
    of: JointMoments, whole: JointMoments, right: Products, fitted: Fits,
    *, pairs: Halves, count: Float64[Tensor, "b"],
) -> Influence:  # fmt: skip
    r"""Influence of each block on the energies of one field.

    .. math:: b\,\psi_b, \qquad \langle\hat w(\eta_b), \hat w(\eta_c)\rangle

    Parameters
    ----------
    of : moments of the blocks.
    right : products of the field with gradients and regressors.
    fitted, whole, pairs : as for :func:`energies`.
    count : points of each block.

    Notes
    -----
    O(S·b·(r + ds)²).
    """
    b, n = len(count), count.sum()
    parts = fitted.parts[..., 0]  # [part, half, rds]
    local = _local(of, parts)
    moves = _moves(right, pairs, _others(local, 1))
    ahead = whole.applied(parts.mT).mT
    shift = _sides((_others(ahead, 1)[:, :, None] @ moves)[:, :, 0], 1).sum(2)  # [part, split, b]
    size = 0.5 * _sides((parts[0] * ahead[0]).sum(1), 0).sum(1)
    inside = torch.einsum("ksbi,ksi->bk", _sides(local, 1)[:, :, 1], _sides(parts, 1)[:, :, 0]) / n
    first, second = _sides(moves[0], 0).unbind(1)
    S, share = len(size), count / n
    level = inside.sum(0)
    spread = inside - share[:, None] * level
    pulls = (shift - shift.mean(2, keepdim=True)).sum(1).mT
    return Influence(
        energies=b * (pulls + spread) / S,
        noise=(whole.applied(first).mT @ second).mean(0),
        linear=(shift[0] / size.clamp_min(1e-300).sqrt()[:, None]).mean(0),
        measure=(spread[:, 0] / level[0]).masked_fill(~(level[0] > 0), 0),
    )


def _sides(x: Tensor, halves: int) -> Tensor:
    """The axis of the halves as one of splits and one of their two sides."""
    return torch.unflatten(x, halves, (-1, 2))


def _others(x: Tensor, halves: int) -> Tensor:
    """What belongs to the other half of the same split, for each half."""
    return _sides(x, halves).flip(halves + 1).flatten(halves, halves + 1)


def _taken(slopes: Tensor, pairs: Halves, members: int) -> Tensor:
    """Energy of a true rotation that the potential of each half takes up by chance."""
    share, block = pairs.shares.sort(dim=1, descending=True, stable=True)
    share, block = share[:, :members], block[:, :members]  # zero where a half has fewer
    half = torch.arange(len(block), device=block.device)[:, None]
    ahead, behind = (
        slopes[block, :, k] * share[..., None, None]  # [half, block, r, field]
        for k in (half, half + 1 - 2 * (half % 2))
    )
    across = behind.transpose(1, 2)
    solved = pairs.potential(across.flatten(2)).view_as(across)
    found: Tensor = (ahead.transpose(1, 2) * solved).sum((1, 2))
    return found


def _local(of: JointMoments, parts: Tensor) -> Tensor:
    """Products of each block with the fits of each half: [part, half, block, rds]."""
    two = of.applied(parts[:2].flatten(0, 1).mT)  # the third is their sum
    two = torch.unflatten(two.permute(2, 0, 1), 0, (2, -1))
    return torch.cat([two, two.sum(0, keepdim=True)])


def _moves(right: Products, pairs: Halves, explained: Tensor) -> Tensor:
    """Change of rotation, gradient and velocity of each half with the weight of each block.

    ``explained`` is what the other half explains of each block: by its rotation, by its gradient
    and by both. The answer has the axes part, half, coefficient and block.
    """
    w = pairs.shares[..., None]
    r, b = right.gradients.shape[1], len(right.gradients)
    left = (w * (right.stacked[..., 0] - explained[2])).mT
    # The gradient part is fitted alone: what turns is left over, too.
    slope = (w * (right.gradients[..., 0] - explained[1, ..., :r])).mT
    both = pairs.potential(torch.cat([left[:, :r], slope], 2))
    rest = Products(gradients=left[:, :r], regressors=left[:, r:])
    turned = pairs.rotation(rest, both[..., :b])
    none = torch.zeros_like(rest.regressors)
    rising, total = (torch.cat([x, none], 1) for x in (both[..., b:], both[..., :b]))
    return torch.stack([turned, rising, turned + total])
