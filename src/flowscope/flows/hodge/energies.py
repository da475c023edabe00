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

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from flowscope.flows.hodge.joint import Half, JointMoments, Products, averaged, halves, ridged

__all__ = ["Energies", "Influence", "energies", "influence", "split_halves"]


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Fits of one half: coefficients of rotation, gradient and velocity, for each field."""

    half: Half
    weights: Float64[Tensor, "b"]
    parts: tuple[Tensor, Tensor, Tensor]


def split_halves(
    of: JointMoments, splits: Bool[Tensor, "S b"], pull: Float64[Tensor, "ds"]
) -> list[tuple[Half, Half]]:
    """Equations of both halves of each split, factorised, with the penalty λD."""
    pairs = []
    for first in splits:
        one, two = halves(of, torch.stack([first, ~first]).double())
        pairs.append((ridged(one, pull), ridged(two, pull)))
    return pairs


def energies(
    of: JointMoments,
    right: Products,
    splits: Bool[Tensor, "S b"],
    pairs: Sequence[tuple[Half, Half]],
) -> Energies:
    r"""Energies by the product of two halves, mean over several halvings.

    .. math:: \frac1S\sum_s \langle\hat w_{1s}, \hat w_{2s}\rangle

    Parameters
    ----------
    of : moments of the blocks.
    right : products of each field with gradients and regressors.
    splits : which blocks are in the first half, for each of S splits.
    pairs : factorised equations of these halves; they serve every field.

    Notes
    -----
    O(S·b·c·(r + ds)²). A potential fitted to finitely many points takes up a little of a true
    rotation; its expectation is added to R, as in :mod:`flowscope.flows.hodge.influence`.
    """
    whole = of.total(torch.ones_like(of.count))
    sides = [_sides(of, right, *each) for each in zip(splits, pairs, strict=True)]
    # One pass over the blocks for all splits: their matrices are large, and read once.
    turned = torch.cat([side.parts[0] for both in sides for side in both], 1)
    slopes = of.sloped(turned)
    slopes = slopes.reshape(*slopes.shape[:2], len(sides), 2, -1)
    found = torch.zeros(4, right.gradients.shape[-1], dtype=of.count.dtype, device=of.count.device)
    for s, (one, two) in enumerate(sides):
        products = [
            (x * whole.applied(y).stacked[0]).sum(0)
            for x, y in zip(one.parts, two.parts, strict=True)
        ]
        ahead, behind = slopes[:, :, s, 0], slopes[:, :, s, 1]
        taken = 0.5 * (_taken(of, one, ahead, behind) + _taken(of, two, behind, ahead))
        found += torch.stack([products[0] + taken, products[1], products[2], products[0]])
    found /= len(pairs)
    return Energies(rotation=found[0], gradient=found[1], total=found[2], plain=found[3])


def influence(
    of: JointMoments,
    right: Products,
    splits: Bool[Tensor, "S b"],
    pairs: Sequence[tuple[Half, Half]],
) -> Influence:
    r"""Influence of each block on the energies of one field.

    .. math:: b\,\psi_b, \qquad \langle\hat w(\eta_b), \hat w(\eta_c)\rangle

    Parameters
    ----------
    of, splits, pairs : as for :func:`energies`.
    right : products of the field with gradients and regressors.

    Notes
    -----
    O(S·b·(r + ds)²).
    """
    b, n = len(of.count), of.count.sum()
    whole = of.total(torch.ones_like(of.count))
    sides = [_sides(of, right, *each) for each in zip(splits, pairs, strict=True)]
    columns = torch.cat([x for both in sides for side in both for x in side.parts], 1)
    local = of.applied(columns).stacked.reshape(b, len(columns), len(sides), 2, 3)
    pulls, inside = (torch.zeros(b, 3, dtype=n.dtype, device=n.device) for _ in range(2))
    noise = torch.zeros(b, b, dtype=n.dtype, device=n.device)
    linear = torch.zeros(b, dtype=n.dtype, device=n.device)
    for s, (one, two) in enumerate(sides):
        moves = [_moves(of, right, x, local[:, :, s, k]) for x, k in ((one, 1), (two, 0))]
        for k in range(3):
            x, y = one.parts[k], two.parts[k]
            ahead, behind = (whole.applied(side).stacked[0] for side in (x, y))
            shift = (moves[0][k].mT @ behind + moves[1][k].mT @ ahead)[:, 0]
            pulls[:, k] += shift - shift.mean()
            inside[:, k] += local[:, :, s, 1, k] @ x[:, 0] / n
            if k == 0:
                size = 0.5 * float((x * ahead).sum() + (y * behind).sum())
                linear += shift / max(size, 1e-300) ** 0.5
        noise += whole.applied(moves[0][0]).stacked[0].mT @ moves[1][0]
    S, share, level = len(sides), of.count / n, inside.sum(0)
    spread = inside - share[:, None] * level
    return Influence(
        energies=b * (pulls + spread) / S,
        noise=noise / S,
        linear=linear / S,
        measure=spread[:, 0] / level[0] if float(level[0]) > 0 else torch.zeros_like(share),
    )


def _sides(
    of: JointMoments, right: Products, first: Tensor, pair: tuple[Half, Half]
) -> tuple[_Side, _Side]:
    one, two = (
        _side(half, row.double(), right, of.count)
        for half, row in zip(pair, (first, ~first), strict=True)
    )
    return one, two


def _side(half: Half, weights: Tensor, right: Products, count: Tensor) -> _Side:
    mean = averaged(right, weights, count)
    w, g = half.rotation(mean), half.gradient(mean)
    return _Side(half=half, weights=weights, parts=(w, g, w + g))


def _taken(of: JointMoments, own: _Side, ahead: Tensor, behind: Tensor) -> Tensor:
    """Energy of a true rotation that the potential of a half takes up by chance."""
    members = own.weights > 0
    n = own.weights @ of.count
    mine, theirs = ahead[members] / n, behind[members] / n
    b, r, c = mine.shape
    solved = own.half.potential(theirs.transpose(0, 1).reshape(r, b * c)).reshape(r, b, c)
    return torch.einsum("brc,rbc->c", mine, solved)


def _moves(of: JointMoments, right: Products, own: _Side, explained: Tensor) -> tuple[Tensor, ...]:
    """Change of rotation, gradient and velocity of a half with the weight of each block.

    ``explained`` is what the other half explains of each block: by its rotation, by its gradient
    and by both.
    """
    w = (own.weights / (own.weights @ of.count))[:, None]
    r = right.gradients.shape[1]
    left = w * (right.stacked[..., 0] - explained[..., 2])
    rest = Products(gradients=left[:, :r].mT, regressors=left[:, r:].mT)
    # The gradient part is fitted alone: what turns is left over, too.
    slope = (w * (right.gradients[..., 0] - explained[:, :r, 1])).mT
    turned = own.half.rotation(rest)
    rising = torch.cat([own.half.potential(slope), torch.zeros_like(rest.regressors)])
    return turned, rising, turned + own.half.gradient(rest)
